"""Text logs: the standard output of training programs.

Lines are read by their form, most of them a block at a time, by an expression of the form that most lines have. Rows are
made of the forms of one program: of an unknown one the training lines must have one form up to the loss. A loss without a
step has that of the line before or after it where a program is known to print it so.
"""

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from toposcale.forecasting.amounts import MIN_PARAMETERS
from toposcale.forecasting.logs.grammars import GRAMMARS
from toposcale.forecasting.logs.line_forms import ABBREVIATED, RANKS, SEVERAL, UNREAD, Kind, split_of_loss
from toposcale.forecasting.logs.names import COUNTERS, END, PARAMETERS, TEST, TRAINING, loss_name, names_step_and_loss
from toposcale.forecasting.logs.rows import ALIGNED, LogError, Rows, half_written
from toposcale.forecasting.logs.step_lines import GIVE_STEPS, NO_STEP, refuse_wrong_steps, with_steps_of_other_lines
from toposcale.forecasting.logs.text_lines import Lines, Reading, Readings, counter_in, gather, go_on_over_epochs
from toposcale.io.errors import counted

ANY = "an unknown program, with a step and a loss"

MAX_UNREAD_SHARE = 1 / 20
"""Largest share of the lines with a loss that may be of no known form."""

_OF_OTHERS = "of another kind"
"""Reason why lines are left out, beside those of the forms and of the steps."""

_DIVIDE = "they count {0}: divide these by the {0} of a step, and give a CSV with the columns step and loss"
OTHER_AXES = {
    r"\[\s*\d+/\d+ \(\d+%\)\]|^loss: \S+\s+\[\s*\d+/\d+\]$|\bsamples?\b(?!/)": _DIVIDE.format("samples"),
    r"\btokens?\b(?!/)": _DIVIDE.format("tokens"),
    r"\d\s?k(?:it\b|/\d)": "the progress bar abbreviates its steps (8.00kit): export the losses of the tracker as CSV",
}
"""Remedies for lines that count something else than steps, by a pattern of them."""


class NotUnderstoodError(LogError):
    """Text log of which too little is understood, which a pattern of the user's may read.

    content: the log. starts_again: whether its steps start again in each epoch.
    """

    content = b""
    starts_again = False


def read(content: bytes) -> Rows:
    """Read a text log; raise LogError if it holds no losses with steps, or too many lines that are not understood."""
    try:
        return _read(Lines.of(content))
    except NotUnderstoodError as error:
        error.content = content
        raise


def _read(lines: Lines) -> Rows:
    """Read the lines of a text log."""
    gathered = gather(lines)
    readings, notes, left_out = with_steps_of_other_lines(gathered.readings(), lines.n_rows)
    readings, of_launcher = _without_launcher(readings)
    refuse_wrong_steps(readings)
    program = _program(readings)
    readings, excluded = _understood(readings, program)
    _refuse_two_losses(readings, lines)
    _refuse_steps_of_epochs(readings)
    if not readings and any(map(names_step_and_loss, gathered.headers)):
        raise LogError(ALIGNED)
    reasons, on_left_out = _left_out(lines, readings, {**gathered.left_out, **left_out, **of_launcher, **excluded})
    columns, rows, own = _assembled(_with_common_counter(readings), lines.n_rows)
    facts = [fact for fact in gathered.facts if fact[1] != PARAMETERS or fact[2] >= MIN_PARAMETERS]
    columns |= _stated(facts, rows)
    head = f"read as a text log: {_n_rows(readings):,} of {lines.n_printed:,} lines are those of {program or ANY}"
    notes = [head, *([half_written(gathered.cut)] if gathered.cut else []), *on_left_out, *notes]
    notes += [
        f"line {lines.numbers(row):,} states {value:g} parameters, which make no language model: not read"
        for row, _, value in gathered.facts
        if (row, _, value) not in facts
    ][:1]
    columns, note = with_steps(columns, precedes=bool(program) and GRAMMARS[program].precedes)
    notes += note
    columns |= {"value": columns.pop("loss")} if program == "MLflow" else {}
    headers = tuple(
        frozenset(np.searchsorted(rows, [*before]).tolist())
        for before in gathered.headers.values()
        if len(before) <= 64
    )
    are_in_bits = bool(program) and GRAMMARS[program].in_bits
    return Rows(columns, "text log", tuple(notes), tuple(reasons), lines.numbers(own), headers, program, are_in_bits)


