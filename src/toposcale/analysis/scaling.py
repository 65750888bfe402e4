"""Scaling laws of every feature and metric at the final step."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import fdtri, stdtrit

from toposcale.analysis.series import SERIES_KEY, final_values, largest_family, whole_model
from toposcale.io import schemas
from toposcale.statistics.coefficients import Floats, correlation_p_value, spearman
from toposcale.statistics.resampling import CONFIDENCE

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
    sizes, measured = _checked(n_parameters, values, smallest=3)
    if not (measured > 0).all():
        raise ValueError("values: not all positive, so they have no logarithm")
    x, y = np.log(sizes), np.log(measured)
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
    scale = np.exp(np.log(sizes).mean())  # in this unit powers neither overflow nor vanish

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


def _r_squared(residual: float, y: Floats) -> float:
    total = float(((y - y.mean()) ** 2).sum())
    return 1.0 - residual / total if total > 0 else float("nan")


_FITS = {"power_law": fit_power_law, "power_law_with_offset": fit_power_law_with_offset}


def scaling_tables(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Make the table scaling: both laws of every whole-model feature and metric (source "metric") in n_parameters.

    Models of one family are compared: of the one with the most sizes. Models of unknown size are left out.
    """
    rows = []
    sizes_of = largest_family(models)[["model", "n_parameters"]].dropna()
    final = final_values(whole_model(features), metrics).merge(sizes_of, on="model")
    finite = final[np.isfinite(final["value"])].sort_values(["n_parameters", "model"])
    for key, series in finite.groupby(SERIES_KEY, sort=True):
        sizes, values = (series[name].to_numpy(np.float64) for name in ("n_parameters", "value"))
        key_columns = dict(zip(SERIES_KEY, map(str, key), strict=True))
        trend = spearman(sizes, values)[0, 0] if len(sizes) > 1 else np.nan
        for law, fit_law in _FITS.items():
            p = float(correlation_p_value(trend, len(sizes)))
            row = {**key_columns, "law": law, "n_models": len(sizes), "spearman": trend, "p": p}
            try:
                rows.append(row | vars(fit_law(sizes, values)))
            except ValueError as error:
                rows.append(row | {"reason": str(error)})
    return {"scaling": schemas.TABLES["scaling"].frame(rows)}
