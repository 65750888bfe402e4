"""Shifts of the level of a loss curve: a resume, other data or another batch moves the loss from one row to the next."""

from typing import NamedTuple

import numpy as np

from toposcale.forecasting.runs.curves import is_outlier
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.series import noise_of

MIN_SHIFT = 0.03
"""Least shift, nats: twice the scatter of an end around its own curve, and far above the noise between seeds."""

MIN_Z = 5.0
"""Standard errors of a shift, by the scatter of the rows around it. With `MIN_RELATIVE_Z` and `MIN_SHIFT` none of 600
random laws has a shift; the published runs with one were resumed, diverged, repeat their text, or were digitised."""

MIN_RELATIVE_Z = 3.4
"""Standard errors of a shift in units of the usual ones along the same curve, whose noise may be autocorrelated."""

HALF_WINDOW = 0.2
"""Half the width of the window around a boundary, in the logarithm of the step."""

MAX_WINDOW = 1.0
"""Largest width of a window that few rows make wide, in the logarithm of the step: a quadratic fits no more."""

ROWS_BEFORE = 5
"""Rows that a shift needs before it."""

ROWS_AFTER = 2
"""Rows that a shift needs after it: one row may be an outlier."""

MIN_NOISE = 1e-3
"""Least standard deviation of a row, as a share of the loss: losses are rounded."""

MAX_RATE_CHANGE = 0.5
"""Change of the learning rate within a window, as a share of the peak, above which the loss may change by the rate."""

MAX_ROWS = 300
"""Rows that are compared: longer logs are averaged in bins of as many rows each."""


class LevelShift(NamedTuple):
    """Shift of a loss curve between two rows: the steps of both, and the change of the level in nats per token."""

    before: int
    after: int
    change: float


def find_level_shift(steps: np.ndarray, losses: np.ndarray, schedule: LearningRateSchedule) -> LevelShift | None:
    """Find the most significant shift of level of a loss curve.

    A quadratic in the logarithm of the step, with a step function, is fitted to the rows around each boundary between
    two rows. It is significant by the residuals of that fit and by the scatter of the same statistic along the curve.

    Parameters
    ----------
    steps, losses : ndarray of shape (n_rows,)
        Ascending steps and losses in nats per token; NaN where there is none.
    schedule : LearningRateSchedule
        Where the rate changes much within a window, a shift cannot be told from its effect, and is not looked for.

    Returns
    -------
    LevelShift or None
        None: no shift is significant, or there are too few rows.

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
    >>> steps = np.arange(100.0, 10_001, 100)
    >>> losses = 2.5 + 20 * steps**-0.5 + 0.002 * np.random.default_rng(1).standard_normal(100)
    >>> schedule = LearningRateSchedule(20_000, np.full(20_001, 1e-3))
    >>> find_level_shift(steps, losses, schedule) is None
    True
    >>> shift = find_level_shift(steps, losses - 0.06 * (steps > 6000), schedule)
    >>> shift.before, shift.after, round(shift.change, 2)
    (6000, 6100, -0.06)
    """
    usable = np.isfinite(losses) & (losses > 0) & (steps > 2 * max(schedule.warmup_steps, 1))
    usable &= ~is_outlier(steps, losses, schedule) if len(steps) else usable
    steps, losses = steps[usable], losses[usable]
    if len(steps) > MAX_ROWS:
        starts = np.linspace(0, len(steps), MAX_ROWS + 1).astype(int)[:-1]
        sizes = np.diff(np.append(starts, len(steps)))
        steps, losses = np.add.reduceat(steps, starts) / sizes, np.add.reduceat(losses, starts) / sizes
    boundaries = np.arange(ROWS_BEFORE, len(steps) - ROWS_AFTER + 1)
    if not len(boundaries):
        return None
    changes, z = _shifts(np.log(steps), np.log(losses), boundaries, _shares_of_peak(schedule, steps))
    best = int(np.argmax(np.abs(z)))
    if not z[best]:
        return None
    relative = z[best] / max(1.0, 1.4826 * float(np.median(np.abs(z[z != 0.0]))))
    row = boundaries[best]
    change = float(changes[best] * losses[row - 1])
    if abs(z[best]) < MIN_Z or abs(relative) < MIN_RELATIVE_Z or abs(change) < MIN_SHIFT:
        return None
    return LevelShift(round(steps[row - 1]), round(steps[row]), change)


def _shifts(
    times: np.ndarray, logs: np.ndarray, boundaries: np.ndarray, rates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the shift of log losses at each boundary, and in standard errors: 0 where it cannot be told from the rate.

    times, logs, rates (rows,): logarithms of steps and losses, and learning rates as shares of the peak.
    boundaries: rows that are the first ones after a boundary.
    """
    centres = (times[boundaries - 1] + times[boundaries]) / 2
    first = np.minimum(np.searchsorted(times, centres - HALF_WINDOW), boundaries - ROWS_BEFORE)
    end = np.minimum(np.maximum(np.searchsorted(times, centres + HALF_WINDOW), boundaries + 2 * ROWS_AFTER), len(times))
    rows = first[:, None] + np.arange(np.max(end - first))
    inside = rows < end[:, None]
    rows = np.minimum(rows, len(times) - 1)
    ahead = (times[rows] - centres[:, None]) / HALF_WINDOW
    n_rows = end - first
    is_curved = n_rows > 2 * (ROWS_BEFORE - 1)
    terms = [ahead > 0, np.ones_like(ahead), ahead, np.where(is_curved[:, None], ahead**2, 0.0)]
    design = np.stack(terms, axis=-1) * inside[..., None]
    moments = np.einsum("brk,brl->bkl", design, design)
    moments[~is_curved, 3, 3] = 1.0
    inverse = np.linalg.inv(moments)
    observed = logs[rows]
    estimates = np.einsum("bkl,brl,br->bk", inverse, design, observed)
    residuals = np.where(inside, observed - np.einsum("brk,bk->br", design, estimates), 0.0)
    variance = np.sum(residuals**2, axis=1) / (n_rows - 3 - is_curved)
    sd = np.sqrt(np.maximum(variance, max(noise_of(logs), MIN_NOISE) ** 2) * inverse[:, 0, 0])
    rate_change = np.max(rates[rows], axis=1, where=inside, initial=0.0) - np.min(
        rates[rows], axis=1, where=inside, initial=1.0
    )
    is_wide = times[end - 1] - times[first] > MAX_WINDOW
    return estimates[:, 0], np.where((rate_change > MAX_RATE_CHANGE) | is_wide, 0.0, estimates[:, 0] / sd)


def _shares_of_peak(schedule: LearningRateSchedule, steps: np.ndarray) -> np.ndarray:
    """Return the learning rate at each step (rows,) as a share of the peak; 1 where none is known."""
    if not len(schedule.rates):
        return np.ones(len(steps))
    return np.asarray(
        schedule.rates[np.minimum(np.rint(steps).astype(int), len(schedule.rates) - 1)] / schedule.peak_rate
    )