def _without_launcher(readings: Readings) -> tuple[Readings, dict[str, list[int]]]:
    """Return the readings but for those of a launcher whose lines alternate with those of the program that it launched.

    Return the rows that are left out, by reason, too.
    """
    for name in (name for name, grammar in GRAMMARS.items() if grammar.is_launcher):
        trained = [reading for reading in readings if name not in reading.form.programs]
        launched = [reading for reading in readings if reading not in trained]
        rows, of_training = (
            np.sort(np.concatenate([[], *(reading.own for reading in group if reading.kind is Kind.TRAINING)]))
            for group in (launched, trained)
        )
        turns = len(np.unique(np.searchsorted(of_training, rows)))
        if 2 * turns > min(len(rows), len(of_training)) > 0:
            return trained, {f"losses of {name}, beside those of its training": rows.astype(int).tolist()}
    return readings, {}


def _refuse_steps_of_epochs(readings: Readings) -> None:
    """Raise NotUnderstoodError if steps start again in each epoch whose length is stated, LogError if they may have."""
    stated = [reading for reading in readings if {"batches", END} & {*reading.form.names.values()}]
    for reading in (reading for reading in stated if reading.form.counts and "epoch" in reading.columns):
        epochs, steps = reading.columns["epoch"], reading.columns[counter_in(reading.columns)]
        if reading.kind is not Kind.TRAINING or np.any(epochs % 1):
            continue
        go_on = go_on_over_epochs(epochs, steps)
        if go_on is False:
            error = NotUnderstoodError("the steps start again in each epoch")
            error.starts_again = True
            raise error
        if go_on is None and epochs[0] > 1 and reading.form.counter == "batch" and not reading.form.total_is_known:
            raise LogError(
                f"whether the batches of epoch {epochs[0]:.0f} are counted over all epochs is unknown: give the log from "
                "its first epoch on, or a pattern with a step, or with epoch, batch and batches (--pattern)"
            )


def _refuse_two_losses(readings: Readings, lines: Lines) -> None:
    """Raise LogError if some steps have two losses of one name, such as those of an evaluation."""
    training = [r for r in readings if r.kind is Kind.TRAINING and r.form.counts and not RANKS & r.columns.keys()]
    for name in {name for reading in training for name in reading.columns if loss_name(name)}:
        named = [reading for reading in training if name in reading.columns]
        own = np.concatenate([reading.own for reading in named])
        steps = np.concatenate([reading.columns[counter_in(reading.columns)] for reading in named])
        losses = np.concatenate([reading.columns[name] for reading in named])
        own, steps, losses = (values[np.argsort(own, kind="stable")] for values in (own, steps, losses))
        again = np.flatnonzero((np.diff(steps) == 0) & (losses[1:] != losses[:-1])) + 1
        if 2 < len(again) < 0.2 * len(steps) and np.all(np.diff(steps) >= 0):
            raise LogError(
                f"{len(again):,} steps have two losses, the first in lines {lines.numbers(own[again[0] - 1]):,} and "
                f"{lines.numbers(own[again[0]]):,}; if one is of an evaluation, call it val_loss"
            )


def _program(readings: Readings) -> str:
    """Return the program whose grammar takes most rows, "" if it takes less than half of them."""
    counts: Counter[str] = Counter()
    for reading in readings:
        counts.update(dict.fromkeys(reading.form.programs, len(reading.rows)))
    best = max(counts, key=lambda name: counts[name], default="")
    return best if 2 * counts[best] >= max(_n_rows(readings), 1) else ""


def _understood(readings: Readings, program: str) -> tuple[Readings, dict[str, list[int]]]:
    """Return the lines that are read, with the losses of evaluations as such, and the rows of the others by reason.

    A mark of a split tells lines apart only if not all of them have it, and if most training lines have none.
    """
    readings = _with_evaluations(_with_marked_evaluations(readings), program)
    training = [reading for reading in readings if reading.kind is Kind.TRAINING]
    rows_of: Counter[str] = Counter()
    for reading in training:
        rows_of[reading.form.opening] += len(reading.rows)
    usual = max(rows_of, key=lambda opening: rows_of[opening], default="")
    group = [r for r in training if (program in r.form.programs if program else r.form.opening == usual)]
    whole = max(group, key=lambda reading: len(reading.rows), default=None)
    others = [r for r in training if r not in group or (r is not whole and _is_cut(r, whole))]
    several = [reading for reading in readings if reading.form.text and reading not in others]
    if len({reading.form.text for reading in several if reading.form.has_validation}) <= 1:
        several = []
    left_out = {
        reason: [row for reading in excluded for row in reading.own.tolist()]
        for reason, excluded in ((_OF_OTHERS, others), ("evaluations on several texts", several))
        if excluded
    }
    return [reading for reading in readings if reading not in others and reading not in several], left_out


