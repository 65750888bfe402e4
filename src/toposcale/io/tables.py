"""Read and write the tables of a run: sorted rows, atomic Parquet.

Equal rows give equal bytes in whatever order they came: rows are sorted by the key columns, the schema is fixed, and the
compression and its level are pinned here.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from toposcale.io import schemas
from toposcale.io.errors import WHEN_DAMAGED, UserError, as_user_error
from toposcale.io.files import atomic_write, regular_file
from toposcale.io.schemas import Table


def from_rows(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows as an Arrow table with the schema of `table`, sorted by its key; None becomes null."""
    rows = list(rows)
    return from_columns(table, {field.name: [row.get(field.name) for row in rows] for field in table.schema})


def from_columns(table: Table, columns: Mapping[str, list[Any] | np.ndarray]) -> pa.Table:
    """Return columns of equal length as `from_rows` returns rows: lists of anything, or arrays of numbers without nulls."""
    # Without the schema, with which `pa.table` cuts off the decimals of a number among counts.
    data = pa.table({name: columns[name] for name in table.names})
    arrays = [_cast(data[field.name], field) for field in table.schema]
    return sort(table, pa.Table.from_arrays(arrays, schema=table.schema))


def _cast(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Return a column with the type of a field. TypeError: text for a number, or a number for text."""
    if pa.types.is_string(values.type) != pa.types.is_string(field.type) and not pa.types.is_null(values.type):
        raise TypeError(f"{field.name} is {values.type}, not {field.type}")
    return values.cast(field.type, safe=not pa.types.is_floating(field.type))  # a large count is rounded to a number


def feature_rows(features: Mapping[str, Mapping[str, float]], *, model: str, step: int, source: str) -> pa.Table:
    """Return the features of one checkpoint, `features[layer][feature]`, as a features table."""
    identifiers = {"model": model, "step": step, "source": source}
    return from_rows(
        schemas.TABLES["features"],
        (
            {**identifiers, "layer": layer, "feature": feature, "value": float(value)}
            for layer, named in features.items()
            for feature, value in named.items()
        ),
    )


def diagram_rows(diagrams: Mapping[str, Sequence[np.ndarray]], *, model: str, step: int, source: str) -> pa.Table:
    """Return the diagrams of one checkpoint, `diagrams[layer][dimension]` (k, 2), as a diagrams table."""
    parts = [
        (layer, dimension, diagram)
        for layer, by_dimension in diagrams.items()
        for dimension, diagram in enumerate(by_dimension)
    ]
    # By columns, since a dict for each bar would take a tenth of the time of a job.
    bars = np.concatenate([np.empty((0, 2)), *(diagram for *_, diagram in parts)])
    columns: dict[str, list[Any] | np.ndarray] = {
        "model": [model] * len(bars),
        "step": [step] * len(bars),
        "source": [source] * len(bars),
        "layer": [layer for layer, _, diagram in parts for _ in range(len(diagram))],
        "dimension": [dimension for _, dimension, diagram in parts for _ in range(len(diagram))],
        "birth": bars[:, 0],
        "death": bars[:, 1],
    }
    return from_columns(schemas.TABLES["diagrams"], columns)


def sort(table: Table, data: pa.Table) -> pa.Table:
    """Return `data` sorted by the key columns of `table`."""
    return data.sort_by([(name, "ascending") for name in table.key])


def write(data: pa.Table, path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write Parquet (zstd) atomically; `metadata` (configuration hash, seeds ...) go into its schema, sorted by key."""
    stored = {key: str(value) for key, value in sorted((metadata or {}).items())}
    data = data.replace_schema_metadata(stored | {_CHECKSUM: _checksum(data, stored)})
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


_CHECKSUM = "sha256"
"""Key of the metadata whose value is the checksum of the rows and of the other metadata."""


def _checksum(data: pa.Table, metadata: Mapping[str, str]) -> str:
    """Return a hash of rows and metadata; unlike the checksums of its pages, that of a file knows an edited one."""
    checksum = hashlib.sha256(data.schema.remove_metadata().to_string().encode())
    checksum.update(json.dumps(dict(metadata), sort_keys=True).encode())
    for column in data.combine_chunks().columns:
        # What lies in memory under a null, and behind the last bit of a column, is anything.
        if column.null_count or pa.types.is_boolean(column.type):
            checksum.update(repr(column.to_pylist()).encode())
        else:
            for chunk in column.chunks:
                checksum.update(pa.record_batch([chunk], [""]).serialize())
    return checksum.hexdigest()


def _undamaged(path: str | Path) -> AbstractContextManager[None]:
    """Raise UserError for an unreadable file."""
    kinds = pa.ArrowException, OSError, ValueError
    return as_user_error(path, "not a readable Parquet file", kinds, remedy=WHEN_DAMAGED)


def read_checked(path: str | Path) -> pa.Table:
    """Read a Parquet file and verify its checksums; raise UserError if it is damaged."""
    with _undamaged(path):
        with pq.ParquetFile(regular_file(path), page_checksum_verification=True) as file:
            data, stored = file.read(), _stored(file.schema_arrow)
        data.validate(full=True)
        if _CHECKSUM in stored and stored.pop(_CHECKSUM) != _checksum(data, stored):
            raise ValueError("its checksum does not match")
        if not all(name.isprintable() for name in data.schema.names):
            raise ValueError("the name of a column is damaged")
    return data


def read(table: Table, path: str | Path) -> pa.Table:
    """Read a Parquet file with the schema of `table`; raise UserError if it is damaged or has another schema."""
    data = read_checked(path)
    if data.schema.names != table.schema.names:
        raise UserError(f"{path}: columns {data.schema.names}, but a {table.name} table has {table.schema.names}")
    with _undamaged(path):
        return data.cast(table.schema)


def read_metadata(path: str | Path) -> dict[str, str]:
    """Return the metadata that `write` stored; raise UserError if the file is damaged."""
    with _undamaged(path):
        return {key: value for key, value in _stored(pq.read_schema(path)).items() if key != _CHECKSUM}


def _stored(schema: pa.Schema) -> dict[str, str]:
    """Return the metadata of a file, with its checksum."""
    metadata = schema.metadata or {}
    return {key.decode(): value.decode() for key, value in metadata.items() if key != b"ARROW:schema"}


def read_warnings(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows for the warnings table that `with_warnings` stored in the metadata of a table."""
    return json.loads(read_metadata(path).get("warnings", "[]"))


def with_warnings(metadata: Mapping[str, str], warning_rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return metadata for `write` that also hold rows for the warnings table (see `_job.note` of the scripts)."""
    return {**metadata, **({"warnings": json.dumps([dict(row) for row in warning_rows])} if warning_rows else {})}


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


def concatenate(table: Table, parts: Iterable[pa.Table]) -> pa.Table:
    """Concatenate parts of one table and sort the rows; return an empty table if there are no parts."""
    return sort(table, pa.concat_tables([table.schema.empty_table(), *parts]))


def gather(table: Table, paths: Iterable[str | Path]) -> pa.Table:
    """Read and concatenate the files of one table and sort the rows."""
    return concatenate(table, (read(table, path) for path in paths))
