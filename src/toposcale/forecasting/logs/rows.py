"""Rows of a log: what every reader returns and every pass over it changes, and how rows of objects become columns."""

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toposcale.forecasting.logs.names import is_known, plain_name
from toposcale.forecasting.logs.trainer_states import SUMMARY

MOST_NAMES = 300
"""Names of which each gets a column; of more, only those that are read by name do."""

MOST_KEYS = 50_000
"""Names in the objects of a log beyond which they are keys of something else."""

TOO_MANY_NAMES = f"its objects have more than {MOST_KEYS:,} names; keep those of the steps and losses"

MOST_NESTED = 8
"""Objects within each other whose entries are read."""


class LogError(ValueError):
    """Log without one reading, which any reader or pass may find; the message follows the name of the file."""


@dataclass
class Log:
    """Rows of a log in the order of the file: a reader makes it, and each pass over it changes what it holds.

    columns: arrays (rows,) under their own names: numbers, NaN where missing and infinite where not a number, or objects.
    form, file: format and name of the file. notes, low_confidence_reasons: on what was left out or changed. lines: line of
    each row, if known. headers: the rows before which a header stands, for each kind of header. program: training program
    of a text log. metrics: columns that are other metrics than losses. needs_losses: whether it is refused without a step
    and a loss. names, series: once they are chosen, the names of the columns and float arrays (rows,) by quantity;
    `columns` are the others then, and `totals` the total steps that each row states, (rows,).
    """

    columns: dict[str, Any]
    form: str = ""
    notes: list[str] = field(default_factory=list)
    low_confidence_reasons: list[str] = field(default_factory=list)
    lines: np.ndarray | None = None
    headers: Sequence[frozenset[int]] = ()
    program: str = ""
    file: str = ""
    metrics: Sequence[str] = ()
    needs_losses: bool = True
    names: dict[str, str] = field(default_factory=dict)
    series: dict[str, np.ndarray] = field(default_factory=dict)
    totals: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def steps(self) -> np.ndarray:
        """Steps, (rows,)."""
        return self.series["step"]

    @property
    def main(self) -> np.ndarray:
        """Training losses, or validation losses where there are none, (rows,)."""
        return self.values("loss" if "loss" in self.series else "validation_loss")

    def values(self, quantity: str) -> np.ndarray:
        """Return the values of a quantity (rows,), NaN if it is not logged."""
        return self.series[quantity] if quantity in self.series else np.full(len(self.steps), np.nan)

    def others(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """Return the columns beside the series with one of these plain names, as numbers (rows,)."""
        return {name: numbers_or_nan(self.columns[name]) for name in self.columns if plain_name(name) in names}

    def drop_empty_loss(self) -> None:
        """Drop a training loss of which nothing is known."""
        if np.isnan(self.values("loss")).all():
            self.series.pop("loss", None)

    def keep(self, rows: np.ndarray) -> None:
        """Keep the rows of these indices, in this order; headers stay before the rows that follow if it ascends."""
        self.series = {name: values[rows] for name, values in self.series.items()}
        self.columns = {name: np.asarray(values)[rows] for name, values in self.columns.items()}
        self.lines = None if self.lines is None else self.lines[rows]
        self.totals = self.totals[rows]
        self.headers = [frozenset(np.searchsorted(rows, [*before]).tolist()) for before in self.headers]

    def place(self, row: int) -> str:
        """Return where a row stands, for a message."""
        return f"row {row + 1:,}" if self.lines is None else f"line {self.lines[row]:,}"


def last_number(values: np.ndarray) -> int | None:
    """Return the last number above 0 of a column as an integer; None if it holds none."""
    known = values[np.isfinite(values) & (values > 0)]
    return int(known[-1]) if len(known) else None


class RowGatherer:
    """Columns of rows of which each has names of its own; memory grows with the values, not with rows x names."""

    def __init__(self) -> None:
        self.lines = array("i")
        self.n_others = 0
        self.notes: list[str] = []
        self._numbers: dict[str, tuple[Callable[[int], None], Callable[[float], None]]] = {}
        self._stored: dict[str, tuple[Any, Any]] = {}
        self._seen: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.lines)

    def add(self, row: Any, line: int = 0) -> None:
        """Add a row; those of a nested object get names such as `train/loss`, missing values are None.

        What is no object is counted, and the summary at the end of transformers' Trainer is noted: neither is a row.
        """
        if not isinstance(row, dict):
            self.n_others += 1
            return
        if SUMMARY in row:
            self.notes = ["the summary of the whole training was left out"]
            return
        index, numbers = len(self.lines), self._numbers
        self.lines.append(line)
        for name, value in row.items():
            if (value.__class__ is float or value.__class__ is int) and name in numbers:
                add_row, add_value = numbers[name]
                add_row(index)
                add_value(value)
            elif value is not None:
                self._put(name, index, value)

    def _put(self, name: str, index: int, value: Any) -> None:
        """Add a value of any type to the numbers of a name, or to its texts as long as it has no numbers."""
        if isinstance(value, dict) and name.count("/") < MOST_NESTED:
            for inner, one in value.items():
                self._put(f"{name}/{inner}", index, one)
            return
        if len(self._stored) > MOST_KEYS:
            raise LogError(TOO_MANY_NAMES)
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            if isinstance(value, str) and name not in self._numbers:
                rows, texts = self._stored.setdefault(name, (array("i"), []))
                rows.append(index)
                texts.append(self._seen.setdefault(value, value))
            return
        if name not in self._numbers:
            rows, values = self._stored[name] = (array("i"), array("d"))
            self._numbers[name] = rows.append, values.append
        add_row, add_value = self._numbers[name]
        add_row(index)
        add_value(number)

    def columns(self, named: Collection[str] = ()) -> dict[str, np.ndarray]:
        """Return the columns, (rows,) each: texts only where no row has a number."""
        names = [*self._stored]
        if len(names) > MOST_NAMES:
            names = [name for name in names if name in named or is_known(name)]
        columns = {}
        for name in names:
            rows, values = self._stored[name]
            if name in self._numbers:
                column, values = np.full(len(self), np.nan), np.array(values)
                values[np.isnan(values)] = np.inf  # what is there and not a number
            else:
                column = np.full(len(self), None, dtype=object)
            column[np.frombuffer(rows, dtype=np.int32)] = values
            columns[name] = column
        return columns


def as_numbers(values: Any) -> np.ndarray:
    """Return a column as numbers (rows,); raise TypeError or ValueError for others, also dates, which NumPy converts."""
    if (cells := np.asarray(values)).ndim != 1 or cells.dtype.kind not in "iufOSU":
        raise TypeError("not a column of numbers")
    return np.asarray(values, dtype=np.float64)


def numbers_or_nan(values: Any) -> np.ndarray:
    """Return a column as numbers (rows,), all NaN if it holds something else."""
    try:
        return as_numbers(values)
    except (TypeError, ValueError):
        return np.full(len(values), np.nan)


def known_cells(values: Any) -> np.ndarray:
    """Return where a column has a value, (rows,)."""
    values = np.asarray(values)
    return np.array([value is not None for value in values]) if values.dtype == object else values == values


def columns_of_entries(entries: Iterable[Mapping[str, Any]], named: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Return the columns of entries, one a row; named: those that are read whatever their number."""
    gathered = RowGatherer()
    for entry in entries:
        gathered.add(entry)
    return gathered.columns(named)


def half_written(line: str) -> str:
    """Return the note on a half-written last line."""
    return f"the last line, {line[:40]!r}, is half-written: it was dropped"
