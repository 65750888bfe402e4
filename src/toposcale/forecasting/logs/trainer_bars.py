"""Steps of the losses that transformers' Trainer prints beside its progress bar, and not with them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from toposcale.forecasting.logs.line_forms import BATCHES
from toposcale.forecasting.logs.names import END
from toposcale.forecasting.logs.rows import LogError
from toposcale.forecasting.logs.text_lines import Reading
from toposcale.forecasting.logs.trainer_states import FILE_NAME

PROGRAM = "transformers"
MIN_LINES = 2
"""Lines with a loss above which their epochs tell where their steps stand."""

GIVE_STEPS = f"give a log with both, or the {FILE_NAME} that transformers' Trainer writes beside its checkpoints"
_WHICH_STEP = f"whether the step of {{}} stands before it or after it is unknown; {GIVE_STEPS}"


def with_steps_of_bars(readings: Sequence[Reading], bars: Sequence[Reading]) -> tuple[list[Reading], tuple[str, ...]]:
    """Return the lines, those of the Trainer with the step of the bar before or after them, and a note.

    tqdm draws the bar again after it wrote a line; in two streams, the last bar is before it. The epochs tell which it is,
    and the steps, which are multiples of an interval.
    """
    logged = [reading for reading in readings if reading.form.program == PROGRAM and "epoch" in reading.columns]
    drawn = [*bars, *(reading for reading in logged if "step" in reading.columns)]  # a bar in front of the loss
    training = [reading for reading in logged if reading.is_training]
    if not (drawn and training):
        return [*readings], ()
    rows, steps, totals = (
        np.concatenate(parts)
        for parts in zip(*((bar.rows, bar.columns["step"], _total(bar)) for bar in drawn), strict=True)
    )
    order = np.argsort(rows, kind="stable")
    rows, steps, totals = rows[order], steps[order], totals[order]
    of_training = totals == np.nanmax(totals) if np.isfinite(totals).any() else np.ones(len(rows), dtype=bool)
    places, steps, total = rows[of_training], steps[of_training], totals[of_training][-1]
    lines = np.sort(np.concatenate([reading.rows for reading in training]))
    epochs = np.concatenate([reading.columns["epoch"] for reading in training])
    epochs = epochs[np.argsort(np.concatenate([reading.rows for reading in training]), kind="stable")]
    before, after = _around(lines, places, steps)
    unit = _rounding_of(np.concatenate([reading.columns["epoch"] for reading in logged]))
    fits = [_fit(steps, epochs, unit) for steps in (before, after)] if len(lines) > MIN_LINES else [[True], [False]]
    if fits[0] == fits[1] and not np.array_equal(before, after):
        raise LogError(_WHICH_STEP.format("a loss"))
    follows = fits[1] > fits[0]
    per_epoch = float(np.nanmedian((after if follows else before) / np.maximum(epochs, unit)))
    result = []
    for reading in readings:
        if reading in logged:
            before, after = _around(reading.rows, places, steps)
            own = after if follows else before
            if not reading.is_training and follows:  # the bar is not always drawn again
                own = _nearest(before, after, reading.columns["epoch"] * per_epoch, unit * per_epoch)
            reading = replace(reading, columns={**reading.columns, "step": own, END: np.full(len(own), total)})
        result.append(reading)
    return result, (f"the step of a loss is that of the progress bar {'after' if follows else 'before'} it",)


def _total(bar: Reading) -> np.ndarray:
    return bar.columns.get(END, bar.columns.get(BATCHES, np.full(len(bar.rows), np.nan)))


def _around(rows: np.ndarray, places: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps of the bars at or before rows, and after them, NaN where there is none."""
    index = np.searchsorted(places, rows, side="right")
    padded = np.array([np.nan, *steps, np.nan])
    return padded[index], padded[index + 1]


def _fit(steps: np.ndarray, epochs: np.ndarray, unit: float) -> list[bool]:
    """Return what speaks for steps (lines,), the surest first, at these epochs, which are rounded to a unit."""
    interval = np.nanmin(np.abs(np.diff(steps)), initial=np.inf)
    most = np.nanmin(steps / np.maximum(epochs - 0.501 * unit, 1e-200), initial=np.inf)
    return [
        bool(np.isfinite(steps[:-1]).all()),
        bool(np.nanmax(steps / (epochs + 0.501 * unit), initial=0) <= most),  # a constant number of them per epoch
        bool(interval > 0 and not np.any(steps[np.isfinite(steps)] % interval)),
        bool(steps[0] == interval),
    ]


def _rounding_of(epochs: np.ndarray) -> float:
    """Return the unit to which epochs are rounded, such as 0.01."""
    return float(10.0 ** -max([len(repr(epoch).partition(".")[2]) for epoch in epochs.tolist()], default=1))


def _nearest(before: np.ndarray, after: np.ndarray, expected: np.ndarray, tolerance: float) -> np.ndarray:
    """Return the one of two steps that is nearest to that of the epoch; raise LogError where rounding hides which."""
    distance = after - before
    if np.any((distance > 0) & (distance <= tolerance)):
        raise LogError(_WHICH_STEP.format("an evaluation"))
    return np.where(np.isnan(after) | (expected < before + distance / 2), before, after)
