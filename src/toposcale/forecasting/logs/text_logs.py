"""Text logs: the standard output of training programs.

The lines of each form are read alike (`text_lines`), and rows are made of those of one program: of an unknown one the
training lines must have one form up to the loss.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from toposcale.forecasting.logs.grammars import GRAMMARS, MARK
from toposcale.forecasting.logs.line_forms import RANKS, SEVERAL, UNREAD, Form, Kind, split_of_loss
from toposcale.forecasting.logs.names import COUNTERS, END, PARAMETERS, PER_STEP, TEST, TRAINING, loss_name
from toposcale.forecasting.logs.rows import LogError, Rows, half_written
from toposcale.forecasting.logs.step_lines import (
    GIVE_STEPS,
    NO_STEP,
    are_proportional,
    bar_follows,
    give_steps,
    stated_facts,
    step_lines,
)
from toposcale.forecasting.logs.text_lines import ABBREVIATED, Lines, LinesByReason
from toposcale.io.errors import counted

ANY = "an unknown program, with a step and a loss"

MOST_UNREAD = 1 / 20
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

_DICTIONARY = re.compile(rb"\{\s*+(?:['\"][^{}\n]*+\n\s*+)++(?:['\"][^{}\n]*+)?\}")
"""Dictionary or JSON object that is printed over several lines, whose loss may stand before its step."""


class NotUnderstoodError(LogError):
    """Text log of which too little is understood, which a pattern of the user's may read; content: the log."""

    content = b""


def read(content: bytes) -> Rows:
    """Read a text log; raise LogError if it holds no losses with steps, or too many lines that are not understood."""
    try:
        return _read(content)
    except NotUnderstoodError as error:
        error.content = content
        raise


def _read(content: bytes) -> Rows:
    """Read a text log."""
    if content.lstrip().startswith(b"[{'"):  # a list of transformers' dictionaries, as Python prints it
        content = content.replace(b"}, {", b"}\n{")
    if b"{" in content:
        content = _DICTIONARY.sub(lambda match: b" ".join(match[0].split()) + b"\n" * match[0].count(b"\n"), content)
    lines = Lines(content)
    forms = [form for form in lines.forms.values() if len(form.rows)]
    steps, totals, are_bars = step_lines(lines.n_rows, [form for form in forms if form.kind is Kind.STEP])
    forms = [form for form in forms if form.kind is not Kind.STEP]
    follows = bar_follows(np.where(are_bars, steps, np.nan), forms)
    give_steps(lines, forms, steps, totals, follows=follows)
    forms = _without_launcher([form for form in forms if len(form.rows)], lines.left_out)
    for form in forms:
        _refuse_wrong_steps(form)
    program = _program(forms)
    forms = _understood(forms, program, lines.left_out)
    _refuse_two_losses(forms)
    reasons, left_out = _left_out(lines, forms)
    _name_counters(forms)
    columns, at_lines, headers = _assembled(lines, forms)
    notes = [f"read as a text log: {_n_rows(forms):,} of {lines.n_lines:,} lines are those of {program or ANY}"]
    notes += [half_written(lines.cut)] if lines.cut else []
    notes += [*left_out, *lines.notes]
    if are_bars.any() and not all(form.counts for form in forms):
        notes.append(f"the step of a loss is that of the progress bar {'after' if follows else 'before'} it")
    notes += with_steps(columns, precedes=bool(program) and GRAMMARS[program].precedes)
    count_over_epochs(columns)
    columns |= {"value": columns.pop("loss")} if program == "MLflow" else {}
    return Rows(columns, "text log", tuple(notes), tuple(reasons), at_lines, tuple(headers), program)


