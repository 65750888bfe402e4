"""Text logs: the standard output of training programs.

Lines are read by form, most of them a block at a time, by the expression of the form that most lines have. Rows are made
of the lines of one program: of an unknown one the training lines must have one form up to the loss. A loss
without a step has that of a heading, or of the progress bar, where its program is known to print them so.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, count
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.amounts import MIN_PARAMETERS
from toposcale.forecasting.logs.grammars import GRAMMARS, MARK, fact_of, fit_of, plain_content
from toposcale.forecasting.logs.line_forms import (
    BATCH,
    MAX_NUMBERS,
    NOT_UNDERSTOOD,
    NUMBER,
    SEVERAL,
    Form,
    Reading,
    form_of,
    key_of,
)
from toposcale.forecasting.logs.names import COUNTERS, END, PARAMETERS, TEST, TRAINING, loss_name
from toposcale.forecasting.logs.rows import LogError, NotUnderstoodError, Rows, half_written
from toposcale.forecasting.logs.trainer_bars import GIVE_STEPS, with_steps_of_bars
from toposcale.io.errors import counted

FORM = "text log"
ANY = "an unknown program, with a step and a loss"

MAX_LINE_BYTES = 16384
"""Length beyond which a line is counted and not parsed: that of a printed configuration or text, not of a loss."""

MAX_FORMS = 10_000
"""Forms that are kept: a log has tens, a text that is not a log one a line."""

BLOCK_BYTES = 1 << 18
"""Bytes that are read at once, a few thousand lines."""

MIN_MILLISECONDS = 1e12
"""Milliseconds until September 2001, before any metric of MLflow."""

TOO_LONG = f"more than {MAX_LINE_BYTES:,} bytes"
ABBREVIATED = "a number is abbreviated, such as 1.2k, or has separated thousands, which a pattern reads"

_PLAIN_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan|inf|n/a|none", re.IGNORECASE)
_BAR = re.compile(rb"%\|[^|\r\n]*+\|")  # progress bar of tqdm
_DICTIONARY = re.compile(rb"\{\s*+(?:['\"][^{}\n]*+\n\s*+)++(?:['\"][^{}\n]*+)?\}")
"""Dictionary or JSON object that is printed over several lines, whose loss may stand before its step."""

MAX_UNREAD_SHARE = 1 / 20
"""Largest share of the lines with a loss that may be of no known form."""

OF_OTHERS, NO_STEP = "of another kind", "no step"

_DIVIDE = "they count {0}: divide these by the {0} of a step, and give a CSV with the columns step and loss"
OTHER_AXES = {
    r"\[\s*\d+/\d+ \(\d+%\)\]|^loss: \S+\s+\[\s*\d+/\d+\]$|\bsamples?\b(?!/)": _DIVIDE.format("samples"),
    r"\btokens?\b(?!/)": _DIVIDE.format("tokens"),
    r"^\W*epoch\W*\d+": "give each its step, such as epoch x steps of an epoch",
    r"\d\s?k(?:it\b|/\d)": "the progress bar abbreviates its steps (8.00kit): export the losses of the tracker as CSV",
}
"""Remedies for lines that count something else than steps, by a pattern of them."""

Columns = Mapping[str, np.ndarray]
LeftOut = dict[str, list[int]]
"""Rows that are left out, by reason."""


def read(content: bytes) -> Rows:
    """Read a text log; raise LogError if it holds no losses with steps, or too many lines that are not understood."""
    lines = Lines.of(content)
    gathered = _gather(lines)
    every = gathered.readings()
    bars = [reading for reading in every if reading.form.is_bar]
    readings, notes = with_steps_of_bars([reading for reading in every if not reading.form.is_bar], bars)
    readings, left_out = _selected(readings)
    program = _program(readings)
    rows, columns, without_step, on_steps = _with_steps(readings, precedes=bool(program) and GRAMMARS[program].precedes)
    left_out[NO_STEP] = without_step.tolist()
    reasons, on_left_out = _reported(lines, readings, len(rows), {**gathered.left_out, **left_out})
    facts, on_facts = _facts(gathered, lines, rows)
    head = f"read as a text log: {len(rows):,} lines are those of {program or ANY}"
    notes = (head, *([half_written(gathered.cut)] if gathered.cut else []), *on_left_out, *on_facts, *notes, *on_steps)
    columns = {"value" if program == "MLflow" and name == "loss" else name: columns[name] for name in columns} | facts
    are_in_bits = bool(program) and GRAMMARS[program].in_bits
    return Rows(columns, FORM, notes, reasons, lines.numbers(rows), program, are_in_bits)


class Lines(NamedTuple):
    """Lines of a text log without colours and without what containers put before them; a redrawn one is several rows.

    content: rows that end with newlines. n_rows: their number. line_of: number of the line of each row, None if each row is
    a line. is_whole: whether the last line ended with a newline.
    """

    content: bytes
    n_rows: int
    line_of: np.ndarray | None
    is_whole: bool

    @classmethod
    def of(cls, content: bytes) -> "Lines":
        """Return the lines of a log; a dictionary that is printed over several lines is on its first one."""
        if content.lstrip().startswith(b"[{'"):  # a list of transformers' dictionaries, as Python prints it
            content = content.replace(b"}, {", b"}\n{")
        if b"{" in content:
            content = _DICTIONARY.sub(
                lambda match: b" ".join(match[0].split()) + b"\n" * match[0].count(b"\n"), content
            )
        is_whole, line_of = content.endswith((b"\n", b"\r")), None
        content = plain_content(content)
        if b"\r" in content:
            characters = np.frombuffer(content, np.uint8)
            ends = characters[(characters == ord("\n")) | (characters == ord("\r"))]
            line_of = 1 + np.cumsum(ends == ord("\n")) - (ends == ord("\n"))
            content = content.replace(b"\r", b"\n")
        content = _BAR.sub(b"%|", content) if b"%|" in content else content
        return cls(content, content.count(b"\n"), line_of, is_whole)

    def numbers(self, rows: Any) -> Any:
        """Return the numbers of the lines of rows, or of one row."""
        return rows + 1 if self.line_of is None else self.line_of[rows]

    def text(self, row: int) -> str:
        """Return the start of a row."""
        start = 0
        for _ in range(row):
            start = self.content.index(b"\n", start) + 1
        return self.content[start : start + 2000].decode("utf-8", "replace").split("\n")[0].strip()

    def quoted(self, row: int) -> str:
        """Return where a row stands and how it begins, for a message."""
        return f"line {self.numbers(row):,} ({self.text(row)[:80]!r})"


@dataclass
class _Gathered:
    """Content of the lines of a log, gathered while they are read.

    values: row and numbers of single lines by form; blocks: tables of them. left_out: rows by reason. facts: row, name and
    value. cut: the last line, if half-written.
    """

    forms: dict[str, Form] = field(default_factory=dict)
    values: dict[Form, list[list[float]]] = field(default_factory=lambda: defaultdict(list))
    blocks: dict[Form, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    left_out: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    facts: list[tuple[int, str, float]] = field(default_factory=list)
    cut: str = ""

    def readings(self) -> list[Reading]:
        """Return the lines of each form; none of a form whose three numbers do not begin with a time."""
        readings = []
        for form in self.forms.values():
            names = [*form.names.values()]
            table = np.concatenate(
                [np.reshape(self.values.get(form, ()), (-1, 1 + len(names))), *self.blocks.get(form, ())]
            )
            table = table[np.argsort(table[:, 0], kind="stable")]
            columns = {name: table[:, at].copy() for at, name in enumerate(names, 1)}
            if len(table) and not np.any(columns.pop("milliseconds", MIN_MILLISECONDS) < MIN_MILLISECONDS):
                readings.append(Reading(form, table[:, 0].astype(int), columns))
        return readings


def _gather(lines: Lines) -> _Gathered:
    """Read the lines, block after block; a last one without a newline is kept if it is whole."""
    gathered, form, row, start = _Gathered(), Form(""), 0, 0
    n_rows = lines.n_rows - (not lines.is_whole)
    while row < n_rows:
        size = BLOCK_BYTES if form.key else BLOCK_BYTES >> 3
        end = lines.content.rfind(b"\n", start, start + size) + 1 or lines.content.index(b"\n", start) + 1
        block, start, counts = lines.content[start:end], end, Counter[Form]()
        if form.key:
            *numbers, others = zip(*form.expression.findall(block), strict=True)
            counts[form] = _add_block(gathered, form, row, numbers)
            others = others if counts[form] else tuple(block.split(b"\n")[:-1])
        else:
            others = tuple(block.split(b"\n")[:-1])
        for at, line in compress(zip(count(row), others, strict=False), others):
            if at < n_rows and (read := _add_line(gathered, at, line)):
                counts[read] += 1
        row += len(others)
        form = max((one for one in counts if one.key.count(MARK) < MAX_NUMBERS), key=counts.__getitem__, default=form)
    if not lines.is_whole:
        _add_last(gathered, lines)
    return gathered


def _add_block(gathered: _Gathered, form: Form, row: int, numbers: Sequence[Sequence[bytes]]) -> int:
    """Add the lines of a block that have the numbers of a form, and return how many they are; row: that of its first."""
    is_of_form = [*map(bool, numbers[0])]
    at = np.flatnonzero(is_of_form)
    try:
        columns = [np.fromiter(map(float, compress(texts, is_of_form)), float, len(at)) for texts in numbers]
    except ValueError:  # digits that are not a number
        return 0
    gathered.blocks[form].append(np.column_stack([at + row, *columns]))
    return len(at)


def _add_line(gathered: _Gathered, row: int, raw: bytes) -> Form | None:
    """Read a line by its form; return it if it is that of a row."""
    if len(raw) > MAX_LINE_BYTES:
        gathered.left_out[TOO_LONG].append(row)
        return None
    line = _decoded(raw)
    key = key_of(line)
    form = gathered.forms.get(key)
    if form is None:
        is_full = len(gathered.forms) >= MAX_FORMS  # too many to know those of all
        form = Form(key, reason=NOT_UNDERSTOOD if "loss" in line.lower() else "") if is_full else form_of(line)
        gathered.forms |= {} if is_full else {key: form}
    if not form.is_read:
        if fact := fact_of(line):
            gathered.facts.append((row, *fact))
        elif form.reason:
            gathered.left_out[form.reason].append(row)
        return None
    texts = [number[0].strip() for number in NUMBER.finditer(line)]
    values = [_number(texts[at]) for at in form.names]
    if any(value is None and _is_needed(name) for value, name in zip(values, form.names.values(), strict=True)):
        gathered.left_out[ABBREVIATED].append(row)
        return None
    gathered.values[form].append([row, *(np.nan if value is None else value for value in values)])
    return form


def _add_last(gathered: _Gathered, lines: Lines) -> None:
    """Read a last line without a newline if it has the whole form of others, or ends as a grammar's lines do."""
    line = lines.content[lines.content.rfind(b"\n", 0, -1) + 1 : -1]
    key = key_of(_decoded(line[:MAX_LINE_BYTES]))
    read = [known for known, form in gathered.forms.items() if form.is_read or form.reason]
    before = [text for text in lines.content[-4096:-1].split(b"\n")[1:-1] if key_of(_decoded(text)) == key]
    is_long_enough = not key.endswith(MARK) or any(len(text.split()[-1]) <= len(line.split()[-1]) for text in before)
    is_whole = key in read and is_long_enough
    if is_whole or not read or key.endswith(("}", "]")) or (key.endswith(("|", ")", "%")) and fit_of(key)):
        _add_line(gathered, lines.n_rows - 1, line)
    elif MARK in key or "loss" in key.lower():
        gathered.cut = line.decode("utf-8", "replace")


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace(MARK, " ")


