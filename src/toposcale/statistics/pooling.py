"""Random-effects means of correlations over models and seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from toposcale.statistics.correlation import Floats

LARGEST_Z = float(np.arctanh(1.0 - 1e-6))
"""Fisher z of a correlation of +-1 is infinite; it is taken as that of 0.999999."""


@dataclass(frozen=True)
class RandomEffects:
    """Pooled estimate with interval, two-sided p-value, heterogeneity I^2 in [0, 1], and number of
    studies."""

    estimate: Floats
    low: Floats
    high: Floats
    p_value: Floats
    i_squared: Floats
    n_studies: Floats


def pooled_correlation(
    correlations: ArrayLike, effective_n: ArrayLike, *, n_controls: int = 0, confidence: float = 0.95
) -> RandomEffects:
    """Random-effects mean of correlations (..., models) through Fisher's z, of variance 1 / (n_eff - 3 -
    n_controls).

    effective_n (..., models): `correlation.effective_sample_size`, or the degrees of freedom + 2; a variance
    is at most 1 (four effective points). NaN correlations are left out and n_studies says how many were not.
    """
    r = np.asarray(correlations, dtype=np.float64)
    z = np.clip(np.arctanh(np.clip(r, -1 + 1e-6, 1 - 1e-6)), -LARGEST_Z, LARGEST_Z)
    variance = 1.0 / np.maximum(np.asarray(effective_n, dtype=np.float64) - 3.0 - n_controls, 1.0)
    pooled = random_effects(z, variance, confidence=confidence)
    return RandomEffects(
        np.tanh(pooled.estimate),
        np.tanh(pooled.low),
        np.tanh(pooled.high),
        pooled.p_value,
        pooled.i_squared,
        pooled.n_studies,
    )


def random_effects(estimates: ArrayLike, variances: ArrayLike, *, confidence: float = 0.95) -> RandomEffects:
    """DerSimonian-Laird (1986) mean over the last axis, with the Hartung-Knapp interval.

    The interval uses Student's t with k - 1 degrees of freedom and a standard error never below the
    fixed-effect one, because a normal interval of five studies is far too short. One study keeps its own
    normal interval; its I^2 is NaN.
    """
    y = np.asarray(estimates, dtype=np.float64)
    v = np.broadcast_to(np.asarray(variances, dtype=np.float64), y.shape)
    used = np.isfinite(y) & np.isfinite(v)
    if np.any(v[used] <= 0):
        raise ValueError("variances: not all positive")
    k = used.sum(axis=-1).astype(np.float64)
    y = np.where(used, y, 0.0)
    fixed = np.where(used, 1.0 / np.where(used, v, 1.0), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        q = _spread(y, fixed)
        total = fixed.sum(axis=-1)
        scale = total - (fixed * fixed).sum(axis=-1) / total
        between = np.where(k > 1, np.maximum(q - (k - 1), 0.0) / np.where(scale > 0, scale, 1.0), 0.0)
        weights = np.where(used, 1.0 / (np.where(used, v, 1.0) + between[..., None]), 0.0)
        mean = (weights * y).sum(axis=-1) / weights.sum(axis=-1)
        inflation = np.where(k > 1, np.maximum(_spread(y, weights) / (k - 1), 1.0), 1.0)
        error = np.sqrt(inflation / weights.sum(axis=-1))
        freedom = np.where(k > 1, k - 1, 1e9)
        half = stdtrit(freedom, 0.5 + confidence / 2) * error
        p_value = 2.0 * stdtr(freedom, -np.abs(mean) / error)
        i_squared = np.where(k > 1, np.where(q > 0, np.maximum(1.0 - (k - 1) / q, 0.0), 0.0), np.nan)
    none = k == 0
    mean, half, p_value = (np.where(none, np.nan, part) for part in (mean, half, p_value))
    return RandomEffects(mean, mean - half, mean + half, p_value, i_squared, k)


def _spread(y: Floats, weights: Floats) -> Floats:
    mean = (weights * y).sum(axis=-1, keepdims=True) / weights.sum(axis=-1, keepdims=True)
    return (weights * (y - mean) ** 2).sum(axis=-1)
