"""Steps of the losses that transformers' Trainer prints above its progress bar, and not with them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from toposcale.forecasting.logs.line_forms import Reading
from toposcale.forecasting.logs.names import END
from toposcale.forecasting.logs.rows import LogError
from toposcale.forecasting.logs.trainer_states import FILE_NAME

PROGRAM = "transformers"
GIVE_STEPS = f"give a log with both, or the {FILE_NAME} that transformers' Trainer writes beside its checkpoints"
_WHICH_STEP = f"whether the step of {{}} stands before it or after it is unknown; {GIVE_STEPS}"


def with_steps_of_bars(readings: Sequence[Reading], bars: Sequence[Reading]) -> tuple[list[Reading], tuple[str, ...]]:
    """Return the lines, those of the Trainer with the step of the bar that tqdm draws again after each, and a note.

    Raise LogError unless their epochs agree, and the bar before a line does not fit as well.
    """
    logged = [reading for reading in readings if reading.form.program == PROGRAM and "epoch" in reading.columns]
    if not (bars and any(reading.is_training for reading in logged)):
        return [*readings], ()
    columns = [np.stack([bar.rows, bar.columns["step"], bar.columns.get(END, 0 * bar.rows)]) for bar in bars]
    drawn = np.concatenate(columns, axis=1)
    rows, steps, totals = drawn[:, np.argsort(drawn[0], kind="stable")]
    is_training = totals == totals.max()
    places, steps, total = rows[is_training], np.array([np.nan, *steps[is_training], np.nan]), totals.max()
    around = {reading: steps[np.searchsorted(places, reading.rows) + np.array([[0], [1]])] for reading in logged}
    training = [reading for reading in logged if reading.is_training]
    before, after, lines, epochs = np.concatenate(
        [np.stack([*around[reading], reading.rows, reading.columns["epoch"]]) for reading in training], axis=1
    )
    order = np.argsort(lines, kind="stable")
    is_before = _differ(before, after) and _fits(before[order], epochs[order])
    if is_before or not _fits(after[order], epochs[order]):
        raise LogError(_WHICH_STEP.format("a loss"))
    if any(_differ(*around[reading]) for reading in logged if reading not in training):
        raise LogError(_WHICH_STEP.format("an evaluation"))
    of_bars = {one: {"step": around[one][1], END: np.full(len(one.rows), total or np.nan)} for one in logged}
    result = [replace(one, columns={**one.columns, **of_bars.get(one, {})}) for one in readings]
    return result, ("the step of a loss is that of the progress bar after it",)


def _differ(before: np.ndarray, after: np.ndarray) -> bool:
    return bool(np.any((before != after) & np.isfinite(before + after)))


def _fits(steps: np.ndarray, epochs: np.ndarray) -> bool:
    """Return whether steps (lines,) are multiples of an interval, and in proportion to epochs, which are rounded."""
    half = 0.501 * 10.0 ** -max(len(repr(epoch).partition(".")[2]) for epoch in epochs.tolist())
    known = np.isfinite(steps)
    steps, epochs = steps[known], epochs[known]
    interval = np.min(np.abs(np.diff(steps)), initial=np.inf)
    least = np.max(steps / (epochs + half), initial=0)
    is_regular = len(steps) < 2 or bool(interval > 0 and not np.any(steps % interval))
    return is_regular and bool(
        least <= np.min(steps / np.maximum(epochs - half, 1e-200), initial=np.inf, where=steps > 0)
    )
