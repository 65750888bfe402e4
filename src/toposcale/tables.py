"""The tables that every producer writes and every analysis reads: schemas, sorting, atomic Parquet.

A table is the same bytes for the same rows, whatever order they came in: rows are sorted by the key columns, the
schema is fixed, and the compression and its level are pinned here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike
from pyarrow import csv

from toposcale.errors import UserError
from toposcale.files import written

_NUMPY_TYPES = {pa.int64(): np.int64, pa.float64(): np.float64}

ALL_LAYERS = "all"
"""Value of the `layer` column in a row that describes the whole model."""


@dataclass(frozen=True)
class Table:
    """A named table: its columns in order, and the leading columns that identify and sort a row."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]


def _table(name: str, columns: Mapping[str, pa.DataType], key: Sequence[str]) -> Table:
    return Table(name, pa.schema(list(columns.items())), tuple(key))


_RUN = {"model": pa.string(), "step": pa.int64()}

TRAINING = _table(
    "training",
    {
        "step": pa.int64(),
        "loss": pa.float64(),
        "gradient_norm": pa.float64(),
        "learning_rate": pa.float64(),
    },
    ["step"],
)
FEATURES = _table(
    "features",
    {**_RUN, "source": pa.string(), "layer": pa.string(), "feature": pa.string(), "value": pa.float64()},
    ["model", "step", "source", "layer", "feature"],
)
DIAGRAMS = _table(
    "diagrams",
    {
        **_RUN,
        "source": pa.string(),
        "layer": pa.string(),
        "dimension": pa.int64(),
        "birth": pa.float64(),
        "death": pa.float64(),
    },
    ["model", "step", "source", "layer", "dimension", "birth", "death"],
)
METRICS = _table(
    "metrics", {**_RUN, "metric": pa.string(), "value": pa.float64()}, ["model", "step", "metric"]
)
VECTORS = _table(
    "vectors",
    {**_RUN, "source": pa.string(), "vector": pa.string(), "index": pa.int64(), "value": pa.float64()},
    ["model", "step", "source", "vector", "index"],
)
MODELS = _table(
    "models",
    {
        "model": pa.string(),
        "family": pa.string(),
        "entry": pa.string(),
        "seed": pa.int64(),
        "n_parameters": pa.int64(),
        "d_model": pa.int64(),
        "n_layers": pa.int64(),
        "n_heads": pa.int64(),
        "tokens_per_step": pa.int64(),
        "final_step": pa.int64(),
    },
    ["n_parameters", "model"],
)
BY_NAME = {table.name: table for table in (TRAINING, FEATURES, DIAGRAMS, METRICS, VECTORS, MODELS)}