def _with_marked_evaluations(readings: Readings) -> Readings:
    """Return the readings, as evaluations those of training lines that a word marks, if most are not marked."""
    common = frozenset.intersection(*(reading.form.marks for reading in readings)) if readings else frozenset()
    training = [reading for reading in readings if reading.kind is Kind.TRAINING]
    marked = [r for r in training if r.form.marks - common and not r.form.has_validation]
    if _n_rows(marked) > _n_rows([reading for reading in training if reading not in marked]):
        return readings
    return [
        _as_evaluation(reading, "test_" if reading.form.marks - common <= TEST else "validation_")
        if reading in marked
        else reading
        for reading in readings
    ]


def _as_evaluation(reading: Reading, prefix: str) -> Reading:
    """Return lines whose losses are those of an evaluation."""
    columns = {prefix * bool(loss_name(name)) + name: values for name, values in reading.columns.items()}
    return replace(reading, kind=Kind.EVALUATION, columns=columns)


def _with_evaluations(readings: Readings, program: str) -> Readings:
    """Return the readings, as evaluations the lines with losses of both splits that are not those of the training.

    Their training losses, which are separate estimates, are left out.
    """
    training = [reading for reading in readings if reading.kind is Kind.TRAINING]
    alone, both = ([r for r in training if r.form.has_validation is has] for has in (False, True))
    is_logged = any(program in reading.form.programs and not reading.form.is_evaluation for reading in both)
    if _n_rows(alone) <= _n_rows(both) or is_logged:
        return readings
    estimates = [reading for reading in both if not _go_on(reading, alone)]
    return [
        replace(
            reading,
            kind=Kind.EVALUATION,
            columns={name: reading.columns[name] for name in reading.columns if split_of_loss(name) is not TRAINING},
        )
        if reading in estimates
        else reading
        for reading in readings
    ]


def _go_on(reading: Reading, others: Readings) -> bool:
    """Return whether lines begin like others, at steps that those leave out: they are of the training, too."""
    alike = [other for other in others if other.form.opening == reading.form.opening and other.form.counts]
    steps = [other.columns[counter_in(other.columns)] for other in alike if reading.form.counts]
    return bool(steps) and not np.isin(reading.columns[counter_in(reading.columns)], np.concatenate(steps)).any()


def _is_cut(reading: Reading, whole: Reading | None) -> bool:
    """Return whether one or two lines end at their loss, where others go on."""
    return (
        whole is not None
        and len(reading.rows) <= 2
        and reading.form.ends_at_loss
        and whole.form.key.startswith(reading.form.key)
    )


def _left_out(lines: Lines, readings: Readings, rows_by_reason: dict[str, list[int]]) -> tuple[list[str], list[str]]:
    """Return what makes a forecast uncertain, and notes on the lines that are left out; refuse too many of them.

    readings: those that are read.
    """
    n_read, without_step = _n_rows(readings), rows_by_reason.pop(NO_STEP, [])
    if len(without_step) > n_read:
        text = lines.text(without_step[0])
        axis = next((what for axis, what in OTHER_AXES.items() if re.search(axis, text, re.I)), "")
        error = LogError if axis else NotUnderstoodError
        count = counted(len(without_step), "line has", "lines have")
        raise error(f"{count} a loss and no step; {axis or GIVE_STEPS}")
    unread = (UNREAD, SEVERAL, ABBREVIATED, _OF_OTHERS)
    causes = {row: reason for reason in unread for row in rows_by_reason.pop(reason, [])}
    missed = sorted([*causes, *without_step])
    notes = [
        f"{counted(len(rows), 'line was', 'lines were')} left out ({reason}), the first: {lines.quoted(min(rows))}"
        for reason, rows in rows_by_reason.items()
    ]
    count = f"{counted(len(missed), 'line with a loss was', 'lines with a loss were')} not understood, the first: "
    if len(missed) > MAX_UNREAD_SHARE * (n_read + len(missed)):
        cause = causes.get(missed[0], "")
        why = f" ({cause})" if cause in (SEVERAL, ABBREVIATED) else ""
        firsts = [reading.own[0] for reading in readings if reading.kind is Kind.TRAINING and cause == _OF_OTHERS]
        why += f" beside {lines.quoted(min(firsts))}: give the lines of one kind" if firsts else ""
        raise NotUnderstoodError(f"{count}{lines.quoted(missed[0])}{why}")
    if not n_read:
        raise NotUnderstoodError("; ".join(["no line with a step and a loss", *notes]))
    return [f"{count}line {lines.numbers(missed[0]):,}"] if missed else [], notes