def _left_out(lines: Lines, forms: Sequence[Form]) -> tuple[list[str], list[str]]:
    """Return what makes a forecast uncertain, and notes on the lines that are left out; refuse too many of them.

    forms: those that are read.
    """
    n_read, without_step = _n_rows(forms), lines.left_out.pop(NO_STEP, [])
    if len(without_step) > n_read:
        text = lines.text(without_step[0])
        axis = next((what for axis, what in OTHER_AXES.items() if re.search(axis, text, re.I)), "")
        count = counted(len(without_step), "line has", "lines have")
        error = LogError if axis else NotUnderstoodError
        raise error(f"{count} a loss and no step; {axis or GIVE_STEPS}")

    def quoted(number: int) -> str:
        return f"line {number:,} ({lines.text(number)[:80]!r})"

    causes = {
        number: cause
        for cause in (UNREAD, SEVERAL, ABBREVIATED, _OF_OTHERS)
        for number in lines.left_out.pop(cause, [])
    }
    unread = sorted([*causes, *without_step])
    left_out = [
        f"{counted(len(numbers), 'line was', 'lines were')} left out ({reason}), the first: {quoted(min(numbers))}"
        for reason, numbers in lines.left_out.items()
    ]
    missed = f"{counted(len(unread), 'line with a loss was', 'lines with a loss were')} not understood, the first: "
    if len(unread) > MOST_UNREAD * (n_read + len(unread)):
        cause = causes.get(unread[0], "")
        read_lines = [form.lines[0] for form in forms if form.kind is Kind.TRAINING and cause == _OF_OTHERS]
        beside = f" beside {quoted(min(read_lines))}: give the lines of one kind" if read_lines else ""
        why = f" ({cause})" if cause in (SEVERAL, ABBREVIATED) else ""
        raise NotUnderstoodError(f"{missed}{quoted(unread[0])}{why}{beside}")
    if not n_read:
        raise NotUnderstoodError("; ".join(["no line with a step and a loss", *left_out]))
    return [f"{missed}line {unread[0]:,}"] if unread else [], left_out


def _without_launcher(forms: list[Form], left_out: LinesByReason) -> list[Form]:
    """Return the forms but for those of a launcher whose lines alternate with those of the program that it launched."""
    for name in (name for name, grammar in GRAMMARS.items() if grammar.is_launcher):
        trained = [form for form in forms if name not in form.programs]
        lines, of_training = (
            np.sort(np.concatenate([[], *(form.lines for form in group if form.kind is Kind.TRAINING)]))
            for group in ([form for form in forms if form not in trained], trained)
        )
        turns = len(np.unique(np.searchsorted(of_training, lines)))
        if 2 * turns > min(len(lines), len(of_training)) > 0:
            left_out[f"losses of {name}, beside those of its training"] += lines.astype(int).tolist()
            return trained
    return forms


def _refuse_wrong_steps(form: Form) -> None:
    """Raise LogError if the numbers in front of lines are no steps by the epochs of these."""
    epochs, numbers = (form.columns.get(name, np.zeros(1)) for name in ("epoch", "step"))
    if form.names.get(0) != "step" or not np.any(epochs % 1):
        return
    if not (numbers.any() and are_proportional(numbers, epochs)):
        raise LogError(
            "the numbers in front of the lines do not rise with the epochs: ranks, or numbers of the lines? Give the lines "
            "of one rank without them"
        )


def _refuse_two_losses(forms: Sequence[Form]) -> None:
    """Raise LogError if some steps have two losses of one name, such as those of an evaluation."""
    counting = [
        form for form in forms if form.kind is Kind.TRAINING and form.counts and not RANKS & form.columns.keys()
    ]
    for name in {name for form in counting for name in form.columns if loss_name(name)}:
        named = [form for form in counting if name in form.columns]
        lines = np.concatenate([form.lines for form in named])
        order = np.argsort(lines, kind="stable")
        steps, losses, lines = (
            np.concatenate(values)[order]
            for values in (
                [form.columns[form.counter] for form in named],
                [form.columns[name] for form in named],
                [lines],
            )
        )
        again = np.flatnonzero((np.diff(steps) == 0) & (losses[1:] != losses[:-1])) + 1
        if 2 < len(again) < 0.2 * len(steps) and np.all(np.diff(steps) >= 0):
            raise LogError(
                f"{len(again):,} steps have two losses, the first in lines {lines[again[0] - 1]:,} and "
                f"{lines[again[0]]:,}; if one is of an evaluation, call it val_loss"
            )


def _program(forms: Sequence[Form]) -> str:
    """Return the program whose grammar takes most rows, "" if it takes less than half of them."""
    counts: Counter[str] = Counter()
    for form in forms:
        counts.update(dict.fromkeys(form.programs, len(form.rows)))
    best = max(counts, key=lambda name: counts[name], default="")
    return best if 2 * counts[best] >= max(sum(len(form.rows) for form in forms), 1) else ""