def from_rows(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as dictionaries -> an Arrow table of `table`'s schema, sorted by its key. None is a null."""
    rows = list(rows)
    columns = {name: [row[name] for row in rows] for name in table.schema.names}
    if any(value is None for column in columns.values() for value in column):
        return sort(table, pa.table(columns, schema=table.schema))
    return from_columns(table, columns)


def from_columns(table: Table, columns: Mapping[str, ArrayLike]) -> pa.Table:
    """Columns (n,) by name, without nulls -> an Arrow table of `table`'s schema, sorted by its key.

    It is put together from buffers, since pyarrow's own constructors import pandas: 0.2 s in every job.
    """
    values = {name: np.asarray(columns[name]) for name in table.schema.names}
    order = np.lexsort([values[name] for name in reversed(table.key)])
    arrays = [_arrow_array(values[field.name][order], field.type) for field in table.schema]
    return pa.Table.from_arrays(arrays, schema=table.schema)


def _arrow_array(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    if kind == pa.string():
        texts = [str(value).encode() for value in values]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        buffers = [ends, b"".join(texts)]
    else:
        buffers = [np.ascontiguousarray(values, _NUMPY_TYPES[kind])]
    return pa.Array.from_buffers(kind, len(values), [None, *map(pa.py_buffer, buffers)])


def feature_rows(
    features: Mapping[str, Mapping[str, float]], *, model: str, step: int, source: str
) -> pa.Table:
    """Features by layer and name, `features[layer][feature]`, of one checkpoint as a features table."""
    where = {"model": model, "step": step, "source": source}
    return from_rows(
        FEATURES,
        (
            {**where, "layer": layer, "feature": feature, "value": float(value)}
            for layer, named in features.items()
            for feature, value in named.items()
        ),
    )


def diagram_rows(
    diagrams: Mapping[str, Sequence[np.ndarray]], *, model: str, step: int, source: str
) -> pa.Table:
    """Diagrams by layer and dimension, `diagrams[layer][dimension]` of shape (k, 2), as a diagrams table."""
    parts = [
        (layer, dimension, diagram)
        for layer, by_dimension in diagrams.items()
        for dimension, diagram in enumerate(by_dimension)
        if len(diagram)
    ]
    lengths = [len(diagram) for _, _, diagram in parts]
    bars = np.concatenate([np.empty((0, 2)), *(diagram for _, _, diagram in parts)])
    columns = {
        "model": np.full(len(bars), model),
        "step": np.full(len(bars), step),
        "source": np.full(len(bars), source),
        "layer": np.repeat([layer for layer, _, _ in parts], lengths),
        "dimension": np.repeat([dimension for _, dimension, _ in parts], lengths),
        "birth": bars[:, 0],
        "death": bars[:, 1],
    }
    return from_columns(DIAGRAMS, columns)


def sort(table: Table, data: pa.Table) -> pa.Table:
    """`data` with its rows in the order of `table`'s key columns."""
    return data.sort_by([(name, "ascending") for name in table.key])


def write(data: pa.Table, path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write Parquet (zstd) to a temporary name, then rename: a file that is there is whole.

    `metadata` (configuration hash, seeds, versions) is stored in the schema, sorted by key.
    """
    stored = {key: str(value) for key, value in sorted((metadata or {}).items())}
    data = data.replace_schema_metadata(stored or None)
    with written(path) as temporary:
        pq.write_table(data, temporary, compression="zstd", compression_level=3)


def write_csv(data: pa.Table, path: str | Path) -> None:
    """The rows as CSV, for people and spreadsheets; written to a temporary name, then renamed."""
    with written(path) as temporary:
        csv.write_csv(data, temporary)


def read(table: Table, path: str | Path) -> pa.Table:
    """Read one Parquet file of `table`'s schema; a `UserError` names a file that is damaged or of another kind."""
    try:
        data = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: not a readable Parquet file ({reason}); delete it and run again") from error
    if data.schema.names != table.schema.names:
        raise UserError(
            f"{path}: columns {data.schema.names}, but a {table.name} table has {table.schema.names}"
        )
    return data.cast(table.schema)


def read_metadata(path: str | Path) -> dict[str, str]:
    """What `write` stored beside the rows."""
    stored = pq.read_schema(path).metadata or {}
    return {key.decode(): value.decode() for key, value in stored.items() if key != b"ARROW:schema"}


def read_columns(
    path: str | Path,
    required: Sequence[str],
    optional: Sequence[str] = (),
    other_names: Mapping[str, str] | None = None,
) -> pa.Table:
    """Columns of a Parquet or CSV file of the user's, the `required` ones and those of the `optional` that it has.

    `other_names` are common names of a column, by which it is found too. A `UserError` says what is wrong.
    """
    try:
        data = csv.read_csv(path) if Path(path).suffix == ".csv" else pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"{path}: not a readable Parquet or CSV table ({str(error).splitlines()[0]})"
        ) from error
    known = {**(other_names or {}), **{name: name for name in (*required, *optional)}}
    data = data.rename_columns([known.get(name, name) for name in data.schema.names])
    names = [name for name in (*required, *optional) if name in data.schema.names]
    missing = [name for name in required if name not in names]
    if missing:
        raise UserError(f"{path}: no column {', '.join(missing)}; it needs {', '.join(required)}")
    repeated = [name for name in names if data.schema.names.count(name) > 1]
    if repeated:
        raise UserError(f"{path}: more than one column {repeated[0]}")
    return data.select(names)


def read_user_table(table: Table, path: str | Path) -> pa.Table:
    """A Parquet or CSV file of the user's with the columns of `table`, in any order; a `UserError` says what is wrong."""
    data = read_columns(path, table.schema.names)
    try:
        return data.cast(table.schema)
    except (pa.ArrowException, ValueError) as error:
        raise UserError(f"{path}: {str(error).splitlines()[0]}") from error


def without(data: pa.Table, checkpoints: Collection[tuple[str, int]]) -> pa.Table:
    """`data` without the rows of some (model, step)."""
    if not checkpoints:
        return data
    pairs = zip(data["model"].to_pylist(), data["step"].to_pylist(), strict=True)
    return data.filter(pa.array([pair not in checkpoints for pair in pairs], pa.bool_()))


def gather(table: Table, paths: Iterable[str | Path]) -> pa.Table:
    """Concatenate the files of one table and sort the rows."""
    parts = [read(table, path) for path in paths]
    return sort(table, pa.concat_tables(parts) if parts else table.schema.empty_table())