def _with_common_counter(readings: Readings) -> Readings:
    """Return the readings with one name for the steps that count one thing: `step`, or that of lines with two counters."""
    counters = [[name for name in reading.columns if name in COUNTERS] for reading in readings]
    both = {name for names in counters if len(names) > 1 for name in names}
    in_forms = Counter(name for names in counters for name in names)
    best = max(sorted(both), key=lambda name: (in_forms[name], COUNTERS[name]), default="step")
    return [
        replace(reading, columns={best if name in names else name: reading.columns[name] for name in reading.columns})
        if len(names) == 1 and names[0] not in both
        else reading
        for reading, names in zip(readings, counters, strict=True)
    ]


def _n_rows(readings: Readings) -> int:
    return sum(len(reading.rows) for reading in readings)


def _assembled(readings: Readings, n: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return the columns of the readings, (rows,) each, which of n rows of the log they are, and where each was read."""
    own = np.full(n, -1)
    for reading in readings:
        own[reading.rows] = reading.own
    rows = np.flatnonzero(own >= 0)
    columns: dict[str, np.ndarray] = {}
    for reading in readings:
        at = np.searchsorted(rows, reading.rows)
        for name, values in reading.columns.items():
            columns.setdefault(name, np.full(len(rows), np.nan))[at] = values
    return columns, rows, own[rows]


def _stated(facts: Sequence[tuple[int, str, float]], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return a column of each fact: the last value that was stated, NaN where two were stated between the same rows."""
    columns: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(name for _, name, _ in facts):
        stated = [(int(np.searchsorted(rows, row)), value) for row, one, value in facts if one == name]
        columns[name] = np.full(len(rows), np.nan)
        for row in dict.fromkeys(row for row, _ in stated):
            values = {value for at, value in stated if at == row}
            columns[name][row:] = values.pop() if len(values) == 1 else np.nan
    return columns


def with_steps(columns: Mapping[str, np.ndarray], *, precedes: bool) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the columns, in which evaluations without a step have that of the row before, and a note.

    precedes: whether they are logged before the step that they belong to, and so have that of the row after them.
    """
    columns = dict(columns)
    counters = [name for name in columns if name in COUNTERS]
    for name, other in itertools.permutations(counters, 2):
        columns[name] = _filled_counter(columns[name], columns[other])
    has_step = ~np.all([np.isnan(columns[name]) for name in counters], axis=0) if counters else np.empty(0, bool)
    if has_step.all() or not has_step.any():
        return columns, []
    rows = np.flatnonzero(has_step)
    at = np.searchsorted(rows, np.arange(len(has_step))) - (not precedes)
    source = rows[np.clip(at, 0, len(rows) - 1)]
    for name in (name for name in (*counters, END, "epoch") if name in columns):
        columns[name] = np.where(has_step, columns[name], columns[name][source])
    place = "after" if precedes else "before"
    count = counted(int(np.sum(~has_step)), "validation loss has", "validation losses have")
    return columns, [f"{count} no step: that of the row {place} each was taken"]


def _filled_counter(counts: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return a counter (rows,), where only another one is stated in proportion from the row before that states both."""
    both, missing = np.flatnonzero(~np.isnan(counts + others)), np.flatnonzero(np.isnan(counts) & ~np.isnan(others))
    if len(both) < 2 or not len(missing):
        return counts
    advances = (np.abs(np.diff(values[both])).sum() for values in (counts, others))
    before = both[np.maximum(np.searchsorted(both, missing) - 1, 0)]
    filled = counts.copy()
    filled[missing] = np.round(counts[before] + (others[missing] - others[before]) * np.divide(*advances))
    return filled
