"""Building blocks of table schemas: columns with type and meaning, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd


class Column(NamedTuple):
    """Column of a table: Arrow type, name and meaning."""

    type: pa.DataType
    name: str
    meaning: str


# Columns of texts, integers, Booleans and floating-point numbers, by name and meaning.
text = partial(Column, pa.string())
count = partial(Column, pa.int64())
flag = partial(Column, pa.bool_())
number = partial(Column, pa.float64())


class Table(NamedTuple):
    """Schema of a table: meaning of a row, columns in order, key columns (unique, and the sort order), and name."""

    about: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    name: str = ""

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema."""
        return pa.schema([(column.name, column.type) for column in self.columns])

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
            if pa.types.is_string(column.type):
                # Each distinct text is held in memory once: a table may name one task half a million times.
                codes, texts = pd.factorize(values)
                shared = np.append(np.asarray(texts, dtype=object), "")[codes]
                frame[column.name] = pd.Series(shared, frame.index, dtype=object)
            elif pa.types.is_floating(column.type):
                frame[column.name] = values.astype("float64")
            else:  # the first two dtypes can hold a missing value
                kinds: Any = ("Int64", "boolean") if values.isna().any() else ("int64", "bool")
                frame[column.name] = values.astype(kinds[pa.types.is_boolean(column.type)])
        return frame.sort_values(list(self.key), kind="stable").reset_index(drop=True)


def table(about: str, key: tuple[Column, ...], *columns: Column) -> Table:
    """Return a table without a name; key columns that `columns` does not list come first."""
    leading = tuple(column for column in key if column not in columns)
    return Table(about, leading + columns, tuple(column.name for column in key))


def bounds(name: str, of: str = "its 95% interval") -> tuple[Column, Column]:
    """Return the columns of an interval, `{name}_low` and `{name}_high`."""
    return number(f"{name}_low", f"lower end of {of}"), number(f"{name}_high", f"upper end of {of}")


def interval(name: str, meaning: str) -> tuple[Column, Column, Column]:
    """Return three columns: a number and its 95% interval."""
    return number(name, meaning), *bounds(name)
