"""What a table's schema is made of: columns with type and meaning, the columns that many tables share, and the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd


class Column(NamedTuple):
    """Arrow type, name and meaning of a column."""

    type: pa.DataType
    name: str
    meaning: str


# Columns of texts, of whole numbers, of true and false, and of floating-point numbers, by name and meaning.
text = partial(Column, pa.string())
count = partial(Column, pa.int64())
flag = partial(Column, pa.bool_())
number = partial(Column, pa.float64())


RENAMED = {
    "cell": "configuration",
    "n_cells": "n_configurations",
    "freedom": "degrees_of_freedom",
    "by_chance": "null_expectation",
    "innovation_p": "residual_p",
    **{f"innovation_correlation{end}": f"residual_correlation{end}" for end in ("", "_lowest", "_highest")},
    **{f"loss_given_up{end}": f"regret{end}" for end in ("", "_low", "_high")},
}
"""Columns of version 0.2 and what they are called now; CHANGELOG.md has the same list."""


def renamed(names: Iterable[str]) -> str:
    """Return which of the column names are old and what they are called now; "" if none is old."""
    return ", ".join(f"column {name} is called {RENAMED[name]} now" for name in names if name in RENAMED)


class Table(NamedTuple):
    """A table: what a row is, its columns in order, the columns that identify and sort a row, and its name."""

    about: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    name: str = ""

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
        if unknown := sorted(set(frame.columns) - set(self.names)):
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
            else:  # the first two know a missing value
                kinds: Any = ("Int64", "boolean") if values.isna().any() else ("int64", "bool")
                frame[column.name] = values.astype(kinds[pa.types.is_boolean(column.type)])
        return frame.sort_values(list(self.key), kind="stable").reset_index(drop=True)


def table(about: str, key: tuple[Column, ...], *columns: Column) -> Table:
    """A table that has no name yet; columns of the key that `columns` does not list come first."""
    leading = tuple(column for column in key if column not in columns)
    return Table(about, leading + columns, tuple(column.name for column in key))


def bounds(name: str, of: str = "its 95% interval") -> tuple[Column, Column]:
    """The ends of an interval, `{name}_low` and `{name}_high`."""
    return number(f"{name}_low", f"lower end of {of}"), number(f"{name}_high", f"upper end of {of}")


def interval(name: str, meaning: str) -> tuple[Column, Column, Column]:
    """Three columns: a number, and its 95% bounds."""
    return number(name, meaning), *bounds(name)
