"""What a table's schema is made of: columns with type and meaning, the columns that many tables share, and the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd

ALL_LAYERS = "all"
"""Value of the `layer` column in a row that describes the whole model."""

METRIC_SOURCE = "metric"
"""Value of the `source` column where a table of analyses holds metrics beside features."""


@dataclass(frozen=True)
class Column:
    """Name, Arrow type and meaning of a column."""

    name: str
    type: pa.DataType
    meaning: str


@dataclass(frozen=True)
class Table:
    """A named table: what a row is, its columns in order, and the columns that identify and sort a row."""

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


class Definition(NamedTuple):
    """A table that has no name yet."""

    about: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]


def table(about: str, key: tuple[Column, ...], *columns: Column) -> Definition:
    """The definition of a table; columns of the key that `columns` does not list come first."""
    leading = tuple(column for column in key if column not in columns)
    return Definition(about, leading + columns, tuple(column.name for column in key))


def text(name: str, meaning: str) -> Column:
    """A column of texts."""
    return Column(name, pa.string(), meaning)


def count(name: str, meaning: str) -> Column:
    """A column of whole numbers."""
    return Column(name, pa.int64(), meaning)


def flag(name: str, meaning: str) -> Column:
    """A column of true and false."""
    return Column(name, pa.bool_(), meaning)


def number(name: str, meaning: str) -> Column:
    """A column of floating-point numbers."""
    return Column(name, pa.float64(), meaning)


def interval(name: str, meaning: str) -> tuple[Column, Column, Column]:
    """Three columns: a number, and its 95% bounds `{name}_low` and `{name}_high`."""
    return number(name, meaning), number(f"{name}_low", LOW.meaning), number(f"{name}_high", HIGH.meaning)


# Columns that mean the same in every table that has them.
MODEL = text("model", "name of the model")
STEP = count("step", "training steps that were done")
SOURCE = text("source", "where the feature comes from: weights, embeddings, landscape, gradients, trajectory")
LAYER = text("layer", f'weight matrix or hidden state; "{ALL_LAYERS}" is the whole model')
FEATURE = text("feature", "name of the feature (docs/method.md)")
METRIC = text("metric", "name of the metric, for example validation_loss")
QUESTION = text("question", "question of the verdicts (docs/statistics.md)")
N_MODELS = count("n_models", "models that entered")
N_PARAMETERS = count("n_parameters", "trained parameters")
FRACTION = number("fraction", "share of the training that was read, 0 to 1")
DIMENSION = count("dimension", "homology dimension")
BIRTH = number("birth", "filtration value at which the class is born")
DEATH = number("death", "filtration value at which the class dies")
LOW = number("low", "lower end of its 95% interval")
HIGH = number("high", "upper end of its 95% interval")
REASON = text("reason", "why a number is missing; empty where none is")
FORECAST_INTERVALS = (
    LOW,
    HIGH,
    number(
        "calibrated_to",
        "coverage of the interval, calibrated on other finished runs; empty for an interval of the method",
    ),
    number("own_low", "lower end of the method's own 95% interval, before calibration"),
    number("own_high", "upper end of that interval"),
)
