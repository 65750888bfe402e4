"""Text logs: the standard output of training programs.

The lines of each form are read alike (`text_lines`), and rows are made of those of one program: of an unknown one the
training lines must have one form up to the loss.
"""

import io
import itertools
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from toposcale.forecasting.logs.names import COUNTERS, END, PARAMETERS, PER_STEP, TEST, TRAINING, VALIDATION, loss_name
from toposcale.forecasting.logs.rows import Log, LogError, half_written
from toposcale.forecasting.logs.text_forms import GRAMMARS, MARK, RANKS, UNREAD, Form, Kind
from toposcale.forecasting.logs.text_lines import Lines, LinesByReason
from toposcale.forecasting.logs.trainer_states import FILE_NAME
from toposcale.io.errors import counted

ANY = "an unknown program, with a step and a loss"
TEXT_LOGS = f"text logs of {', '.join(GRAMMARS)} are read; else make a CSV with the columns step and loss"

MOST_UNREAD = 1 / 20
"""Largest share of the lines with a loss that may be of no known form."""

_NO_STEP, _OF_OTHERS = "no step", "of another kind"
"""Reasons why lines are left out, beside those of the forms."""

_GIVE_STEPS = f"give a log with both, or the {FILE_NAME} that transformers' Trainer writes beside its checkpoints"
_WHICH_STEP = f"whether the step of {{}} stands before it or after it is unknown; {_GIVE_STEPS}"
_DIVIDE = "they count {0}: divide these by the {0} of a step, and give a CSV with the columns step and loss"
_OTHER_AXES = {
    r"\[\s*\d+/\d+ \(\d+%\)\]|^loss: \S+\s+\[\s*\d+/\d+\]$|\bsamples?\b(?!/)": _DIVIDE.format("samples"),
    r"\btokens?\b(?!/)": _DIVIDE.format("tokens"),
    r"\d\s?k(?:it\b|/\d)": "the progress bar abbreviates its steps (8.00kit): export the losses of the tracker as CSV",
}
"""Remedies for lines that count something else than steps, by a pattern of them."""

_DICTIONARY = re.compile(rb"\{\s*+(?:['\"][^{}\n]*+\n\s*+)++(?:['\"][^{}\n]*+)?\}")
"""Dictionary or JSON object that is printed over several lines, whose loss may stand before its step."""