def _understood(forms: Sequence[Form], program: str, left_out: LinesByReason) -> list[Form]:
    """Return the forms that are read, with the losses of evaluations as such; the lines of the others are left out.

    A mark of a split tells lines apart only if not all of them have it, and if most training lines have none.
    """
    common = frozenset.intersection(*(form.marks for form in forms)) if forms else frozenset()
    training = [form for form in forms if form.kind is Kind.TRAINING]
    marked = [form for form in training if form.marks - common and not form.has_validation]
    if _n_rows(marked) <= _n_rows([form for form in training if form not in marked]):
        for form in marked:
            form.kind, prefix = Kind.EVALUATION, "test_" if form.marks - common <= TEST else "validation_"
            form.columns = {prefix * bool(loss_name(name)) + name: form.columns[name] for name in form.columns}
    training = [form for form in training if form.kind is Kind.TRAINING]
    alone, both = ([form for form in training if form.has_validation is has] for has in (False, True))
    is_logged = any(program in form.programs and not form.is_evaluation for form in both)
    if _n_rows(alone) > _n_rows(both) and not is_logged:
        estimates = [form for form in both if not _go_on(form, alone)]
        for form in estimates:  # the training loss of an evaluation is a separate estimate
            form.kind = Kind.EVALUATION
            form.columns = {name: form.columns[name] for name in form.columns if split_of_loss(name) is not TRAINING}
        training = [form for form in training if form not in estimates]
    rows_of: Counter[str] = Counter()
    for form in training:
        rows_of[form.opening] += len(form.rows)
    usual = max(rows_of, key=lambda opening: rows_of[opening], default="")
    group = [form for form in training if (program in form.programs if program else form.opening == usual)]
    whole = max(group, key=lambda form: len(form.rows), default=None)
    excluded = [form for form in training if form not in group or (form is not whole and _is_cut(form, whole))]
    read = [form for form in forms if form not in excluded]
    several = [form for form in read if form.text]
    if len({form.text for form in read if form.has_validation}) <= 1:
        several = []
    for form in (*excluded, *several):
        left_out[_OF_OTHERS if form in excluded else "evaluations on several texts"] += form.lines.tolist()
    return [form for form in read if form not in several]


def _go_on(form: Form, others: Sequence[Form]) -> bool:
    """Return whether lines begin like others, at steps that those leave out: they are of the training, too."""
    alike = [other for other in others if other.opening == form.opening and other.counts]
    steps = [other.columns[other.counter] for other in alike if form.counts]
    return bool(steps) and not np.isin(form.columns[form.counter], np.concatenate(steps)).any()


def _is_cut(form: Form, whole: Form | None) -> bool:
    """Return whether one or two lines end at their loss, where others go on."""
    ends_at_loss = form.key.endswith(MARK) and max(form.losses) == form.key.count(MARK) - 1
    return whole is not None and len(form.rows) <= 2 and ends_at_loss and whole.key.startswith(form.key)


def _name_counters(forms: Sequence[Form]) -> None:
    """Give the steps of lines that count one thing one name: `step`, or that of the lines with two counters."""
    counters = [[name for name in form.columns if name in COUNTERS] for form in forms]
    both = {name for names in counters if len(names) > 1 for name in names}
    in_forms = Counter(name for names in counters for name in names)
    best = max(sorted(both), key=lambda name: (in_forms[name], COUNTERS[name]), default="step")
    for form, names in zip(forms, counters, strict=True):
        if len(names) == 1 and names[0] not in both:
            form.columns = {best if name in names else name: form.columns[name] for name in form.columns}


def _n_rows(forms: Sequence[Form]) -> int:
    return sum(len(form.rows) for form in forms)


def _assembled(lines: Lines, forms: Sequence[Form]) -> tuple[dict[str, np.ndarray], np.ndarray, list[frozenset[int]]]:
    """Return the columns of the forms (rows,), the line of each row, and the rows before which headers stand."""
    is_read = np.zeros(lines.n_rows + 1, dtype=bool)
    for form in forms:
        is_read[form.rows] = True
    index = np.cumsum(is_read) - is_read
    n = int(is_read.sum())
    columns: dict[str, np.ndarray] = {}
    at_lines = np.zeros(n, dtype=np.int64)
    for form in forms:
        rows = index[form.rows]
        at_lines[rows] = form.lines
        for name, values in form.columns.items():
            columns.setdefault(name, np.full(n, np.nan))[rows] = values
    for name in {name for _, name, _ in lines.facts} & {PER_STEP, PARAMETERS}:
        columns[name] = stated_facts(n, [(int(index[row]), one, value) for row, one, value in lines.facts], name)
    headers = [frozenset(index[[*rows]].tolist()) for rows in lines.headers.values() if len(rows) <= 64]
    return columns, at_lines, headers


