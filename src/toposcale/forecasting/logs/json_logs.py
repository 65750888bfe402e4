"""JSON logs: one object a line, a list of objects, or an object that holds lists or columns."""

import json
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from toposcale.forecasting.logs.names import (
    LAST_STEP,
    PARAMETERS,
    PER_STEP,
    TEST,
    VALIDATION,
    is_known,
    is_step_or_loss,
    loss_name,
    plain_name,
    split_of,
)
from toposcale.forecasting.logs.rows import LogError, Rows, half_written
from toposcale.forecasting.logs.trainer_states import FILE_NAME, SUMMARY, TrainerState, evaluated, float_or_none
from toposcale.io.errors import listed
from toposcale.io.files import parse_json

SUFFIXES = (".json", ".jsonl", ".ndjson")
_TRAINER_KEYS = ("step", "loss", "grad_norm", "learning_rate", "lr")
FORM = "JSON, one object a row"
_NO_ROWS = f"neither a list of objects with a step and a loss nor the state of a Trainer ({FILE_NAME})"
_BETWEEN = re.compile(r"[\s,]*+(?=[^\]])")


MAX_NAMES = 300
"""Names of which each gets a column; of more, only those that are read by name do."""

MAX_KEYS = 50_000
"""Names in the objects of a log beyond which they are keys of something else."""

TOO_MANY_NAMES = f"its objects have more than {MAX_KEYS:,} names; keep those of the steps and losses"

MAX_DEPTH = 8
"""Objects within each other whose entries are read."""


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

        What is not an object is counted, and the summary at the end of transformers' Trainer is noted: neither is a row.
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


