"""Scaling laws in N by least squares: a N^b, and a N^b + c by a search over b alone, with intervals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import fdtri, stdtrit

from toposcale.statistics.coefficients import Floats
from toposcale.statistics.resampling import CONFIDENCE, independent_counts

EXPONENT_BOUND = 3.0
"""Exponents of a N^b + c are sought within plus and minus this; an interval that reaches it is open (infinite)."""

_POSITIVE = np.arange(0.01, EXPONENT_BOUND + 0.005, 0.01)
_GRID = np.concatenate([-_POSITIVE[::-1], _POSITIVE])


@dataclass(frozen=True)
class ScalingFit:
    """value = coefficient * N ** exponent + offset, R^2 (of logarithms without offset), and the exponent's interval."""

    coefficient: float
    exponent: float
    offset: float
    r_squared: float
    exponent_low: float
    exponent_high: float


def fit_power_law(n_parameters: ArrayLike, values: ArrayLike) -> ScalingFit:
    """Fit value = a N^b by least squares of logarithms, with Student's t interval of b (docs/method.md)."""
    x, y = _logarithms(n_parameters, values)
    slope, intercept, residual = _line(x, y)
    degrees_of_freedom, spread = len(x) - 2, ((x - x.mean()) ** 2).sum()
    half = stdtrit(degrees_of_freedom, 0.5 + CONFIDENCE / 2) * np.sqrt(residual / degrees_of_freedom / spread)
    return ScalingFit(float(np.exp(intercept)), slope, 0.0, _r_squared(residual, y), slope - half, slope + half)


def fit_power_law_with_offset(n_parameters: ArrayLike, values: ArrayLike) -> ScalingFit:
    """Fit value = a N^b + c by least squares: a and c are solved for every b within plus and minus 3.

    The interval holds every b that an F test with (1, K - 3) degrees of freedom does not reject, since resampling five
    models has far too low a coverage; beyond the range of b it is infinite.
    """
    sizes, y = _checked(n_parameters, values, smallest=4)
    scale = geometric_mean(sizes)

    def residuals_of(exponents: Floats) -> Floats:
        powers = (sizes / scale)[None, :] ** exponents[:, None]
        centred = powers - powers.mean(axis=1)[:, None]
        # sums, not BLAS, whose order of summation depends on the number of threads
        slopes = np.sum(centred * (y - y.mean()), axis=1) / np.sum(centred**2, axis=1)
        return ((y - y.mean() - slopes[:, None] * centred) ** 2).sum(axis=1)

    def residual_of(exponent: float) -> float:
        return float(residuals_of(np.array([exponent]))[0])

    best = int(np.argmin(residuals_of(_GRID)))
    bounds = _GRID[[max(best - 1, 0), min(best + 1, len(_GRID) - 1)]]
    refined = minimize_scalar(residual_of, bounds=bounds, method="bounded", options={"xatol": 1e-10})
    exponent = float(refined.x if refined.fun <= residual_of(_GRID[best]) else _GRID[best])
    residual = residual_of(exponent)
    slope, offset, _ = _line((sizes / scale) ** exponent, y)
    limit = residual * (1.0 + fdtri(1, len(y) - 3, CONFIDENCE) / (len(y) - 3))
    low, high = _crossings(residuals_of(_GRID), limit, exponent)
    return ScalingFit(slope * scale**-exponent, exponent, offset, _r_squared(residual, y), low, high)


def bootstrap_exponents(
    n_parameters: ArrayLike, values: ArrayLike, *, offset: bool, resamples: int, rng: np.random.Generator
) -> Floats:
    """Return the published bootstrap: exponents (resamples,) of fits to models drawn with replacement.

    Draws of fewer than 3 different sizes are drawn again. For `offset` exponents lie on a grid of 0.01.
    """
    if offset:
        sizes, y = _checked(n_parameters, values, smallest=4)
        scaled = sizes / geometric_mean(sizes)
        columns = scaled[None, :] ** _GRID[:, None]
    else:
        sizes, y = _logarithms(n_parameters, values)
        columns = sizes[None, :]
    # Few models have few different resamples: five models have 126.
    counts, drawn = np.unique(_varied_counts(sizes, resamples, rng), axis=0, return_inverse=True)
    covariance, spread, total = _weighted_moments(counts, columns, y)
    if not offset:
        return np.asarray((covariance / spread)[drawn.ravel(), 0])
    with np.errstate(invalid="ignore", divide="ignore"):
        residuals = total[:, None] - np.where(spread > 0, covariance**2 / spread, 0.0)
    return np.asarray(_GRID[np.argmin(residuals, axis=1)][drawn.ravel()])


