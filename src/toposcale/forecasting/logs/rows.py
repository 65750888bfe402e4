"""Rows of a log as every reader returns them, and how they are gathered."""

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.logs.names import is_known

MOST_NAMES = 300
"""Names of which each gets a column; of more, only those that are read by name do."""

MOST_NESTED = 8
"""Objects within each other whose entries are read."""


class LogRows(NamedTuple):
    """Rows of a log in the order of the file.

    columns: arrays (rows,) under their own names: numbers, NaN where missing and infinite where not a number, or objects.
    form: format of the file. notes, low_confidence_reasons: on what was left out. lines: line of each row, if known.
    headers: the rows before which a header stands, for each kind of header. program: training program of a text log.
    metrics: columns that are other metrics than losses. needs_losses: whether a log without a step and a loss is refused.
    """

    columns: Mapping[str, Any]
    form: str
    notes: tuple[str, ...] = ()
    low_confidence_reasons: tuple[str, ...] = ()
    lines: np.ndarray | None = None
    headers: Sequence[frozenset[int]] = ()
    program: str = ""
    metrics: Sequence[str] = ()
    needs_losses: bool = True


class RowGatherer:
    """Columns of rows of which each has names of its own; memory grows with the values, not with rows x names."""

    def __init__(self) -> None:
        self.lines = array("i")
        self._numbers: dict[str, tuple[Callable[[int], None], Callable[[float], None]]] = {}
        self._stored: dict[str, tuple[Any, Any]] = {}
        self._seen: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.lines)

    def add(self, row: Mapping[str, Any], line: int) -> None:
        """Add a row; those of a nested object get names such as `train/loss`, missing values are None."""
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


def rows_of(
    entries: Iterable[Mapping[str, Any]], form: str, notes: Iterable[str] = (), named: Collection[str] = ()
) -> LogRows:
    """Return entries, one a row, as the rows of a log."""
    gathered = RowGatherer()
    for entry in entries:
        gathered.add(entry, 0)
    return LogRows(gathered.columns(named), form, tuple(notes))


def location(row: int, lines: np.ndarray | None) -> str:
    """Return where a row stands, for a message; lines: line of each row, if known."""
    return f"row {row + 1:,}" if lines is None else f"line {lines[row]:,}"


def half_written(line: str) -> str:
    """Return the note on a half-written last line."""
    return f"the last line, {line[:40]!r}, is half-written: it was dropped"
