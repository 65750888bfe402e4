"""Columns of steps and values, as tables and logs hold them: in order, on one grid, and their noise."""

import numpy as np
from numpy.typing import ArrayLike

Series = tuple[ArrayLike, ArrayLike]
"""Steps (n,), and the values there, (n,) or (n, length)."""


def read_only(values: ArrayLike) -> np.ndarray:
    """Return a read-only float64 copy."""
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array


def last_of_each(steps: np.ndarray) -> np.ndarray:
    """Return rows in the order of their steps, of each step the last one."""
    order = np.argsort(steps, kind="stable")
    is_last = np.append(np.diff(steps[order]) > 0, True)[: len(steps)]
    return np.asarray(order[is_last])


def in_order(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and values, ascending, each step once."""
    steps, values = (np.asarray(part, dtype=np.float64) for part in series)
    order = last_of_each(steps)
    return steps[order], values[order]


def logged_again(count: int) -> str:
    """Return the note on steps that were logged more than once."""
    return f"of {count:,} steps that were logged more than once the last value counts"


def on_grid(grid: np.ndarray, steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the values at the steps of a grid, NaN where there is none."""
    aligned = np.full((len(grid), *values.shape[1:]), np.nan)
    _, target, source = np.intersect1d(grid, steps, return_indices=True)
    aligned[target] = values[source]
    return aligned


MIN_FOR_NOISE = 7
"""Fewest values from which their noise is estimated."""


def noise_of(log_losses: np.ndarray) -> float:
    """Estimate the standard deviation of the noise of a series (0 if too short) by the MAD of its fourth differences."""
    if len(log_losses) < MIN_FOR_NOISE:
        return 0.0
    # Second differences of a dozen validation losses are curvature: they exceed the noise of replicates fivefold.
    return float(1.4826 * np.median(np.abs(np.diff(log_losses, 4))) / np.sqrt(70))


TREND_DEGREE = 5
"""Degree of the trend of a curve's slope over the log of the step."""

CLIP = 4.0
"""Robust standard deviations from which a residual of that trend is an outlier."""


def difference_autocorrelation(steps: np.ndarray, losses: np.ndarray) -> float:
    """Return the lag-1 autocorrelation of the differences of log losses (rows,) around their trend; steps from 1 on.

    -1/2 of independent noise around a smooth curve, -alpha/2 of its exponential average with weight alpha of the newest.
    """
    times = np.log(steps)
    slope = np.polynomial.legendre.legvander(np.interp(times[1:], times[[0, -1]], [-1, 1]), TREND_DEGREE)
    trend = np.column_stack([slope * np.diff(times)[:, None], np.ones(len(slope))])
    changes = np.diff(np.log(losses))
    residuals = changes - trend @ np.linalg.lstsq(trend, changes, rcond=None)[0]
    limit = CLIP * 1.4826 * np.median(np.abs(residuals))
    residuals = np.clip(residuals, -limit, limit)
    return float(residuals[1:] @ residuals[:-1] / (residuals @ residuals)) if limit > 0 else np.nan
