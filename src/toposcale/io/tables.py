"""Read and write the tables of a run: sorted rows, atomic Parquet, the user's own tables.

Equal rows give equal bytes in whatever order they came: rows are sorted by the key columns, the schema is fixed, and the
compression and its level are pinned here.
"""

import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from toposcale.io import schemas
from toposcale.io.errors import WHEN_DAMAGED, UserError, is_shared
from toposcale.io.files import atomic_write, regular_file
from toposcale.io.table_schema import Table, renamed

_WHEN_DUE = ("code", "parts")  # params that decide when a job runs again
_SMALL_CONTENT, _MOST_COMPRESSED = 1 << 26, 100
_SPACED = "['\u2019 \u00a0\u202f]([0-9]{3})"  # thousands
FEATHER = b"ARROW1"  # first bytes
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}


def from_rows(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows as an Arrow table with the schema of `table`, sorted by its key; None becomes null."""
    return sort(table, pa.Table.from_pylist([dict(row) for row in rows], schema=table.schema))


def feature_rows(features: Mapping[str, Mapping[str, float]], *, model: str, step: int, source: str) -> pa.Table:
    """Return the features of one checkpoint, `features[layer][feature]`, as a features table."""
    where = {"model": model, "step": step, "source": source}
    return from_rows(
        schemas.TABLES["features"],
        (
            {**where, "layer": layer, "feature": feature, "value": float(value)}
            for layer, named in features.items()
            for feature, value in named.items()
        ),
    )


def diagram_rows(diagrams: Mapping[str, Sequence[np.ndarray]], *, model: str, step: int, source: str) -> pa.Table:
    """Return the diagrams of one checkpoint, `diagrams[layer][dimension]` (k, 2), as a diagrams table."""
    where = {"model": model, "step": step, "source": source}
    return from_rows(
        schemas.TABLES["diagrams"],
        (
            {**where, "layer": layer, "dimension": dimension, "birth": birth, "death": death}
            for layer, by_dimension in diagrams.items()
            for dimension, diagram in enumerate(by_dimension)
            for birth, death in diagram.tolist()
        ),
    )


def sort(table: Table, data: pa.Table) -> pa.Table:
    """Return `data` sorted by the key columns of `table`."""
    return data.sort_by([(name, "ascending") for name in table.key])


def write(data: pa.Table, path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write Parquet (zstd) atomically; `metadata` (configuration hash, seeds ...) go into its schema, sorted by key."""
    stored = {key: str(value) for key, value in sorted((metadata or {}).items())}
    data = data.replace_schema_metadata(stored or None)
    with atomic_write(path) as temporary:
        pq.write_table(data, temporary, compression="zstd", compression_level=3, write_page_checksum=True)


def write_csv(data: pa.Table, path: str | Path) -> None:
    """Write the rows as CSV atomically, for people and spreadsheets.

    A spreadsheet runs a text that begins with = + - or @ as a formula, so an apostrophe is put before such a text.
    """
    import pyarrow.compute as pc  # here, since it takes 0.3 s, and most jobs write no CSV

    for index, field in enumerate(data.schema):
        if field.type == pa.string():
            plain = pc.replace_substring_regex(data[index], "^([=+@\t\r-])", r"'\1")
            data = data.set_column(index, field, plain)
    with atomic_write(path) as temporary:
        csv.write_csv(data, temporary)


@contextmanager
def _undamaged(path: str | Path) -> Iterator[None]:
    """Raise UserError for an unreadable file, but not for a lack of memory."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if is_shared(error):
            raise
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: not a readable Parquet file ({reason}); {WHEN_DAMAGED}") from error


def read_checked(path: str | Path) -> pa.Table:
    """Read a Parquet file and verify its checksums; raise UserError if it is damaged."""
    with _undamaged(path):
        # Not `pq.read_table`: it imports pyarrow.dataset, and that pandas, 0.2 s in every job.
        with pq.ParquetFile(regular_file(path), page_checksum_verification=True) as file:
            data = file.read()
        data.validate(full=True)
        if not all(name.isprintable() for name in data.schema.names):
            raise ValueError("the name of a column is damaged")
    if old := renamed(data.schema.names):
        raise UserError(f"{path}: written by an earlier version ({old}); delete it and run again")
    return data


def read(table: Table, path: str | Path) -> pa.Table:
    """Read a Parquet file with the schema of `table`; raise UserError if it is damaged or has another schema."""
    data = read_checked(path)
    if data.schema.names != table.schema.names:
        raise UserError(f"{path}: columns {data.schema.names}, but a {table.name} table has {table.schema.names}")
    try:
        return data.cast(table.schema)
    except (pa.ArrowException, ValueError) as error:
        raise UserError(f"{path}: {str(error).splitlines()[0]}; {WHEN_DAMAGED}") from error


def read_metadata(path: str | Path) -> dict[str, str]:
    """Return the metadata that `write` stored; raise UserError if the file is damaged."""
    with _undamaged(path):
        stored = pq.read_schema(path).metadata or {}
        return {key.decode(): value.decode() for key, value in stored.items() if key != b"ARROW:schema"}


def settings_of(params: Mapping[str, Any]) -> str:
    """Return as JSON the params of a job that determine its results: all but those that decide when it runs."""
    shaping = {key: value for key, value in params.items() if key not in _WHEN_DUE}
    return json.dumps(shaping, sort_keys=True, default=dict)


def digest_of(settings: str, code: str) -> str:
    """Return the digest of the settings (`settings_of`) of a table and the fingerprint of its code."""
    return hashlib.sha256(f"{settings} {code}".encode()).hexdigest()[:16]


def made_with(path: str | Path) -> str:
    """Return the digest of the settings and the code that a table was made with."""
    metadata = read_metadata(path)
    return digest_of(metadata.get("settings", ""), metadata.get("code", ""))


def read_warnings(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows for the warnings table that `with_warnings` stored in the metadata of a table."""
    return json.loads(read_metadata(path).get("warnings", "[]"))


def with_warnings(metadata: Mapping[str, str], noted: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return metadata for `write` that also hold rows for the warnings table (see `notes.note`)."""
    return {**metadata, **({"warnings": json.dumps([dict(row) for row in noted])} if noted else {})}


def read_any(path: str | Path) -> tuple[pa.Table, str]:
    """Read a Parquet or CSV file of the user's; return it with the name of the CSV separator ("" for Parquet).

    Parquet is recognised by its first bytes, and a file may be compressed with gzip. Raise UserError if the file is missing
    or not readable.
    """
    path = Path(path)
    content = read_plain_or_gzip(path)
    if content.startswith(b"PAR1") or ".parquet" in path.suffixes[-2:]:
        return parse_parquet(content, path), ""
    return parse_csv(content, path)


def parse_parquet(content: bytes, path: str | Path) -> pa.Table:
    """Return the table of a user's Parquet or Feather file; raise UserError if it is damaged."""
    try:
        if content.startswith(FEATHER):
            return pa.ipc.open_file(pa.BufferReader(content)).read_all()
        return pq.ParquetFile(pa.BufferReader(content)).read()
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a readable Parquet or CSV table ({str(error).splitlines()[0]})") from error


def parse_csv(content: bytes, path: str | Path) -> tuple[pa.Table, str]:
    """Return the table of a CSV file, and the name of its separator.

    The separator is that of a first line `sep=;`, as Excel writes it, or else the most frequent of comma, semicolon and tab
    in the first line. Decimal commas, and commas or dots between thousands, are parsed. Raise UserError if it is not one.
    """
    head = io.BytesIO(content).readline().decode("utf-8", "replace").removeprefix("\ufeff").strip()
    separator = max(_SEPARATORS, key=head.count)
    if head.lower().startswith("sep=") and head[4:] in (*_SEPARATORS, ""):
        separator, content = head[4:] or "\t", content.split(b"\n", 1)[1] if b"\n" in content else b""
    if "\0" in head or "\ufffd" in head:
        raise UserError(f"{path}: not a text in UTF-8, so not a CSV table")

    def parsed(texts: Iterable[str] = ()) -> pa.Table:
        # "nan" is a value that is not finite, an empty field a missing one.
        empty = ["", "null", "NULL", "NA", "N/A", "n/a", "#N/A", "None", "-", "No log"]
        return csv.read_csv(
            pa.BufferReader(content),
            parse_options=csv.ParseOptions(delimiter=separator),
            convert_options=csv.ConvertOptions(null_values=empty, column_types=dict.fromkeys(texts, pa.string())),
        )

    try:
        data = parsed()
        numbers = {name: _grouped(data[name]) for name in _columns(data, pa.types.is_string)}
        if any(values is not None and _any(data[name], r",(\d{1,2}|\d{4,})$") for name, values in numbers.items()):
            # Commas are decimal, so dots are not.
            texts = parsed(names := _columns(data, pa.types.is_floating))
            numbers |= {name: _grouped(texts[name], dots=True) for name in names}
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        if separator == "," and (row := re.search(r"Expected (\d+) columns, got (\d+): .*\d,\d", reason)):
            reason += (
                f"; the header has {row[1]} columns and this row {row[2]}: if its decimals are written with commas, "
            )
            reason += "separate the columns by semicolons"
        raise UserError(f"{path}: not a readable Parquet or CSV table ({reason})") from error
    for name, values in numbers.items():
        if values is not None:
            data = data.set_column(data.schema.names.index(name), name, pa.chunked_array([values]))
    return data, _SEPARATORS[separator]


def _columns(data: pa.Table, is_type: Callable[[pa.DataType], bool]) -> list[str]:
    """Return the names of the columns of a type that are there once."""
    names = data.schema.names
    return [field.name for field in data.schema if is_type(field.type) and names.count(field.name) == 1]


def _any(texts: pa.Array | pa.ChunkedArray, pattern: str) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _grouped(column: pa.ChunkedArray, *, dots: bool = False) -> pa.Array | None:
    """Return the numbers of texts of which some have a comma or grouped digits; None if they are not numbers.

    Commas separate thousands if all of them can, and some number has none or the numbers rise; otherwise they are decimal.
    Dots do if all of them can, and some number has two, or it is known (`dots`) that they are not decimal. Spaces and
    apostrophes always do.
    """
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(column.combine_chunks())
    texts = pc.replace_substring_regex(trimmed, _SPACED, r"\1")
    is_spaced = not texts.equals(trimmed)
    commas = pc.match_substring(texts, ",")
    texts = pc.if_else(pc.equal(texts, ""), None, texts)

    def all_match(pattern: str, separated: pa.Array = commas) -> bool:
        return bool(pc.all(pc.match_substring_regex(texts.filter(separated), pattern)).as_py())

    exponent = r"(?:[eE][-+]?\d+)?$"
    try:
        dotted = pc.match_substring(texts, ".")
        of_thousands = r"^[-+]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?$"
        if pc.any(dotted).as_py() and (dots or _any(texts, r"\..*\.")) and all_match(of_thousands, dotted):
            return pc.cast(pc.replace_substring(pc.replace_substring(texts, ".", ""), ",", "."), pa.float64())
        if not pc.any(commas).as_py():
            return pc.cast(texts, pa.float64()) if is_spaced else None
        if all_match(r"^[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?$"):
            numbers = pc.cast(pc.replace_substring(texts, ",", ""), pa.float64())
            values = numbers.drop_null().to_numpy()
            if not pc.all(commas).as_py() or bool(np.all(np.diff(values) > 0)):
                return numbers
        if all_match(r"^[-+]?\d*,\d+" + exponent):
            return pc.cast(pc.replace_substring(texts, ",", "."), pa.float64())
    except pa.ArrowInvalid:  # some are texts
        pass
    return None


def read_plain_or_gzip(path: Path) -> bytes:
    """Return the content of a file, decompressed if it is gzip; raise UserError if it is unreadable or grows too much."""
    try:
        with regular_file(path).open("rb") as file:
            if file.read(2) != b"\x1f\x8b":
                file.seek(0)
                return file.read()
        most = max(_SMALL_CONTENT, _MOST_COMPRESSED * path.stat().st_size)
        with gzip.open(path, "rb") as file:
            if len(content := file.read(most + 1)) <= most:
                return content
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not readable ({error})") from error
    raise UserError(f"{path}: decompressed, it is more than {_MOST_COMPRESSED} times as large; decompress it yourself")


def read_user_table(table: Table, path: str | Path) -> pa.Table:
    """Read a Parquet or CSV file of the user's with the columns of `table`, in any order; raise UserError otherwise."""
    data, separator = read_any(path)
    if missing := [name for name in table.names if name not in data.schema.names]:
        how = f", separated by {separator}" if separator else ""
        raise UserError(
            f"{path}: no column {', '.join(missing)}; it needs {', '.join(table.names)}, "
            f"and has {', '.join(data.schema.names)}{how}"
        )
    try:
        return data.select(table.names).cast(table.schema)
    except (pa.ArrowException, ValueError) as error:
        raise UserError(f"{path}: {str(error).splitlines()[0]}") from error


def by_step(data: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield each step, ascending, with its rows, of a sorted table of one model and source."""
    steps, first, counts = np.unique(data["step"].to_numpy(), return_index=True, return_counts=True)
    for step, start, count in zip(steps.tolist(), first.tolist(), counts.tolist(), strict=True):
        yield step, data.slice(start, count)


def drop_checkpoints(data: pa.Table, checkpoints: Collection[tuple[str, int]]) -> pa.Table:
    """Return `data` without the rows of the given (model, step) pairs."""
    if not checkpoints:
        return data
    pairs = zip(data["model"].to_pylist(), data["step"].to_pylist(), strict=True)
    return data.filter(pa.array([pair not in checkpoints for pair in pairs], pa.bool_()))


def joined(table: Table, parts: Iterable[pa.Table]) -> pa.Table:
    """Concatenate parts of one table and sort the rows; return an empty table if there are no parts."""
    return sort(table, pa.concat_tables([table.schema.empty_table(), *parts]))


def gather(table: Table, paths: Iterable[str | Path]) -> pa.Table:
    """Read and concatenate the files of one table and sort the rows."""
    return joined(table, (read(table, path) for path in paths))
