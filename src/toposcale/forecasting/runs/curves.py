"""Points of a loss curve: its outliers, the points that a law is fitted to, and shifts of its level."""

from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from scipy.ndimage import grey_closing, rank_filter

from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.series import noise_of

SPIKE = 0.03
"""A loss is a spike where it lies this share, and six times the noise, above the medians of the rows on both sides."""

WIDTH = 9
"""Rows of such a median."""


def is_spike(losses: np.ndarray) -> np.ndarray:
    """Return whether each loss (rows,) is above the medians of the 9 rows before and after it, by more than noise."""
    n = len(losses)
    if n < WIDTH:
        return np.zeros(n, dtype=bool)
    logs, running, limit = _levels(losses)
    missing = np.full(WIDTH, -np.inf)
    before = np.concatenate([missing, running])[:n]
    after = np.concatenate([running[1:], missing])[:n]
    # The first rows fall steeply, and nothing stands before them.
    return np.asarray((logs > np.maximum(before, after) + limit) & np.isfinite(before))


def _levels(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return log losses (rows,), their medians over rows i to i + 8, and the distance from these that is beyond noise."""
    logs = np.log(np.maximum(losses, 1e-12))
    running = _running_median(logs, WIDTH)
    noise = 1.4826 * float(np.median(np.abs(logs[WIDTH // 2 : len(logs) - WIDTH // 2] - running)))
    return logs, running, max(SPIKE, 6 * noise)


def _running_median(values: np.ndarray, width: int) -> np.ndarray:
    """Return the medians of whole windows (rows - width + 1,), in memory of the order of the rows."""
    middle = slice(width // 2, width // 2 + len(values) - width + 1)  # whole windows
    medians = rank_filter(values, width // 2, size=width)
    if width % 2 == 0:  # the mean of the two in the middle
        medians = (rank_filter(values, width // 2 - 1, size=width) + medians) / 2
    return np.asarray(medians[middle])


LONGEST_DIP = 8
"""A level of fewer rows than this share of a curve, one in 8, is a dip if it is higher before and after."""


class Rise(NamedTuple):
    """Smoothed loss now, and the lowest smoothed loss before."""

    now: float
    lowest: float


def rise(losses: np.ndarray, width: int) -> Rise | None:
    """Return the rise of losses (rows,) above their lowest running median; None if it is within noise.

    The loss now is the median of the last `width` rows. The running median is over a tenth of the rows, and its dips are
    filled, so that they do not count. The noise is that of single rows, and that of medians of `width` rows around the
    running median.
    """
    n = len(losses)
    if n <= width:
        return None
    logs = np.log(np.maximum(losses, 1e-12))
    wide = max(width, min(11, n // 3), n // 10)
    medians, smooth = _running_median(logs, width), _running_median(logs, wide)
    around = medians[(wide - width) // 2 :][: len(smooth)] - smooth
    scatter = 1.4826 * float(np.median(np.abs(around - np.median(around)))) if len(around) > width else 0.0
    limit = max(np.log1p(SPIKE), 6 * noise_of(logs), 6 * scatter)
    level = _filled(smooth, n // LONGEST_DIP)
    lowest = np.where(smooth < level - limit, level, smooth).min()
    if medians[-1] - lowest <= limit:
        return None
    return Rise(float(np.exp(medians[-1])), float(np.exp(lowest)))


def _filled(values: np.ndarray, width: int) -> np.ndarray:
    """Return values whose dips of fewer than `width` rows are filled up to the lower of their sides (a closing)."""
    if width < 2:
        return values
    around = np.pad(values, width - 1, mode="edge")
    return np.asarray(grey_closing(around, size=width)[width - 1 : len(around) - width + 1])


def is_excursion(losses: np.ndarray) -> np.ndarray:
    """Return whether each loss (rows,) belongs to a rise above the lowest loss before that later recovers.

    `is_spike` misses rises of many rows, whose neighbours are as high. A rise at the end is not an excursion, since whether
    it recovers is unknown.
    """
    n, wide = len(losses), 19
    if n < 3 * WIDTH:
        return np.zeros(n, dtype=bool)
    logs, running, limit = _levels(losses)
    # Short dips do not count as the lowest loss.
    around = np.pad(_running_median(logs, wide), (wide - WIDTH) // 2, constant_values=-np.inf)
    running = np.where(running < around - limit, around, running)
    before = np.full(n, np.inf)  # lowest running median of the rows before
    before[WIDTH:] = np.minimum.accumulate(running)[: n - WIDTH]
    after = np.full(n, np.inf)  # lowest running median of the rows after
    after[: n - WIDTH] = np.minimum.accumulate(running[::-1])[::-1][1 : n - WIDTH + 1]
    return np.asarray((logs > before + limit) & (after < before + limit))


def is_dip(losses: np.ndarray) -> np.ndarray:
    """Return whether each loss (rows,) belongs to a dip of several rows, with a higher level before and after it."""
    n = len(losses)
    if n < 3 * WIDTH:
        return np.zeros(n, dtype=bool)
    _, running, limit = _levels(losses)
    return np.pad(running < _filled(running, n // LONGEST_DIP) - limit, WIDTH // 2)


def without_false_start(steps: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the points without the first, where it lies far below all others: a row of something else, such as the end."""
    if len(losses) > 2 and losses[0] < (1 - SPIKE) * losses[1] and np.all(np.diff(losses[1:4]) < 0):
        return steps[1:], losses[1:]
    return steps, losses


def has_dropped(steps: np.ndarray, losses: np.ndarray, restart: float) -> bool:
    """Return whether the losses after a restart lie below the extrapolated line of those before it, by more than noise.

    steps: (rows,), ascending. Loss curves are convex, so without a change the losses lie above that line.
    """
    row, half = np.searchsorted(steps, (restart, restart / 2)).tolist()
    n = min(len(steps) - row, (row - half) // 2, 150)  # short enough to be linear in log-log coordinates
    if n < 5:
        return False
    times, logs = np.log(np.maximum(steps, 1.0)), np.log(np.maximum(losses, 1e-12))
    before, after = slice(row - 2 * n, row), slice(row, row + n)
    x, y = times[before] - times[before].mean(), logs[before] - logs[before].mean()
    ahead, power = times[after].mean() - times[before].mean(), float(x @ x)
    slope = float(x @ y) / power
    change = logs[after].mean() - logs[before].mean() - slope * ahead
    spread = np.sqrt(np.sum((y - slope * x) ** 2) / (2 * n - 2))
    error = spread * np.sqrt(1.5 / n + ahead**2 / power)
    return bool(change < -3 * max(error, 1e-4))


SMOOTHED_ROWS = 150
"""Rows that `is_moving_average` needs."""

AS_A_WALK = 1.3, 3.3
"""Range in which the spread of a random walk grows with twice the lag: by 2. Of 400 moving averages of planted noise,
weights .9 to .99, over 85% lie in it; of 27 published logs none."""


def is_moving_average(losses: np.ndarray) -> bool:
    """Return whether losses (rows,) move like the exponential average of noisy ones.

    Over a few rows such an average is a random walk around the curve: the squared second difference over 2, 4 and 8 rows is
    twice that over 1, 2 and 4. Of single noisy rows it is about the same; of a smooth curve it grows 16-fold.
    """
    if len(losses) < SMOOTHED_ROWS:
        return False
    logs = np.log(np.maximum(losses, 1e-12))
    spread = [
        float(np.median(np.abs(logs[2 * lag :] - 2 * logs[lag:-lag] + logs[: -2 * lag])) ** 2) for lag in (1, 2, 4, 8)
    ]
    low, high = AS_A_WALK
    return all(low * near < far < high * near for near, far in pairwise(spread))


LOG_BINS = 40
"""Geometric bins of a training log; a bin is worth the median of its rows."""


class Curve(NamedTuple):
    """Points of a loss curve: ascending steps and values, both (points,)."""

    steps: np.ndarray
    losses: np.ndarray

    @classmethod
    def finite(cls, steps: np.ndarray, values: np.ndarray) -> Self:
        """Return the finite values (rows,), each with its step."""
        usable = np.isfinite(values)
        return cls(steps[usable], values[usable])

    @property
    def is_empty(self) -> bool:
        """Return whether there is no point."""
        return not len(self.steps)

    @property
    def level(self) -> float:
        """Level at the end: the median of the last three points; NaN without a point."""
        return float(np.median(self.losses[-3:])) if len(self.losses) else np.nan

    def since(self, step: float) -> Self:
        """Return the points from a step on."""
        later = self.steps >= step
        return self._replace(steps=self.steps[later], losses=self.losses[later])


def after_warmup(steps: np.ndarray, values: np.ndarray, schedule: LearningRateSchedule) -> Curve:
    """Return the finite values (rows,) from the end of the warm-up on, spikes included."""
    return Curve.finite(steps, values).since(max(schedule.warmup_steps, 1))


def is_outlier(steps: np.ndarray, values: np.ndarray, schedule: LearningRateSchedule) -> np.ndarray:
    """Return whether each value (rows,) after the warm-up is a spike, or belongs to an excursion or a dip."""
    outliers = np.isfinite(values) & (steps >= max(schedule.warmup_steps, 1))
    outliers[outliers] = is_spike(values[outliers]) | is_excursion(values[outliers]) | is_dip(values[outliers])
    return outliers


def binned(steps: np.ndarray, values: np.ndarray, schedule: LearningRateSchedule) -> Curve:
    """Return medians of values (rows,) after the warm-up, in `LOG_BINS` geometric bins and more in a decay."""
    steps, values = after_warmup(steps, np.where(is_outlier(steps, values, schedule), np.nan, values), schedule)
    return Curve(*bin_medians(steps, values, LOG_BINS, schedule.rates))


def bin_medians(
    steps: np.ndarray, values: np.ndarray, bins: int, rates: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Median steps and median values in at most `bins` geometric bins; steps ascending.

    rates: the learning rate of every step. A full decay is worth half as many bins again, so that no bin blurs it.
    """
    if len(steps) < 2:
        return steps, values
    first, last = max(steps[0], 1.0), steps[-1] * (1 + 1e-9)
    position = bins * np.log(np.maximum(steps, 1.0) / first) / np.log(last / first)
    if rates is not None and len(rates):
        decay_so_far = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(rates)))]) / rates.max()
        decayed = decay_so_far[np.minimum(np.rint(steps).astype(np.int64), len(rates) - 1)]
        position += bins / 2 * (decayed - decayed[0])
    _, starts, bins_of_rows = np.unique(np.floor(position), return_index=True, return_inverse=True)
    ends = np.append(starts[1:], len(steps))
    lower, upper = (starts + ends - 1) // 2, (starts + ends) // 2  # the middle row twice, or the two in the middle
    sorted_in_bins = values[np.lexsort((values, bins_of_rows))]
    return (steps[lower] + steps[upper]) / 2, (sorted_in_bins[lower] + sorted_in_bins[upper]) / 2


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
    >>> from toposcale.forecasting import LearningRateSchedule
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