def read(content: bytes) -> Log:
    """Read a text log; raise LogError if it holds no losses with steps, or too many lines that are not understood."""
    if content.lstrip().startswith(b"[{'"):  # a list of transformers' dictionaries, as Python prints it
        content = content.replace(b"}, {", b"}\n{")
    content = _DICTIONARY.sub(lambda found: b" ".join(found[0].split()) + b"\n" * found[0].count(b"\n"), content)
    lines = Lines(content)
    forms = [form for form in lines.forms.values() if len(form.rows)]
    steps, totals, are_bars = _step_lines(lines.n_rows, [form for form in forms if form.kind is Kind.STEP])
    forms = [form for form in forms if form.kind is not Kind.STEP]
    bar_follows = _bar_follows(np.where(are_bars, steps, np.nan), forms)
    _give_steps(lines, forms, steps, totals, follows=bar_follows)
    forms = _without_launcher([form for form in forms if len(form.rows)], lines.left_out)
    for form in forms:
        _refuse_wrong_steps(form)
    program = _program(forms)
    forms = _understood(forms, program, lines.left_out)
    _refuse_two_losses(forms)
    n_read, without_step = _n_rows(forms), lines.left_out.pop(_NO_STEP, [])
    if len(without_step) > n_read:
        text = _line(content, without_step[0])
        remedy = next((what for axis, what in _OTHER_AXES.items() if re.search(axis, text, re.I)), _GIVE_STEPS)
        raise LogError(f"{counted(len(without_step), 'line has', 'lines have')} a loss and no step; {remedy}")
    of_others = lines.left_out.pop(_OF_OTHERS, [])
    unread = sorted([*lines.left_out.pop(UNREAD, []), *of_others, *without_step])

    def quoted(number: int) -> str:
        return f"line {number:,} ({_line(content, number)[:80]!r})"

    left_out = [
        f"{counted(len(numbers), 'line was', 'lines were')} left out ({reason}), the first: {quoted(min(numbers))}"
        for reason, numbers in lines.left_out.items()
    ]
    missed = f"{counted(len(unread), 'line with a loss was', 'lines with a loss were')} not understood, the first: "
    if len(unread) > MOST_UNREAD * (n_read + len(unread)):
        read = [form.lines[0] for form in forms if form.kind is Kind.TRAINING and unread[0] in of_others]
        beside = f" beside {quoted(min(read))}: give the lines of one kind" if read else ""
        raise LogError(f"{missed}{quoted(unread[0])}{beside}; {TEXT_LOGS}")
    if not n_read:
        raise LogError("; ".join(["no line with a step and a loss", *left_out, TEXT_LOGS]))
    _name_counters(forms)
    columns, at_lines, headers = _assembled(lines, forms)
    notes = [f"read as a text log: {n_read:,} of {lines.n_lines:,} lines are those of {program or ANY}"]
    notes += [half_written(lines.cut)] if lines.cut else []
    notes += [*left_out, *lines.notes]
    if are_bars.any() and not all(form.counts for form in forms):
        notes.append(f"the step of a loss is that of the progress bar {'after' if bar_follows else 'before'} it")
    notes += _with_steps(columns, precedes=bool(program) and GRAMMARS[program].precedes)
    _count_over_epochs(columns)
    columns |= {"value": columns.pop("loss")} if program == "MLflow" else {}
    return Log(
        columns, "text log", notes, [f"{missed}line {unread[0]:,}"] if unread else [], at_lines, headers, program
    )