def _checked(n_parameters: ArrayLike, values: ArrayLike, *, smallest: int) -> tuple[Floats, Floats]:
    sizes, y = np.asarray(n_parameters, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if sizes.ndim != 1 or sizes.shape != y.shape:
        raise ValueError(f"values: shape {y.shape}, but n_parameters has shape {sizes.shape}")
    if not (np.isfinite(sizes).all() and (sizes > 0).all()):
        raise ValueError("n_parameters: not all positive and finite")
    if not np.isfinite(y).all():
        raise ValueError("values: not all finite")
    n_sizes = len(np.unique(sizes))
    if n_sizes < smallest:
        raise ValueError(f"n_parameters: {n_sizes} different sizes; this law needs at least {smallest}")
    return sizes, y


def _logarithms(n_parameters: ArrayLike, values: ArrayLike) -> tuple[Floats, Floats]:
    sizes, y = _checked(n_parameters, values, smallest=3)
    if not (y > 0).all():
        raise ValueError("values: not all positive, so they have no logarithm")
    return np.log(sizes), np.log(y)


def geometric_mean(sizes: Floats) -> float:
    """Return the unit in which powers of `sizes` neither overflow nor vanish."""
    return float(np.exp(np.log(sizes).mean()))


def _line(x: Floats, y: Floats) -> tuple[float, float, float]:
    """Return slope, intercept and residual sum of squares of the least-squares line."""
    centred = x - x.mean()
    slope = float((centred * y).sum() / (centred * centred).sum())
    intercept = float(y.mean() - slope * x.mean())
    return slope, intercept, float(((y - y.mean() - slope * centred) ** 2).sum())


def _crossings(residuals: Floats, limit: float, exponent: float) -> tuple[float, float]:
    """Return the smallest and largest exponent of the grid whose residual stays within `limit`; infinite at its ends."""
    allowed = np.flatnonzero(residuals <= limit)
    if len(allowed) == 0:
        return exponent, exponent
    # One grid step outwards: the true crossing lies between an allowed point and its refused neighbour.
    ends = np.concatenate([[-np.inf], _GRID, [np.inf]])[[allowed[0], allowed[-1] + 2]]
    return min(exponent, float(ends[0])), max(exponent, float(ends[1]))


def _varied_counts(sizes: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Draw multiplicities (resamples, K), each with at least three different sizes."""
    _, labels = np.unique(sizes, return_inverse=True)
    member = np.eye(labels.max() + 1)[labels]
    kept: list[Floats] = []
    while sum(map(len, kept)) < resamples:
        counts = independent_counts(len(sizes), resamples, rng)
        kept.append(counts[(counts @ member > 0).sum(axis=1) >= 3])
    return np.concatenate(kept)[:resamples]


def _weighted_moments(counts: Floats, columns: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Return covariance and spread (B, G) of each column with y, and the spread of y (B,), given counts (B, K)."""
    n = counts.sum(axis=1)
    columns = columns - columns.mean(axis=1, keepdims=True)
    y = y - y.mean()
    column_sum = np.einsum("bk,gk->bg", counts, columns)
    y_sum = np.einsum("bk,k->b", counts, y)
    covariance = np.einsum("bk,gk->bg", counts, columns * y) - column_sum * (y_sum / n)[:, None]
    spread = np.einsum("bk,gk->bg", counts, columns**2) - column_sum**2 / n[:, None]
    return covariance, spread, np.einsum("bk,k->b", counts, y * y) - y_sum**2 / n


def _r_squared(residual: float, y: Floats) -> float:
    total = float(((y - y.mean()) ** 2).sum())
    return 1.0 - residual / total if total > 0 else float("nan")
