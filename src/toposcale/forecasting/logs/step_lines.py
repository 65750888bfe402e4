"""Steps of losses that stand on other lines: headings of programs, and the progress bar of transformers' Trainer."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from toposcale.forecasting.logs.line_forms import Kind
from toposcale.forecasting.logs.names import END
from toposcale.forecasting.logs.rows import LogError
from toposcale.forecasting.logs.text_lines import Reading, Readings, counter_in
from toposcale.forecasting.logs.trainer_states import FILE_NAME

NO_STEP = "no step"
"""Reason why lines are left out, beside those of the forms."""

GIVE_STEPS = f"give a log with both, or the {FILE_NAME} that transformers' Trainer writes beside its checkpoints"
_WHICH_STEP = f"whether the step of {{}} stands before it or after it is unknown; {GIVE_STEPS}"


def with_steps_of_other_lines(readings: Readings, n: int) -> tuple[Readings, list[str], dict[str, list[int]]]:
    """Return the readings, of which those without a step have that of the line before or after them that states one.

    Lines of one step are one row then. An evaluation may remain without one; other lines are left out. n: number of rows.
    Return notes and the rows that are left out, too.
    """
    steps, totals, are_bars = _step_lines([reading for reading in readings if reading.kind is Kind.STEP], n)
    readings = [reading for reading in readings if reading.kind is not Kind.STEP]
    follows = _bar_follows(np.where(are_bars, steps, np.nan), readings)
    places = np.flatnonzero(~np.isnan(steps))
    steps, totals = np.append(steps[places], np.nan), np.append(totals[places], np.nan)  # the last one is of no line
    index = {
        reading: np.searchsorted(places, reading.rows) - (not follows)
        for reading in readings
        if not reading.form.counts
    }
    if follows:
        index = _with_bar_of_evaluations(index, steps)
    lone = [at for reading, at in index.items() if reading.kind is Kind.TRAINING]
    if not follows and len(places) > 2 and any(np.array_equal(at, np.arange(len(places)) - 1) for at in lone):
        raise LogError(_WHICH_STEP.format("a loss"))
    # The first row of each step, the first that repeats a form, and the last row with a step of its own.
    first, repeated = np.full((2, len(steps)), n)
    counted_before = np.full(n, -1)
    for reading in readings:
        if reading.form.counts:
            counted_before[reading.rows] = reading.rows
            continue
        at, rows = index[reading], reading.rows
        np.minimum.at(first, at, rows)
        np.minimum.at(repeated, at[1:][np.diff(at) == 0], rows[1:][np.diff(at) == 0])
    counted_before = np.maximum.accumulate(counted_before)
    result: Readings = []
    left_out: dict[str, list[int]] = {}
    for reading in readings:
        if not reading.form.counts:
            at, rows = index[reading], reading.rows
            has_step = ~np.isnan(steps[at]) & (rows < repeated[at]) & (counted_before[rows] < first[at])
            of_step = {"step": np.where(has_step, steps[at], np.nan), END: np.where(has_step, totals[at], np.nan)}
            reading = replace(reading, rows=np.where(has_step, first[at], rows), columns={**reading.columns, **of_step})
            if reading.kind is not Kind.EVALUATION and not reading.form.marks and not reading.form.has_validation:
                left_out.setdefault(NO_STEP, []).extend(reading.own[~has_step].tolist())
                reading = reading.keep(has_step)
        result.append(reading)
    place = "after" if follows else "before"
    notes = [f"the step of a loss is that of the progress bar {place} it"] if are_bars.any() and index else []
    return [reading for reading in result if len(reading.rows)], notes, left_out


def _step_lines(readings: Readings, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return steps and totals of lines that state them without a loss (n,), and which are bars, without shorter bars."""
    steps, totals, are_bars = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, dtype=bool)
    for reading in readings:
        steps[reading.rows] = reading.columns[counter_in(reading.columns)]
        are_bars[reading.rows] = reading.form.counter == "batch"
        totals[reading.rows] = reading.columns.get(END, np.nan)
    are_shorter = are_bars & (totals < np.maximum.accumulate(np.where(are_bars, totals, 0)))
    steps[are_shorter] = np.nan
    return steps, totals, are_bars & ~are_shorter


def _bar_follows(bars: np.ndarray, readings: Readings) -> bool:
    """Return whether the step of a loss is that of the progress bar after it, as where tqdm writes the line.

    bars: step of the bar of each row, NaN where there is none. It is told by epochs, and by losses at regular steps.
    """
    logged = [reading for reading in readings if "{'loss': " in reading.form.key and "epoch" in reading.columns]
    for reading in logged:  # in the line of the loss, before it
        if reading.form.counter == "batch":
            bars[reading.rows] = reading.columns.get("step", bars[reading.rows])
    rows = np.concatenate([[], *(reading.rows for reading in logged)])
    epochs = np.concatenate([[], *(reading.columns["epoch"] for reading in logged)])[np.argsort(rows)]
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
    return float(10.0 ** -max([len(repr(epoch).partition(".")[2]) for epoch in epochs.tolist()], default=1))


def _with_bar_of_evaluations(index: Mapping[Reading, np.ndarray], steps: np.ndarray) -> dict[Reading, np.ndarray]:
    """Return the bar of each line, for evaluations the one before them if their epoch says so; refuse rounded epochs.

    index: the bar after each line. steps: those of the bars.
    """
    result = dict(index)
    with_epoch = [reading for reading in index if "epoch" in reading.columns]
    logged = [reading for reading in with_epoch if reading.kind is Kind.TRAINING]
    unit = _rounding_of(np.concatenate([[0.0], *(reading.columns["epoch"] for reading in with_epoch)]))
    for reading in (reading for reading in with_epoch if reading.kind is Kind.EVALUATION and logged):
        per_epoch = np.nanmedian(steps[index[logged[0]]] / np.maximum(logged[0].columns["epoch"], 1e-200))
        before = np.maximum(index[reading] - 1, 0)
        distance = steps[index[reading]] - steps[before]
        if np.any((distance > 0) & (distance <= unit * per_epoch)):
            raise LogError(_WHICH_STEP.format("an evaluation"))
        is_before = reading.columns["epoch"] * per_epoch < steps[before] + distance / 2
        result[reading] = np.where(is_before, before, index[reading])
    return result


def refuse_wrong_steps(readings: Readings) -> None:
    """Raise LogError if the numbers in front of lines are no steps by the epochs of these."""
    for reading in readings:
        epochs, numbers = (reading.columns.get(name, np.zeros(1)) for name in ("epoch", "step"))
        if reading.form.names.get(0) != "step" or not np.any(epochs % 1):
            continue
        if not (numbers.any() and _are_proportional(numbers, epochs)):
            raise LogError(
                "the numbers in front of the lines do not rise with the epochs: ranks, or numbers of the lines? Give the "
                "lines of one rank without them"
            )
