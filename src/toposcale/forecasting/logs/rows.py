"""Rows of a log, which every reader returns; series of its quantities, which every pass returns; labels of rows."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.logs.names import plain_name
from toposcale.io.errors import listed

_MISSING = ("None", "nan")


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


def half_written(line: str) -> str:
    """Return the note on a half-written last line."""
    return f"the last line, {line[:40]!r}, is half-written: it was dropped"


class Labels(NamedTuple):
    """A column that labels rows: its name, its distinct texts, and the index of the text of each row, -1 for none."""

    column: str
    texts: list[str]
    codes: np.ndarray

    @property
    def listed(self) -> str:
        """Some of the texts, for a message."""
        return listed(self.texts, 4)

    def are_side_by_side(self, steps: np.ndarray) -> bool:
        """Return whether labels share most of their steps; otherwise one continues another, as after a restart."""
        return len(np.unique(self.codes + 1j * steps)) > 1.5 * len(np.unique(steps))


def labels_of(columns: Mapping[str, Any], names: Collection[str]) -> Iterator[Labels]:
    """Yield the columns of these names, in any case, that have more than one distinct value."""
    for column, values in columns.items():
        if column.strip().lower() in names:
            cells = [str(cell) for cell in np.asarray(values).tolist()]
            distinct = dict.fromkeys(cell for cell in cells if cell not in _MISSING)
            code_of = {cell: code for code, cell in enumerate(distinct)}
            if len(code_of) > 1:
                texts = [cell.removesuffix(".0") for cell in code_of]
                yield Labels(column, texts, np.array([code_of.get(cell, -1) for cell in cells]))
