"""Points of a loss curve, its outliers, and the selection of the points that a law is fitted to."""

from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from scipy.ndimage import grey_closing, rank_filter

from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.series import bin_medians, noise_of

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
