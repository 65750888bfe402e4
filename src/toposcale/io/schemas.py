"""Every table of a run: what a row is, its columns and its key, as `schemas.csv` states them.

A table's name is the name of its file. In `schemas.csv` a row without a column says what a row of the table is; a column
without a type means what the first rows say, which are of no table; `key` numbers the columns that identify a row, and by
which rows are sorted.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd

ALL_LAYERS = "all"  # the `layer` of a row that describes the whole model
METRIC_SOURCE = "metric"  # the `source` where a table of analyses holds metrics and features
_TYPES = {"text": pa.string(), "count": pa.int64(), "flag": pa.bool_(), "number": pa.float64()}


class Column(NamedTuple):
    """Column of a table: name, type (of `_TYPES`) and meaning."""

    name: str
    type: str
    meaning: str


class Table(NamedTuple):
    """Schema of a table: name, meaning of a row, columns in order, and key columns (unique, and the sort order)."""

    name: str
    row_meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema."""
        return pa.schema([(column.name, _TYPES[column.type]) for column in self.columns])

    @property
    def names(self) -> list[str]:
        """Return the names of the columns, in order."""
        return [column.name for column in self.columns]

    def frame(self, rows: Iterable[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
        """Return rows as a data frame of exactly these columns, sorted by the key; absent columns hold missing values.

        Raise ValueError for a column that the table does not have.
        """
        import pandas as pd

        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
        if unknown := sorted(set(frame.columns) - set(self.names)):
            raise ValueError(f"{self.name}: unknown columns {', '.join(unknown)}")
        frame = frame.reindex(columns=self.names)
        for column in self.columns:
            values = frame[column.name]
            if column.type == "text":
                # Each distinct text is held in memory once: a table may name one task half a million times.
                codes, texts = pd.factorize(values)
                shared = np.append(np.asarray(texts, dtype=object), "")[codes]
                frame[column.name] = pd.Series(shared, frame.index, dtype=object)
            elif column.type == "number":
                frame[column.name] = values.astype("float64")
            else:  # the first two dtypes can hold a missing value
                kinds: Any = ("Int64", "boolean") if values.isna().any() else ("int64", "bool")
                frame[column.name] = values.astype(kinds[column.type == "flag"])
        return frame.sort_values(list(self.key), kind="stable").reset_index(drop=True)


def _read() -> dict[str, Table]:
    """Return the tables that `schemas.csv` states, by name."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        rows = {name: list(of_table) for name, of_table in groupby(csv.DictReader(file), itemgetter("table"))}
    shared = {row["column"]: row for row in rows.pop("")}
    return {name: _table(name, first["meaning"], columns, shared) for name, (first, *columns) in rows.items()}


def _table(name: str, row_meaning: str, rows: list[dict[str, str]], shared: Mapping[str, dict[str, str]]) -> Table:
    """Return a table from the rows of its columns; `shared` holds those of columns that mean the same in every table."""
    meant = {row["column"]: row if row["type"] else shared[row["column"]] for row in rows}
    columns = tuple(Column(column, row["type"], row["meaning"]) for column, row in meant.items())
    position = {int(row["key"]): row["column"] for row in rows if row["key"]}
    return Table(name, row_meaning, columns, tuple(position[number] for number in sorted(position)))


TABLES: dict[str, Table] = _read()
"""Every table by its name, in the order of docs/tables.md."""
