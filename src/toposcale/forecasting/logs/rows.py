"""Rows of a log, which every reader returns; series of its quantities, which every pass returns; columns of objects."""

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from toposcale.forecasting.logs.names import is_known, plain_name
from toposcale.forecasting.logs.trainer_states import SUMMARY

MAX_NAMES = 300
"""Names of which each gets a column; of more, only those that are read by name do."""

MAX_KEYS = 50_000
"""Names in the objects of a log beyond which they are keys of something else."""

TOO_MANY_NAMES = f"its objects have more than {MAX_KEYS:,} names; keep those of the steps and losses"

ALIGNED = (
    "a table whose columns are aligned by spaces or bars is not read; give it as CSV with the columns step and loss"
)
"""Refusal of a table that is no CSV."""

MAX_DEPTH = 8
"""Objects within each other whose entries are read."""


class LogError(ValueError):
    """Log without one reading, whose message follows the name of the file."""


class NotUnderstoodError(LogError):
    """Text log of which too little is understood, which a pattern of the user's may read."""


class StepsOfEpochsError(LogError):
    """Log whose steps start again in each epoch."""


@dataclass(frozen=True)
class Rows:
    """Rows of a log in the order of the file, which a reader returns.

    columns: arrays (rows,) under their own names: numbers, NaN where missing and infinite where not a number, or objects.
    form, file: format and name of the file. notes, reasons: on what was left out, and what makes a forecast uncertain.
    lines: line of each row, if known. program: training program of a text log. are_in_bits: whether it logs bits if its
    perplexity is 2^loss. metrics: columns that are other metrics than losses. needs_losses: whether it is refused without a
    step and a loss.
    """

    columns: Mapping[str, Any]
    form: str = ""
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    lines: np.ndarray | None = None
    program: str = ""
    are_in_bits: bool = False
    file: str = ""
    metrics: tuple[str, ...] = ()
    needs_losses: bool = True

    def place(self, row: int) -> str:
        """Return where a row stands, for a message."""
        return f"row {row + 1:,}" if self.lines is None else f"line {self.lines[row]:,}"


@dataclass(frozen=True)
class Series:
    """Step, losses and other quantities of the rows of a log; each pass over them returns others.

    values: float arrays (rows,) by quantity, `step` among them. names: their columns. others: columns that are not read.
    totals: last step of the training that each row states, (rows,). rows: where they were read from, and kept: which of
    those rows they are, (rows,). notes, reasons: as those of `Rows`.
    """

    rows: Rows
    values: Mapping[str, np.ndarray]
    names: Mapping[str, str]
    others: Mapping[str, np.ndarray]
    totals: np.ndarray
    kept: np.ndarray
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def steps(self) -> np.ndarray:
        """Steps, (rows,)."""
        return self.values["step"]

    @property
    def main(self) -> np.ndarray:
        """Training losses, or validation losses where there are none, (rows,)."""
        return self.of("loss" if "loss" in self.values else "validation_loss")

    def of(self, quantity: str) -> np.ndarray:
        """Return the values of a quantity (rows,), NaN if it is not logged."""
        return self.values.get(quantity, np.full(len(self.steps), np.nan))

    def others_called(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """Return the columns that are not read with one of these plain names, as numbers (rows,)."""
        return {name: numbers_or_nan(self.others[name]) for name in self.others if plain_name(name) in names}

    def changed(self, values: Mapping[str, np.ndarray], *notes: str) -> "Series":
        """Return these with other values of some quantities, and further notes; without a loss of which none is known."""
        values = {**self.values, **values}
        if "loss" in values and np.isnan(values["loss"]).all():
            del values["loss"]
        return replace(self, values=values, notes=(*self.notes, *notes))

    def keep(self, rows: np.ndarray) -> "Series":
        """Return the rows of these indices, in this order."""
        return replace(
            self,
            values={name: values[rows] for name, values in self.values.items()},
            others={name: np.asarray(values)[rows] for name, values in self.others.items()},
            totals=self.totals[rows],
            kept=self.kept[rows],
        )

    def place(self, row: int) -> str:
        """Return where a row stands, for a message."""
        return self.rows.place(int(self.kept[row]))


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
        if isinstance(value, dict) and name.count("/") < MAX_DEPTH:
            for inner, one in value.items():
                self._put(f"{name}/{inner}", index, one)
            return
        if len(self._stored) > MAX_KEYS:
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
        if len(names) > MAX_NAMES:
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