def _step_lines(n: int, forms: Sequence[Form]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return steps and totals of lines that state them without a loss (n,), and which are bars, without shorter bars."""
    steps, totals, are_bars = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, dtype=bool)
    for form in forms:
        steps[form.rows], are_bars[form.rows] = form.columns[form.counter], form.counter == "batch"
        totals[form.rows] = form.columns.get(END, form.columns.get("batches", np.nan))
    are_shorter = are_bars & (totals < np.maximum.accumulate(np.where(are_bars, totals, 0)))
    steps[are_shorter] = np.nan
    return steps, totals, are_bars & ~are_shorter


def _bar_follows(bars: np.ndarray, forms: Sequence[Form]) -> bool:
    """Return whether the step of a loss is that of the progress bar after it, as where tqdm writes the line."""
    logged = [form for form in forms if "{'loss': " in form.key and "epoch" in form.columns]
    for form in logged:
        bars[form.rows] = form.columns.get("batch", bars[form.rows])  # in the line of the loss, before it
    rows = np.concatenate([[], *(form.rows for form in logged)])
    epochs = np.concatenate([[], *(form.columns["epoch"] for form in logged)])[np.argsort(rows)]
    places = np.flatnonzero(~np.isnan(bars))
    if len(rows) < 3 or len(places) < 2:
        return False
    at = np.searchsorted(places, np.sort(rows), side="right")
    before, after = np.array([np.nan, *bars[places], np.nan])[[at, at + 1]]

    def fit(steps: np.ndarray) -> list[bool]:
        interval = np.nanmin(np.abs(np.diff(steps)), initial=np.inf)
        return [
            bool(np.isfinite(steps[:-1]).all()),
            _are_proportional(steps, epochs),
            bool(interval > 0 and not np.any(steps[np.isfinite(steps)] % interval)),
            bool(steps[0] == interval),
        ]

    if fit(before) == fit(after) and not np.array_equal(before, after):
        raise LogError(_WHICH_STEP.format("a loss"))
    return fit(after) > fit(before)


def _are_proportional(steps: np.ndarray, epochs: np.ndarray) -> bool:
    """Return whether steps can be a constant number of them per epoch, whose rounding is known."""
    half = 0.501 * _rounding_of(epochs)
    most = steps / np.maximum(epochs - half, 1e-200)
    return bool(np.nanmax(steps / (epochs + half), initial=0) <= np.nanmin(most, initial=np.inf))


def _rounding_of(epochs: np.ndarray) -> float:
    """Return the unit to which epochs are rounded, such as 0.01."""
    return float(10.0 ** -max(len(repr(epoch).partition(".")[2]) for epoch in epochs.tolist()))


def _give_steps(lines: Lines, forms: Sequence[Form], steps: np.ndarray, totals: np.ndarray, *, follows: bool) -> None:
    """Give lines without a step that of the line before or after them that states one, or that of their epoch.

    Those of one step are one row. An evaluation may remain without one; other lines are left out then.
    """
    places = np.flatnonzero(~np.isnan(steps))
    steps, totals = np.append(steps[places], np.nan), np.append(totals[places], np.nan)  # the last one is of no line
    # The first row of each step, and the first that repeats a form.
    first, repeated = np.full((2, len(steps)), lines.n_rows)
    counted = np.full(lines.n_rows, -1)
    unit = _rounding_of(np.concatenate([[0.0], *(form.columns.get("epoch", []) for form in forms)]))
    index = {form: np.searchsorted(places, form.rows) - (not follows) for form in forms}
    if follows:
        _give_back_evaluations(index, steps, unit)
    lone = [at for form, at in index.items() if form.kind is Kind.TRAINING and not form.counts]
    if not follows and len(places) > 2 and any(np.array_equal(at, np.arange(len(places)) - 1) for at in lone):
        raise LogError(_WHICH_STEP.format("a loss"))
    for form, at in index.items():
        if form.counts:
            counted[form.rows] = form.rows
        else:
            np.minimum.at(first, at, form.rows)
            np.minimum.at(repeated, at[1:][np.diff(at) == 0], form.rows[1:][np.diff(at) == 0])
    counted = np.maximum.accumulate(counted)
    facts = ("epochs", "optimization_steps", "examples", "examples_per_step")
    epochs, ends, examples, batch = (_stated(lines.n_rows, lines.facts, name) for name in facts)
    per_epoch, by_examples = ends / np.maximum(epochs, 1), np.ceil(np.fmax.accumulate(examples) / batch)
    per_epoch = np.where(by_examples > per_epoch + 1, by_examples, per_epoch)  # max_steps end within an epoch
    error = 0.0
    for form in (form for form in forms if not form.counts):
        rows, columns, at = form.rows, form.columns, index[form]
        is_known = ~np.isnan(steps[at]) & (rows < repeated[at]) & (counted[rows] < first[at])
        of_epoch = np.round(columns.get("epoch", np.nan) * per_epoch[rows])
        columns["step"] = np.where(is_known, steps[at], of_epoch)
        columns[END] = np.where(is_known, totals[at], ends[rows] + 0 * of_epoch)
        if (of_epochs := ~is_known & ~np.isnan(of_epoch)).any():
            _refuse_rounded_epochs(form, of_epochs, unit)
            error = max(error, 0.5 * unit * float(np.max(per_epoch[rows][of_epochs])))
        form.rows = np.where(is_known, first[at], rows)
        if form.kind is not Kind.EVALUATION and not form.marks and not _has_validation(form):
            without = np.isnan(columns["step"])
            lines.left_out[_NO_STEP] += form.lines[without].tolist()
            form.rows, form.lines = form.rows[~without], form.lines[~without]
            form.columns = {name: values[~without] for name, values in columns.items()}
    if error >= 1:
        lines.notes.append(f"steps follow from epochs that are rounded to {unit:g}: to within {error:,.0f} steps")


def _give_back_evaluations(index: dict[Form, np.ndarray], steps: np.ndarray, unit: float) -> None:
    """Give evaluations to the bar before them if their epoch says so; raise LogError if epochs are rounded too much for it.

    index: the bar after each line, by form. steps: those of the bars.
    """
    logged = [form for form in index if form.kind is Kind.TRAINING and "epoch" in form.columns]
    for form in (form for form in index if form.kind is Kind.EVALUATION and "epoch" in form.columns and logged):
        per_epoch = np.nanmedian(steps[index[logged[0]]] / np.maximum(logged[0].columns["epoch"], 1e-200))
        before = np.maximum(index[form] - 1, 0)
        distance = steps[index[form]] - steps[before]
        if np.any((distance > 0) & (distance <= unit * per_epoch)):
            raise LogError(_WHICH_STEP.format("an evaluation"))
        is_before = form.columns["epoch"] * per_epoch < steps[before] + distance / 2
        index[form] = np.where(is_before, before, index[form])


def _refuse_rounded_epochs(form: Form, of_epochs: np.ndarray, unit: float) -> None:
    """Raise LogError if losses whose steps follow from their epochs (lines,) share one with another loss before them."""
    losses = next(values for name, values in form.columns.items() if loss_name(name))
    is_shared = (np.diff(form.columns["step"]) == 0) & (losses[1:] != losses[:-1]) & of_epochs[1:] & of_epochs[:-1]
    if form.kind is Kind.TRAINING and is_shared.any():
        raise LogError(
            f"{counted(int(is_shared.sum()), 'loss has', 'losses have')} no step, and the epoch of the one before, as "
            f"epochs are rounded to {unit:g}; {_GIVE_STEPS}"
        )


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
    if not (numbers.any() and _are_proportional(numbers, epochs)):
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


def _line(content: bytes, number: int) -> str:
    """Return the start of a line."""
    start = next(itertools.islice(io.BytesIO(content), number - 1, None)).lstrip(b"\r")[:2000]
    return start.decode("utf-8", "replace").split("\r")[0].strip()


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
    marked = [form for form in training if form.marks - common and not _has_validation(form)]
    if _n_rows(marked) <= _n_rows([form for form in training if form not in marked]):
        for form in marked:
            form.kind, prefix = Kind.EVALUATION, "test_" if form.marks - common <= TEST else "validation_"
            form.columns = {prefix * bool(loss_name(name)) + name: form.columns[name] for name in form.columns}
    training = [form for form in training if form.kind is Kind.TRAINING]
    alone, both = ([form for form in training if _has_validation(form) is has] for has in (False, True))
    is_logged = any(program in form.programs and not form.is_evaluation for form in both)
    if _n_rows(alone) > _n_rows(both) and not is_logged:
        estimates = [form for form in both if not _go_on(form, alone)]
        for form in estimates:  # the training loss of an evaluation is a separate estimate
            form.kind = Kind.EVALUATION
            form.columns = {name: form.columns[name] for name in form.columns if _split(name) is not TRAINING}
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
    if len({form.text for form in read if _has_validation(form)}) <= 1:
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


def _split(name: str) -> frozenset[str] | None:
    return loss.split if (loss := loss_name(name)) else None


def _has_validation(form: Form) -> bool:
    return any(_split(name) in (VALIDATION, TEST) for name in form.columns)


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
        columns[name] = _stated(n, [(int(index[row]), one, value) for row, one, value in lines.facts], name)
    headers = [frozenset(index[[*rows]].tolist()) for rows in lines.headers.values() if len(rows) <= 64]
    return columns, at_lines, headers


def _stated(n: int, facts: Sequence[tuple[int, str, float]], name: str) -> np.ndarray:
    """Return the last value of a fact of this name at each row, NaN where two were stated between the same rows."""
    column = np.full(n, np.nan)
    stated = [(row, value) for row, one, value in facts if one == name]
    for row in dict.fromkeys(row for row, _ in stated):
        values = {value for at, value in stated if at == row}
        column[row:] = values.pop() if len(values) == 1 else np.nan
    return column


def _with_steps(columns: dict[str, np.ndarray], *, precedes: bool) -> list[str]:
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


def _count_over_epochs(columns: dict[str, np.ndarray]) -> None:
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
