"""Reading and writing the tables of a run: sorted rows, atomic Parquet, the user's own tables.

A table is the same bytes for the same rows, whatever order they came in: rows are sorted by the key columns, the
schema is fixed, and the compression and its level are pinned here.
"""

import gzip
import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from toposcale.io import schemas
from toposcale.io.errors import WHEN_DAMAGED, UserError
from toposcale.io.files import atomic_write
from toposcale.io.table_schema import Table, renamed

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}


def from_rows(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as dictionaries -> an Arrow table of `table`'s schema, sorted by its key. None is a null."""
    return sort(table, pa.Table.from_pylist([dict(row) for row in rows], schema=table.schema))


def feature_rows(features: Mapping[str, Mapping[str, float]], *, model: str, step: int, source: str) -> pa.Table:
    """Features by layer and name, `features[layer][feature]`, of one checkpoint as a features table."""
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
    """Diagrams by layer and dimension, `diagrams[layer][dimension]` of shape (k, 2), as a diagrams table."""
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
    """`data` with its rows in the order of `table`'s key columns."""
    return data.sort_by([(name, "ascending") for name in table.key])


def write(data: pa.Table, path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write Parquet (zstd) to a temporary name, then rename: a file that is there is whole.

    `metadata` (configuration hash, seeds, versions) is stored in the schema, sorted by key.
    """
    stored = {key: str(value) for key, value in sorted((metadata or {}).items())}
    data = data.replace_schema_metadata(stored or None)
    with atomic_write(path) as temporary:
        pq.write_table(data, temporary, compression="zstd", compression_level=3, write_page_checksum=True)


def write_csv(data: pa.Table, path: str | Path) -> None:
    """The rows as CSV, for people and spreadsheets; written to a temporary name, then renamed.

    A spreadsheet runs a text that begins with = + - or @ as a formula: such a text has an apostrophe before it.
    """
    import pyarrow.compute as pc  # here, since it takes 0.3 s, and most jobs write no CSV

    for index, field in enumerate(data.schema):
        if field.type == pa.string():
            plain = pc.replace_substring_regex(data[index], "^([=+@\t\r-])", r"'\1")
            data = data.set_column(index, field, plain)
    with atomic_write(path) as temporary:
        csv.write_csv(data, temporary)


def read_checked(path: str | Path) -> pa.Table:
    """Read one Parquet file, its content verified by the checksums in it; a `UserError` names one that is damaged."""
    try:
        # Not `pq.read_table`: it imports pyarrow.dataset, and that pandas, 0.2 s in every job.
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            data = file.read()
        data.validate(full=True)
        if not all(name.isprintable() for name in data.schema.names):
            raise ValueError("the name of a column is damaged")
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: not a readable Parquet file ({reason}); {WHEN_DAMAGED}") from error
    if old := renamed(data.schema.names):
        raise UserError(f"{path}: written by an earlier version ({old}); delete it and run again")
    return data


def read(table: Table, path: str | Path) -> pa.Table:
    """Read one Parquet file of `table`'s schema; a `UserError` names a file that is damaged or of another kind."""
    data = read_checked(path)
    if data.schema.names != table.schema.names:
        raise UserError(f"{path}: columns {data.schema.names}, but a {table.name} table has {table.schema.names}")
    try:
        return data.cast(table.schema)
    except (pa.ArrowException, ValueError) as error:
        raise UserError(f"{path}: {str(error).splitlines()[0]}; {WHEN_DAMAGED}") from error


def read_metadata(path: str | Path) -> dict[str, str]:
    """What `write` stored beside the rows."""
    stored = pq.read_schema(path).metadata or {}
    return {key.decode(): value.decode() for key, value in stored.items() if key != b"ARROW:schema"}


def read_warnings(path: str | Path) -> list[dict[str, Any]]:
    """What `with_warnings` noted beside the rows of a table: rows for the warnings table, empty where there are none."""
    return json.loads(read_metadata(path).get("warnings", "[]"))


def with_warnings(metadata: Mapping[str, str], noted: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Metadata for `write` with rows for the warnings table: model, step (None: whole model), concerns, warning, remedy."""
    return {**metadata, **({"warnings": json.dumps([dict(row) for row in noted])} if noted else {})}


def read_any(path: str | Path) -> tuple[pa.Table, str]:
    """A Parquet or CSV file of the user's, and the name of the separator that its lines have ("" for Parquet).

    Parquet is known by its first bytes; a file may be compressed with gzip. A CSV file may be separated by comma, semicolon
    or tab: the one that its first line has most of. UserError: the file is missing or not readable.
    """
    path = Path(path)
    try:
        with open_plain_or_gzip(path) as file:
            content = file.read()
        if content.startswith(b"PAR1") or ".parquet" in path.suffixes[-2:]:
            return pq.ParquetFile(pa.BufferReader(content)).read(), ""
        head, first = (line.decode("utf-8", "replace") for line in [*content.split(b"\n", 2), b""][:2])
        if "\0" in head or "\ufffd" in head:
            raise UserError(f"{path}: not a text in UTF-8, so no CSV table")
        separator = max(_SEPARATORS, key=head.count)
        # Where the semicolon separates, the comma is usually the decimal point.
        decimal = "," if separator == ";" and "," in first else "."
        data = csv.read_csv(
            pa.BufferReader(content),
            parse_options=csv.ParseOptions(delimiter=separator),
            # "nan" is a number that went wrong, an empty field one that is not there.
            convert_options=csv.ConvertOptions(
                decimal_point=decimal, null_values=["", "null", "NULL", "NA", "N/A", "n/a", "#N/A", "None"]
            ),
        )
        return data, _SEPARATORS[separator]
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not a readable Parquet or CSV table ({str(error).splitlines()[0]})") from error


def open_plain_or_gzip(path: Path) -> BinaryIO:
    """A file of the user's to be read, with or without gzip around it."""
    with path.open("rb") as file:
        is_compressed = file.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if is_compressed else path.open("rb")


def read_user_table(table: Table, path: str | Path) -> pa.Table:
    """A Parquet or CSV file of the user's with the columns of `table`, in any order; a `UserError` says what is wrong."""
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
    """The rows of each step, ascending, of a table of one model and source whose rows are sorted."""
    steps, first, counts = np.unique(data["step"].to_numpy(), return_index=True, return_counts=True)
    for step, start, count in zip(steps.tolist(), first.tolist(), counts.tolist(), strict=True):
        yield step, data.slice(start, count)


def drop_checkpoints(data: pa.Table, checkpoints: Collection[tuple[str, int]]) -> pa.Table:
    """`data` without the rows of some (model, step)."""
    if not checkpoints:
        return data
    pairs = zip(data["model"].to_pylist(), data["step"].to_pylist(), strict=True)
    return data.filter(pa.array([pair not in checkpoints for pair in pairs], pa.bool_()))


def joined(table: Table, parts: Iterable[pa.Table]) -> pa.Table:
    """Parts of one table as one, its rows sorted; an empty table where there is no part."""
    return sort(table, pa.concat_tables([table.schema.empty_table(), *parts]))


def gather(table: Table, paths: Iterable[str | Path]) -> pa.Table:
    """Concatenate the files of one table and sort the rows."""
    return joined(table, (read(table, path) for path in paths))