def _number(text: str) -> float | None:
    """Return a number of a log: infinite for NaN, NaN where nothing was measured; None for one with a unit."""
    if not _PLAIN_NUMBER.fullmatch(text):
        return None
    if text.lower() in ("n/a", "none"):
        return np.nan
    value = float(text)
    return np.inf if value != value else value


def _is_needed(name: str) -> bool:
    """Return whether a line without a number of this name is not read."""
    return name in COUNTERS or loss_name(name) is not None


def _program(readings: Sequence[Reading]) -> str:
    """Return the program whose grammar takes most rows, "" if it takes less than half of them."""
    counts: Counter[str] = Counter()
    for reading in readings:
        counts[reading.form.program] += len(reading.rows)
    best = max(counts, key=lambda name: counts[name], default="")
    return best if 2 * counts[best] >= counts.total() else ""


def _selected(readings: Sequence[Reading]) -> tuple[list[Reading], LeftOut]:
    """Return the lines of one training, with the losses of evaluations as such, and the rows of the others by reason."""
    readings, of_launcher = _without_launcher(readings)
    headings = [reading for reading in readings if not reading.splits]
    readings = _with_evaluations(_with_marked_evaluations([one for one in readings if one.splits]))
    training = [reading for reading in readings if reading.is_training]
    rows_of: Counter[str] = Counter()
    for reading in training:
        rows_of[reading.form.program or reading.form.opening] += len(reading.rows)
    usual = max(rows_of, key=lambda opening: rows_of[opening], default="")
    group = [one for one in training if usual in (one.form.program, one.form.opening)]
    whole = max(group, key=lambda reading: len(reading.rows), default=None)
    others = [one for one in training if one not in group or (whole and one is not whole and _is_cut(one, whole))]
    several = [reading for reading in readings if reading.form.text and reading not in others]
    several = several if len({reading.form.text for reading in several}) > 1 else []
    doubtful = {name for reading in readings for name in reading.form.other_counters}  # they count something else
    kept = [one for one in readings if one not in others and one not in several]
    kept = [one.without("step", END) if one.form.counter in doubtful else one for one in kept]
    left_out = {OF_OTHERS: others, "evaluations on several texts": several, **of_launcher}
    rows = {reason: [row for one in excluded for row in one.rows.tolist()] for reason, excluded in left_out.items()}
    return [*kept, *headings], {reason: sorted(of_reason) for reason, of_reason in rows.items() if of_reason}