def with_steps(columns: dict[str, np.ndarray], *, precedes: bool) -> list[str]:
    """Give evaluations without a step that of the row before or, if they precede theirs, after them; return a note."""
    counters = [name for name in columns if name in (*COUNTERS, "batch")]
    for name, other in itertools.permutations([name for name in counters if name in COUNTERS], 2):
        _fill_counter(columns[name], columns[other])
    known = ~np.all([np.isnan(columns[name]) for name in counters], axis=0) if counters else np.empty(0, bool)
    if known.all() or not known.any():
        return []
    rows = np.flatnonzero(known)
    at = np.searchsorted(rows, np.arange(len(known))) - (not precedes)
    source = rows[np.clip(at, 0, len(rows) - 1)]
    for name in (*counters, END, "batches", "epoch"):
        if name in columns:
            columns[name] = np.where(known, columns[name], columns[name][source])
    place = "after" if precedes else "before"
    count = counted(int(np.sum(~known)), "validation loss has", "validation losses have")
    return [f"{count} no step: that of the row {place} each was taken"]


def _fill_counter(counts: np.ndarray, others: np.ndarray) -> None:
    """Fill in a counter (rows,) where only another one is stated, in proportion from the row before that states both."""
    both, missing = np.flatnonzero(~np.isnan(counts + others)), np.flatnonzero(np.isnan(counts) & ~np.isnan(others))
    if len(both) > 1 and len(missing):
        advances = (np.abs(np.diff(values[both])).sum() for values in (counts, others))
        ratio = np.divide(*advances)
        before = both[np.maximum(np.searchsorted(both, missing) - 1, 0)]
        counts[missing] = np.round(counts[before] + (others[missing] - others[before]) * ratio)


def count_over_epochs(columns: dict[str, np.ndarray]) -> None:
    """Count steps and their last one over all epochs where batches begin again in each: (epoch - 1) x batches + batch."""
    missing = np.full(len(next(iter(columns.values()))), np.nan)
    batch, batches, epochs, total = (columns.pop(name, missing) for name in ("batch", "batches", "epochs", END))
    counter = next((name for name in columns if name in COUNTERS), "step")
    count, epoch = columns.get(counter, missing), columns.get("epoch", missing)
    differences, rounding = np.abs(count - batch), np.maximum(0.006 * count, 1)  # tqdm writes 12345 as 1.23e+4
    n_apart = np.sum(differences > rounding)
    by_batch = np.isfinite(batch).any() and n_apart <= 0.1 * np.isfinite(differences).sum()  # not beside updates
    steps, ends = (batch, batches) if by_batch else (count, total)
    known = np.isfinite(epoch) & np.isfinite(steps) & np.isfinite(ends)
    if known.any() and not np.any(epoch[known] % 1):
        begins = np.flatnonzero(np.diff(epoch[known]) > 0)
        starts_again = bool(np.all(np.diff(steps[known])[begins] < 0))
        if len(begins) and starts_again:
            if len(np.unique(ends[known])) > 1:
                raise LogError("its epochs have different numbers of batches; make a CSV with step and loss")
            steps = (epoch - min(epoch[known].min(), 1)) * ends + steps
        if starts_again:  # else they are counted over all epochs
            of_all = max(epochs[np.isfinite(epochs)].tolist(), default=np.nan)
            ends = ends * (of_all if epoch[known].min() >= 1 else np.nan)  # 0/9 is the first of 9 or of 10
    if by_batch:
        is_rounded = (count % 100 == 0) & (np.abs(count - steps) > 1) & (np.abs(count - steps) <= rounding)
        steps = np.where(np.isnan(count) | is_rounded, steps, count)
        ends = np.where(np.isnan(total), ends, total)
    columns |= {counter: steps, **({END: ends} if np.isfinite(ends).any() else {})}