def columns_of_entries(entries: Iterable[Mapping[str, Any]], named: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Return the columns of entries, one a row; named: those that are read whatever their number."""
    gathered = RowGatherer()
    for entry in entries:
        gathered.add(entry)
    return gathered.columns(named)


def is_json(start: str) -> bool:
    """Return whether a text begins with a JSON object or a list of them; a text log may begin with a bracket, too."""
    return bool(re.match(r"\[\s*(?:\{\s*\"|\]|$)", start) or re.match(r"\{\s*(?:\"|\}|$)", start))


def read(path: Path, content: bytes, suffix: str, named: Collection[str] = ()) -> Rows | None:
    """Read the rows of a JSON file; None for a text log. Raise LogError if it is damaged, or holds no list of rows."""
    first, _, rest = content.lstrip()[:65536].partition(b"\n")
    is_printed = first.startswith((b"{'", b"[{'"))  # a dictionary as Python prints it
    if is_printed or (suffix not in SUFFIXES and not first.startswith((b"{", b"["))):
        return None
    rows, text = RowGatherer(), content.decode("utf-8", "replace")
    is_lines = bool(rest.strip()) and isinstance(_whole(first.decode("utf-8", "replace")), dict)
    document = None if is_lines or first.startswith(b"[") else _whole(text)
    if isinstance(document, dict):
        if len(document) > MAX_KEYS:
            raise LogError(TOO_MANY_NAMES)
        for entry in _entries(path, document, suffix):
            rows.add(entry)
    else:
        end = _add_values(text, rows, is_lines=is_lines)
        damaged = text[end:].strip().strip(",]").strip()
        is_empty = not len(rows) + rows.n_others
        if (damaged or is_empty) and suffix not in SUFFIXES and not any(map(loss_name, rows.columns())):
            return None
        if damaged:
            is_last = "\n" not in damaged if is_lines else damaged.count("{") == 1
            if not len(rows) or not is_last or not damaged.startswith("{"):
                raise _damage(path, text, text.index(damaged, end), suffix, is_lines=is_lines)
            rows.notes.append(half_written(" ".join(damaged.split())))
    if not len(rows) and not rows.notes:
        raise LogError(_NO_ROWS)
    if rows.n_others:
        n = len(rows) + rows.n_others
        rows.notes.append(f"{rows.n_others} of {n:,} entries are not objects: they were left out")
    lines, columns = np.array(rows.lines), rows.columns(named)
    if not named and not any(map(is_step_or_loss, columns)) and (name := _field_of_text(columns)):
        raise LogError(f"its field {name} holds a text log; take it out: jq -r .{name} {path.name} > text.log")
    return Rows(columns, FORM, tuple(rows.notes), lines=lines if lines.any() else None)


def rows_of_state(state: TrainerState) -> Rows:
    """Return the log of transformers' Trainer, whose losses are means since the entry before, and its other metrics."""
    history = state.content["log_history"]
    entries = [entry for entry in history if isinstance(entry, dict)]
    entries = [entry for entry in entries if (step := float_or_none(entry.get("step"))) is not None and step == step]
    rate = "learning_rate" if any("learning_rate" in entry for entry in entries) else "lr"
    evaluations = [*map(evaluated, entries)]
    rows = [
        {rate if name == "lr" else name: entry[name] for name in _TRAINER_KEYS if name in entry} | metrics
        for entry, metrics in zip(entries, evaluations, strict=True)
    ]
    metrics = tuple(dict.fromkeys(name for row in evaluations for name in row if name != "validation_loss"))
    notes = state.notes
    if left_out := len(history) - len(entries):
        notes = (*notes, f"{left_out} of {len(history):,} entries have no step: they were left out")
    columns = columns_of_entries(rows, (*_TRAINER_KEYS, *metrics))
    return Rows(columns, "state of a Trainer", notes, metrics=metrics, needs_losses=False)


def _whole(text: str) -> Any:
    """Return the value of a text that is JSON, None of another."""
    try:
        return parse_json(text)
    except ValueError:
        return None


def _add_values(text: str, rows: RowGatherer, *, is_lines: bool) -> int:
    """Add the objects of a list, or one after another, as rows; return the end of the last one.

    The next one is damaged or, in lines, no object or not on a line of its own.
    """
    decoder, line = json.JSONDecoder(), 1
    end = text.index("[") + 1 if text.lstrip().startswith("[") else 0
    while following := _BETWEEN.match(text, end):
        n_newlines = text.count("\n", end, following.end())
        try:
            value, after = decoder.raw_decode(text, following.end())
        except (ValueError, RecursionError):
            break
        if is_lines and not (isinstance(value, dict) and (n_newlines or not end)):
            break
        line += n_newlines
        rows.add(value, line if is_lines else 0)
        line += text.count("\n", following.end(), after)
        end = after
    return end


def _damage(path: Path, text: str, start: int, suffix: str, *, is_lines: bool) -> LogError:
    """Return the message on the damage of a file that begins at a character."""
    number, line = text.count("\n", 0, start) + 1, text[text.rfind("\n", 0, start) + 1 :].partition("\n")[0].strip()
    if not is_lines:
        return LogError(
            f"not JSON from line {number:,} on: {text[start : start + 60]!r}; mend that object, or delete it"
        )
    fault = "holds two objects and is not JSON" if "}{" in line.replace(" ", "") else "is not JSON"
    remedy = f"mend the line, or delete it: sed {number}d {path.name} > mended{suffix}"
    return LogError(f"line {number:,} {fault}, one object a line: {line[:60]!r}; {remedy}")


def _entries(path: Path, content: dict[str, Any], suffix: str) -> Iterator[Any]:
    """Yield the entries of the only list of rows in an object, with the facts beside it; an object without one is a row."""
    lists = _lists(content)
    if not lists and suffix == ".json":
        raise LogError(_NO_ROWS)
    lists = {name: rows for name, rows in lists.items() if any(map(_has_loss, rows))} or lists or {"": [content]}
    if len(lists) > 1:
        named = min(lists, key=lambda name: split_of(name) in (VALIDATION, TEST))
        example = f"jq .{named} {path.name} > one.json"
        raise LogError(f"{len(lists)} lists hold rows ({listed(lists, 6)}); give one: {example}")
    facts = {name: value for name, value in content.items() if plain_name(name) in (*LAST_STEP, PER_STEP, PARAMETERS)}
    for row in next(iter(lists.values())):
        yield facts | row if isinstance(row, dict) else row


def _lists(content: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the lists of rows in an object, also as columns, by their paths; those inside its objects if it has none."""
    lists = {name: rows for name, rows in content.items() if isinstance(rows, list)}
    lists = {name: rows for name, rows in lists.items() if any(isinstance(row, dict) for row in rows)}
    if not lists and (rows := _rows_of_columns(content)):
        return {"": rows}
    if not lists:
        inner = {name: _lists(value) for name, value in content.items() if isinstance(value, dict)}
        lists = {f"{name}.{at}".rstrip("."): rows for name, found in inner.items() for at, rows in found.items()}
    return lists


def _rows_of_columns(content: Mapping[str, Any]) -> list[Any]:
    """Return the rows of an object of columns; [] for another object. Raise LogError if their lengths differ."""
    columns = {name: values for name, values in content.items() if isinstance(values, list) and len(values) > 1}
    lengths = {name: len(columns[name]) for name in columns if is_step_or_loss(name)}
    if len(columns) < 2 or not lengths:
        return []
    if len(set(lengths.values())) > 1:
        named = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise LogError(f"its lists are not of one length ({named}); give each row its step and losses")
    columns = {name: values for name, values in columns.items() if len(values) == next(iter(lengths.values()))}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _has_loss(row: Any) -> bool:
    return isinstance(row, dict) and any(loss_name(name) or isinstance(row[name], dict) for name in row)


def _field_of_text(columns: Mapping[str, np.ndarray]) -> str:
    """Return the field of the objects that holds the lines of a text log, as containers write it; "" without one."""
    texts = {name: column[:2000] for name, column in columns.items() if column.dtype == object}
    return next((name for name in texts if any("loss" in text.lower() for text in texts[name] if text)), "")