def _without_launcher(readings: Sequence[Reading]) -> tuple[list[Reading], dict[str, list[Reading]]]:
    """Return the lines without those of a launcher that states the losses of the program that it launched again."""
    launched = [one for one in readings if one.form.program and GRAMMARS[one.form.program].is_launcher]
    trained = [one for one in readings if one not in launched]
    if launched and any(one.is_training for one in trained):
        return trained, {f"losses of {launched[0].form.program}, beside those of its training": launched}
    return [*readings], {}


def _with_marked_evaluations(readings: Sequence[Reading]) -> list[Reading]:
    """Return the lines, as evaluations those whose losses a word such as `valid` precedes that some lines lack."""
    common = frozenset.intersection(*(reading.form.marks for reading in readings)) if readings else frozenset()
    result = []
    for reading in readings:
        marks = reading.form.marks - common
        if marks and reading.splits == {TRAINING}:
            prefix = "test_" if marks <= TEST else "validation_"
            columns = {prefix * bool(loss_name(name)) + name: values for name, values in reading.columns.items()}
            reading = replace(reading, columns=columns)
        result.append(reading)
    return result


def _with_evaluations(readings: Sequence[Reading]) -> list[Reading]:
    """Return the lines without the training losses of evaluations, which are separate estimates, as nanoGPT prints them.

    They are those of lines with a validation loss where most lines have none, unless these are lines of the training too:
    they begin like the others, at steps of their own.
    """
    both = [reading for reading in readings if TRAINING in reading.splits and len(reading.splits) > 1]
    alone = [reading for reading in readings if reading.splits == {TRAINING}]
    if sum(len(one.rows) for one in alone) <= sum(len(one.rows) for one in both):
        return [*readings]
    result = []
    for reading in readings:
        if reading in both and not _goes_on(reading, alone):
            losses = {name: loss for name in reading.columns if (loss := loss_name(name))}
            reading = reading.without(*(name for name, loss in losses.items() if loss.split is TRAINING))
        result.append(reading)
    return result


