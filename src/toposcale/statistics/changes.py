"""Changes of the trend of a series: the largest one, and change points."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.statistics.coefficients import Floats

SETTLED_SHARE = 0.1
MIN_SEGMENT = 3
PENALTY_FACTOR = 6.0
"""A change point costs this times log(n) noise variances; false alarms are measured in the tests."""


@dataclass(frozen=True)
class Transition:
    """The step that ends the largest change, that change, and the step at which it settled; NaN if there is none."""

    step: float
    change: float
    settled_step: float


def largest_change(steps: ArrayLike, values: ArrayLike) -> Transition:
    """Find the step of max |change| between checkpoints (T,), and the first later step with a change below a tenth of it.

    The transition rule of the reproduced paper (docs/method.md). A change counts for the step at its end; of equal ones
    the first.
    """
    times, series = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if times.ndim != 1 or times.shape != series.shape:
        raise ValueError(f"values: shape {series.shape}, but steps has shape {times.shape}")
    if not np.isfinite(series).all():
        raise ValueError("values: not all finite; leave those points out first")
    if np.any(np.diff(times) <= 0):
        raise ValueError("steps: not increasing")
    changes = np.diff(series)
    sizes = np.abs(changes)
    if len(sizes) == 0 or sizes.max() == 0.0:
        return Transition(float("nan"), float("nan"), float("nan"))
    largest = int(np.argmax(sizes))
    calm = np.flatnonzero(sizes[largest + 1 :] < SETTLED_SHARE * sizes[largest])
    settled = float(times[largest + 2 + calm[0]]) if len(calm) else float("nan")
    return Transition(float(times[largest + 1]), float(changes[largest]), settled)


def change_points(values: ArrayLike) -> NDArray[np.int64]:
    """Return the indices at which a new linear segment begins: the optimal partition (Jackson et al. 2005).

    Lines, so that a steady drift is not a change. A segment has at least `MIN_SEGMENT` points. The penalty is
    `PENALTY_FACTOR` log(n) noise variances, from the median absolute second difference. A smooth bend beyond the noise is
    cut, and autocorrelated noise is taken for changes.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1 or not np.isfinite(series).all():
        raise ValueError("values: expected one finite series")
    spread = np.ptp(series) if len(series) else 0.0
    if len(series) < 2 * MIN_SEGMENT or spread == 0.0:
        return np.array([], dtype=np.int64)
    series = (series - series.mean()) / spread
    # For white noise the second difference has six times its variance; 0.6745 is the median of |N(0, 1)|.
    noise = max(float(np.median(np.abs(np.diff(series, 2))) / 0.6745 / np.sqrt(6.0)), 1e-6)
    penalty = PENALTY_FACTOR * np.log(len(series)) * noise**2
    costs, n = _line_costs(series) + penalty, len(series)
    # The least cost of the first k points, and where their last segment begins.
    least, begins = np.full(n + 1, np.inf), np.zeros(n + 1, dtype=np.int64)
    least[0] = 0.0
    for end in range(MIN_SEGMENT, n + 1):
        totals = (least + costs[:, end])[: end - MIN_SEGMENT + 1]
        begins[end] = totals.argmin()
        least[end] = totals[begins[end]]
    points = [begins[n]]
    while points[-1]:
        points.append(begins[points[-1]])
    return np.array(points[-2::-1], dtype=np.int64)


def _line_costs(series: Floats) -> Floats:
    """Return the residual sum of squares of a line through series[start:end], in row `start` and column `end`."""
    n = len(series)
    time = np.arange(n) - (n - 1) / 2
    moments = [np.ones(n), time, time**2, series, series * time, series**2]
    sums = [np.concatenate([[0.0], np.cumsum(moment)]) for moment in moments]
    count, t, tt, y, ty, yy = (total[None, :] - total[:, None] for total in sums)
    count = np.maximum(count, 1.0)
    spread = tt - t * t / count
    covariance = ty - t * y / count
    explained = np.where(spread > 1e-9, covariance**2 / np.where(spread > 1e-9, spread, 1.0), 0.0)
    return np.maximum(yy - y * y / count - explained, 0.0)
