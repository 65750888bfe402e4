"""Every table of a run: its columns with type and meaning, and the columns that identify and sort its rows.

docs/tables.md is generated from here (`make reference`). A table's name is the name of its file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from toposcale.io import analysis_table_definitions, table_definitions

if TYPE_CHECKING:
    import pandas as pd

ALL_LAYERS = "all"
"""Value of the `layer` column in a row that describes the whole model."""

METRIC_SOURCE = "metric"
"""Value of the `source` column where a table of analyses holds metrics beside features."""

_TYPES = {"text": pa.string(), "count": pa.int64(), "flag": pa.bool_(), "number": pa.float64()}

_COMMON = {
    "model": ("text", "name of the model"),
    "step": ("count", "training steps that were done"),
    "source": ("text", "where the feature comes from: weights, embeddings, landscape, gradients, trajectory"),
    "layer": ("text", f'weight matrix or hidden state; "{ALL_LAYERS}" is the whole model'),
    "feature": ("text", "name of the feature (docs/method.md)"),
    "metric": ("text", "name of the metric, for example validation_loss"),
    "question": ("text", "question of the verdicts (docs/statistics.md)"),
    "n_models": ("count", "models that entered"),
    "n_parameters": ("count", "trained parameters"),
    "fraction": ("number", "share of the training that was read, 0 to 1"),
    "dimension": ("count", "homology dimension"),
    "birth": ("number", "filtration value at which the class is born"),
    "death": ("number", "filtration value at which the class dies"),
    "low": ("number", "lower end of its 95% interval"),
    "high": ("number", "upper end of its 95% interval"),
    "calibrated_to": (
        "number",
        "coverage of the interval, calibrated on other finished runs; empty for an interval of the method",
    ),
    "own_low": ("number", "lower end of the method's own 95% interval, before calibration"),
    "own_high": ("number", "upper end of that interval"),
    "reason": ("text", "why a number is missing; empty where none is"),
}
"""Columns that mean the same in every table."""


@dataclass(frozen=True)
class Column:
    """Name, Arrow type and meaning of a column."""

    name: str
    type: pa.DataType
    meaning: str


@dataclass(frozen=True)
class Table:
    """A named table: what a row is, its columns in order, and the leading columns that identify and sort a row."""

    name: str
    about: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return pa.schema([(column.name, column.type) for column in self.columns])

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [column.name for column in self.columns]

    def frame(self, rows: Iterable[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
        """Rows as a data frame of exactly these columns, sorted by the key; a column without values is missing.

        ValueError: a column that the table does not have.
        """
        import pandas as pd

        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
        unknown = sorted(set(frame.columns) - set(self.names))
        if unknown:
            raise ValueError(f"{self.name}: unknown columns {', '.join(unknown)}")
        frame = frame.reindex(columns=self.names)
        for column in self.columns:
            values = frame[column.name]
            if pa.types.is_string(column.type):
                # Every distinct text once in memory: a table may name one task half a million times.
                codes, texts = pd.factorize(values)
                shared = np.append(np.asarray(texts, dtype=object), "")[codes]
                frame[column.name] = pd.Series(shared, frame.index, dtype=object)
            elif pa.types.is_floating(column.type):
                frame[column.name] = values.astype("float64")
            elif values.isna().any():  # the kinds of pandas that know a missing value
                frame[column.name] = values.astype("Int64" if pa.types.is_integer(column.type) else "boolean")
            else:
                frame[column.name] = values.astype("int64" if pa.types.is_integer(column.type) else "bool")
        return frame.sort_values(list(self.key), kind="stable").reset_index(drop=True)


def _parsed(text: str) -> dict[str, Table]:
    """The tables of `table_definitions` and `analysis_table_definitions`."""
    found = {}
    for block in text.strip().split("\n\n"):
        head, *lines, last = block.splitlines()
        name, about = head.split(": ", 1)
        columns = tuple(column for line in lines for column in _columns(line.split(maxsplit=2)))
        found[name] = Table(name, about, columns, tuple(last.split()[2:]))
    return found


def _columns(words: list[str]) -> list[Column]:
    """The columns of one line."""
    if all(word in _COMMON for part in words for word in part.split()):
        names = " ".join(words).split()
        return [Column(name, _TYPES[_COMMON[name][0]], _COMMON[name][1]) for name in names]
    name, kind, meaning = words
    if kind != "interval":
        return [Column(name, _TYPES[kind], meaning)]
    ends = [Column(f"{name}_{end}", _TYPES["number"], _COMMON[end][1]) for end in ("low", "high")]
    return [Column(name, _TYPES["number"], meaning), *ends]


TABLES = _parsed(table_definitions.DEFINITIONS) | _parsed(analysis_table_definitions.DEFINITIONS)
"""Every table by its name, in the order of docs/tables.md."""


def reference() -> str:
    """docs/tables.md: every table, what a row is, its columns with type and meaning."""
    lines = [
        "# Tables",
        "",
        "Written by `make reference` from `table_definitions.py` and `analysis_table_definitions.py` in "
        "`src/toposcale/io`; change these, not this page.",
        "Tables lie in `results/{run}/tables/` as Parquet, the analyses as CSV too. Columns in **bold** identify a row.",
    ]
    for table in TABLES.values():
        lines += ["", f"## {table.name}", "", f"{table.about.capitalize()}.", ""]
        lines += ["| column | type | meaning |", "| --- | --- | --- |"]
        for column in table.columns:
            name = f"**`{column.name}`**" if column.name in table.key else f"`{column.name}`"
            kind = next(word for word, one in _TYPES.items() if one == column.type)
            lines.append(f"| {name} | {kind} | {column.meaning} |")
    return "\n".join(lines) + "\n"