def _goes_on(reading: Reading, others: Sequence[Reading]) -> bool:
    """Return whether lines begin like others, at steps that those leave out."""
    alike = [one.columns["step"] for one in others if one.form.opening == reading.form.opening and one.form.counter]
    return bool(alike) and not np.isin(reading.columns.get("step", np.nan), np.concatenate(alike)).any()


def _is_cut(reading: Reading, whole: Reading) -> bool:
    """Return whether one or two lines end at their loss, where others go on."""
    form = reading.form
    return len(reading.rows) <= 2 and form.ends_at_loss and whole.form.key.startswith(form.key)


def _with_steps(
    readings: Sequence[Reading], *, precedes: bool
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray, tuple[str, ...]]:
    """Return the rows with a loss and their columns, the rows of losses without a step, and a note.

    A loss below a heading has the step of that; an evaluation without one that of the row before. precedes: whether
    evaluations are logged before the step that they belong to, and so have that of the row after them.
    """
    rows = np.sort(np.concatenate([np.empty(0, int), *(reading.rows for reading in readings)]))
    columns = {"step": np.full(len(rows), np.nan)}
    has_loss, is_evaluation = np.zeros((2, len(rows)), dtype=bool)
    for reading in readings:
        at = np.searchsorted(rows, reading.rows)
        has_loss[at], is_evaluation[at] = bool(reading.splits), bool(reading.splits) and not reading.is_training
        for name, values in reading.columns.items():
            columns.setdefault(name, np.full(len(rows), np.nan))[at] = values
    missing, stated = np.isnan(columns["step"]), np.flatnonzero(~np.isnan(columns["step"]))
    are_headings = not has_loss.all()
    if len(stated):
        at = np.searchsorted(stated, np.arange(len(rows))) - (not precedes)
        source = stated[np.clip(at, 0, len(stated) - 1)]
        filled = missing & (is_evaluation | (are_headings & (at >= 0)))
        for name in {"step", END, "epoch"} & columns.keys():
            columns[name] = np.where(filled, columns[name][source], columns[name])
    n, place = int(np.sum(missing & is_evaluation)), "after" if precedes else "before"
    count = counted(n, "validation loss has", "validation losses have")
    note = f"{count} no step: that of the row {place} each was taken"
    has_step = ~np.isnan(columns["step"])
    kept = has_loss & has_step
    columns = {name: values[kept] for name, values in columns.items()}
    return rows[kept], columns, rows[has_loss & ~has_step], (note,) if n and not are_headings else ()


