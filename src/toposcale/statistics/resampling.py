"""Bootstrap of correlations: independent and moving-block resamples, shared by all series of a model.

A resample is held as multiplicities. The average rank of point t in it is sum_s m_s [x_s < x_t] +
(sum_s m_s [x_s = x_t] + 1) / 2: one matrix product for all resamples. Ranks are half-integers, so every sum is exact and
the bits do not depend on BLAS or its threads.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.statistics.coefficients import Floats, as_series, flattened, standardised

CONFIDENCE = 0.95
"""Coverage that every interval is made for."""
TAILS = ((1.0 - CONFIDENCE) / 2.0, 1.0 - (1.0 - CONFIDENCE) / 2.0)
"""The two quantiles of the resamples that such an interval lies between."""
MAX_UNDEFINED = 0.1
"""An interval is NaN where more than this share of its resamples has no value (a constant resample)."""
DEGENERATE = 1e-12
"""Width up to which an interval counts as degenerate."""
_CHUNK_BYTES = 4 * 2**20  # stays in the cache
_EXACT_SINGLE = 2**24  # integers up to here are exact in single precision


def independent_counts(n: int, resamples: int, rng: np.random.Generator) -> Floats:
    """Draw n of n points with replacement: multiplicities (resamples, n)."""
    return _multiplicities(rng.integers(0, n, (resamples, n)), n)


def moving_block_counts(n: int, resamples: int, rng: np.random.Generator, block_length: int | None = None) -> Floats:
    """Draw moving-block resamples (Kuensch 1989) of n points in time: multiplicities (resamples, n).

    Blocks start anywhere from 0 to n - block_length; the last one is cut so that n points are drawn. By default a block has
    the square root of n points, rounded up: more than n^(1/3), which is best for short memory
    (`python -m studies.nulls.surrogates` prints the measured coverage).
    """
    length = max(1, int(np.ceil(np.sqrt(n)))) if block_length is None else block_length
    if not 1 <= length <= n:
        raise ValueError(f"block_length: {length} is not within 1 and {n}")
    starts = rng.integers(0, n - length + 1, (resamples, -(-n // length)))
    drawn_points = (starts[:, :, None] + np.arange(length)).reshape(resamples, -1)[:, :n]
    return _multiplicities(drawn_points, n)


def bootstrap_spearman(x: ArrayLike, y: ArrayLike, counts: Floats) -> Floats:
    """Compute Spearman correlations (B, S, M) of x (S, T), y (M, T) in resamples (B, T), ranked within each."""
    first, second = flattened(as_series(x, "x")), flattened(as_series(y, "y"))
    # The terms are multiples of 1/4 and add up to at most n^3 / 4: single precision is exact, too, and takes half the time.
    counts = counts.astype(np.float32 if (counts.sum(axis=1) ** 3 <= _EXACT_SINGLE).all() else np.float64)
    mean_rank = ((counts.sum(axis=1) + 1) / 2)[:, None, None]
    y_ranks = _resample_ranks(second, counts)
    y_ranks -= mean_rank  # in place, as below: a new array of this size takes longer to fill than to compute
    y_weighted = y_ranks * counts[:, None, :]
    y_squares = (y_ranks * y_weighted).sum(axis=2)
    chunk = max(1, _CHUNK_BYTES // (counts.itemsize * len(counts) * max(first.shape[1], len(second))))
    correlations = np.empty((len(counts), len(first), len(second)))
    for start in range(0, len(first), chunk):
        x_ranks = _resample_ranks(first[start : start + chunk], counts)
        x_ranks -= mean_rank
        covariance = np.matmul(x_ranks, y_weighted.transpose(0, 2, 1))
        np.square(x_ranks, out=x_ranks)
        x_squares = np.matmul(x_ranks, counts[:, :, None])
        squares = x_squares.astype(np.float64) * y_squares[:, None, :]
        correlations[:, start : start + chunk] = _ratio(covariance, squares)
    return correlations


def bootstrap_pearson(x: ArrayLike, y: ArrayLike, counts: Floats) -> Floats:
    """Compute Pearson correlations (B, S, M) of x (S, T), y (M, T) in every resample of counts (B, T)."""
    first, second = standardised(as_series(x, "x")), standardised(as_series(y, "y"))
    size = counts.sum(axis=1)[:, None]
    sum_x, sum_y = _weighted_sums(counts, first), _weighted_sums(counts, second)
    variance_x = _weighted_variance(counts, first, sum_x)
    variance_y = _weighted_variance(counts, second, sum_y)
    correlations = np.empty((len(counts), len(first), len(second)))
    for m, metric in enumerate(second):
        covariance = _weighted_sums(counts, first * metric) - sum_x * sum_y[:, m : m + 1] / size
        correlations[:, :, m] = _ratio(covariance, variance_x * variance_y[:, m : m + 1])
    return correlations


def percentile_interval(samples: Floats) -> tuple[Floats, Floats]:
    """Return the bounds of the 95% percentile interval over the first axis of `samples`.

    NaN where over `MAX_UNDEFINED` of the resamples are NaN, or the bounds are equal: resamples that cannot
    differ hold no information.
    """
    flat = samples.reshape(len(samples), -1)
    bounds = np.full((2, flat.shape[1]), np.nan)
    undefined = np.isnan(flat).mean(axis=0)
    whole, partial = undefined == 0.0, (undefined > 0.0) & (undefined <= MAX_UNDEFINED)
    for chosen, quantile in ((whole, np.quantile), (partial, np.nanquantile)):
        if chosen.any():
            bounds[:, chosen] = quantile(flat[:, chosen], TAILS, axis=0)
    bounds[:, bounds[1] - bounds[0] <= DEGENERATE] = np.nan
    low, high = bounds.reshape(2, *samples.shape[1:])
    return low, high


def _multiplicities(drawn_points: NDArray[np.int64], n: int) -> Floats:
    rows = np.arange(len(drawn_points))[:, None] * n
    return np.bincount((drawn_points + rows).ravel(), minlength=len(drawn_points) * n).reshape(-1, n).astype(np.float64)


def _resample_ranks(series: Floats, counts: Floats) -> Floats:
    """Return average ranks (B, S, T) of points (S, T) within resamples (B, T)."""
    n, by_point = series.shape[1], series.T
    below = (by_point[:, :, None] < series).astype(counts.dtype)
    below += 0.5 * (by_point[:, :, None] == series)
    ranks = counts @ below.reshape(n, -1)
    ranks += 0.5
    return ranks.reshape(len(counts), len(series), n)


def _weighted_sums(counts: Floats, values: Floats) -> Floats:
    # einsum and not matmul: its sum does not depend on how many threads BLAS has.
    return np.einsum("bt,st->bs", counts, values)


def _weighted_variance(counts: Floats, series: Floats, sums: Floats) -> Floats:
    squares = _weighted_sums(counts, series * series)
    variance = squares - sums**2 / counts.sum(axis=1)[:, None]
    # Where all drawn points are equal the variance is rounding noise of either sign.
    return np.where(variance > 1e-13 * squares, variance, 0.0)


def _ratio(covariance: Floats, squares: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.clip(np.where(squares > 0, covariance / np.sqrt(squares), np.nan), -1.0, 1.0)
