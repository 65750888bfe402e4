"""Steps of losses that stand on other lines: headings of programs, progress bars and epochs of transformers' Trainer."""

from collections.abc import Sequence

import numpy as np

from toposcale.forecasting.logs.line_forms import Form, Kind
from toposcale.forecasting.logs.names import END, loss_name
from toposcale.forecasting.logs.rows import LogError
from toposcale.forecasting.logs.text_lines import Lines
from toposcale.forecasting.logs.trainer_states import FILE_NAME
from toposcale.io.errors import counted

NO_STEP = "no step"
"""Reason why lines are left out, beside those of the forms."""

GIVE_STEPS = f"give a log with both, or the {FILE_NAME} that transformers' Trainer writes beside its checkpoints"
_WHICH_STEP = f"whether the step of {{}} stands before it or after it is unknown; {GIVE_STEPS}"


def step_lines(n: int, forms: Sequence[Form]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return steps and totals of lines that state them without a loss (n,), and which are bars, without shorter bars."""
    steps, totals, are_bars = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, dtype=bool)
    for form in forms:
        steps[form.rows], are_bars[form.rows] = form.columns[form.counter], form.counter == "batch"
        totals[form.rows] = form.columns.get(END, form.columns.get("batches", np.nan))
    are_shorter = are_bars & (totals < np.maximum.accumulate(np.where(are_bars, totals, 0)))
    steps[are_shorter] = np.nan
    return steps, totals, are_bars & ~are_shorter


def bar_follows(bars: np.ndarray, forms: Sequence[Form]) -> bool:
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
            are_proportional(steps, epochs),
            bool(interval > 0 and not np.any(steps[np.isfinite(steps)] % interval)),
            bool(steps[0] == interval),
        ]

    if fit(before) == fit(after) and not np.array_equal(before, after):
        raise LogError(_WHICH_STEP.format("a loss"))
    return fit(after) > fit(before)


def are_proportional(steps: np.ndarray, epochs: np.ndarray) -> bool:
    """Return whether steps can be a constant number of them per epoch, whose rounding is known."""
    half = 0.501 * _rounding_of(epochs)
    most = steps / np.maximum(epochs - half, 1e-200)
    return bool(np.nanmax(steps / (epochs + half), initial=0) <= np.nanmin(most, initial=np.inf))


def _rounding_of(epochs: np.ndarray) -> float:
    """Return the unit to which epochs are rounded, such as 0.01."""
    return float(10.0 ** -max(len(repr(epoch).partition(".")[2]) for epoch in epochs.tolist()))


def give_steps(lines: Lines, forms: Sequence[Form], steps: np.ndarray, totals: np.ndarray, *, follows: bool) -> None:
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
    epochs, ends, examples, batch = (stated_facts(lines.n_rows, lines.facts, name) for name in facts)
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
        if form.kind is not Kind.EVALUATION and not form.marks and not form.has_validation:
            without = np.isnan(columns["step"])
            lines.left_out[NO_STEP] += form.lines[without].tolist()
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
            f"epochs are rounded to {unit:g}; {GIVE_STEPS}"
        )


def stated_facts(n: int, facts: Sequence[tuple[int, str, float]], name: str) -> np.ndarray:
    """Return the last value of a fact of this name at each row, NaN where two were stated between the same rows."""
    column = np.full(n, np.nan)
    stated = [(row, value) for row, one, value in facts if one == name]
    for row in dict.fromkeys(row for row, _ in stated):
        values = {value for at, value in stated if at == row}
        column[row:] = values.pop() if len(values) == 1 else np.nan
    return column