def _reported(
    lines: Lines, readings: Sequence[Reading], n_read: int, rows_by_reason: LeftOut
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what makes a forecast uncertain, and notes on the lines that are left out; refuse too many of them."""
    without_step = rows_by_reason.pop(NO_STEP)
    if len(without_step) > n_read:
        text = lines.text(without_step[0])
        axis = next((what for axis, what in OTHER_AXES.items() if re.search(axis, text, re.I)), "")
        error = LogError if axis else NotUnderstoodError
        count = counted(len(without_step), "line has", "lines have")
        raise error(f"{count} a loss and no step; {axis or GIVE_STEPS}")
    unread = (NOT_UNDERSTOOD, SEVERAL, ABBREVIATED, OF_OTHERS)
    causes = {row: reason for reason in unread for row in rows_by_reason.pop(reason, [])}
    missed = sorted([*causes, *without_step])
    notes = tuple(
        f"{counted(len(rows), 'line was', 'lines were')} left out ({reason}), the first: {lines.quoted(min(rows))}"
        for reason, rows in rows_by_reason.items()
    )
    count = f"{counted(len(missed), 'line with a loss was', 'lines with a loss were')} not understood, the first: "
    if len(missed) > MAX_UNREAD_SHARE * (n_read + len(missed)):
        cause = causes.get(missed[0], "")
        why = f" ({cause})" if cause in (SEVERAL, ABBREVIATED) else ""
        firsts = [reading.rows[0] for reading in readings if reading.is_training and cause == OF_OTHERS]
        why += f" next to {lines.quoted(min(firsts))}: give the lines of one kind" if firsts else ""
        raise NotUnderstoodError(f"{count}{lines.quoted(missed[0])}{why}")
    if not n_read:
        raise NotUnderstoodError("; ".join(["no line with a step and a loss", *notes]))
    for reading in readings:
        epochs = reading.columns.get("epoch", np.zeros(1))
        if reading.form.counter == BATCH and epochs[0] > 1 and not np.any(epochs % 1):
            raise LogError(
                f"whether the batches of epoch {epochs[0]:.0f} are counted over all epochs is unknown: give the log from "
                "its first epoch on, or a pattern with a step, or with epoch, batch and batches (--pattern)"
            )
    return (f"{count}line {lines.numbers(missed[0]):,}",) if missed else (), notes


def _facts(gathered: _Gathered, lines: Lines, rows: np.ndarray) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Return a column of each fact: the last value that was stated, NaN where two were stated between the same rows."""
    columns: dict[str, np.ndarray] = {}
    stated: dict[tuple[str, int], set[float]] = {}
    notes = []
    for row, name, value in gathered.facts:
        if name == PARAMETERS and value < MIN_PARAMETERS:
            notes.append(
                f"line {lines.numbers(row):,} states {value:g} parameters, which make no language model: not read"
            )
        else:
            stated.setdefault((name, int(np.searchsorted(rows, row))), set()).add(value)
    for (name, at), values in stated.items():
        columns.setdefault(name, np.full(len(rows), np.nan))[at:] = values.pop() if len(values) == 1 else np.nan
    return columns, tuple(notes[:1])
