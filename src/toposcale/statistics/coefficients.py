"""Correlation coefficients of many series at once (Pearson, Spearman, partial), and p-values under independence."""

from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, stdtr

Floats = NDArray[np.float64]

CONSTANT_TOLERANCE = 1e-12
"""A series whose spread is below this share of its largest absolute value counts as constant."""


def as_series(values: ArrayLike, name: str) -> Floats:
    """Return `values` as float64 series (S, T); ValueError names the argument if empty, not 1-D or 2-D, or not finite."""
    array = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{name}: expected series of shape (series, time), got shape {np.shape(values)}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: holds values that are not finite; leave those points out first")
    return array


def is_constant(series: Floats) -> NDArray[np.bool_]:
    """Return which rows (S, T) do not vary beyond rounding."""
    return np.ptp(series, axis=-1) <= CONSTANT_TOLERANCE * np.abs(series).max(axis=-1)


def flattened(series: Floats) -> Floats:
    """Return the series (S, T) with rows that vary only by rounding made constant, so that rounding is not ranked."""
    return np.where(is_constant(series)[:, None], 0.0, series)


def average_ranks(series: Floats) -> Floats:
    """Return ranks 1 to T along the last axis, ties averaged; a row with a NaN becomes NaN."""
    from scipy.stats import rankdata  # slow to import: see docs/performance.md

    return np.asarray(rankdata(series, axis=-1), dtype=np.float64)


def pearson(x: ArrayLike, y: ArrayLike) -> Floats:
    """Return Pearson correlations (S, M) of the rows of x (S, T) with those of y (M, T); NaN where a series is constant."""
    first, second = standardised(as_series(x, "x")), standardised(as_series(y, "y"))
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"y: {second.shape[1]} points, but x has {first.shape[1]}")
    # einsum and not matmul: its sum does not depend on how many threads BLAS has.
    return np.clip(np.einsum("st,mt->sm", first, second), -1.0, 1.0)


def spearman(x: ArrayLike, y: ArrayLike) -> Floats:
    """Compute the Spearman correlation, Pearson's of the ranks, of every row of x with every row of y.

    Parameters
    ----------
    x : array_like of shape (S, T)
        S series of T points; one series may be of shape (T,). Tied values have their average rank.
    y : array_like of shape (M, T)
        M series of the same points.

    Returns
    -------
    ndarray of float64 of shape (S, M)
        Rank correlations in [-1, 1]; NaN where a series is constant up to rounding.

    Raises
    ------
    ValueError
        If a value is not finite, or x and y differ in T.

    Examples
    --------
    >>> from toposcale.statistics import spearman
    >>> spearman([1, 2, 3, 4], [[1, 8, 27, 64], [4, 3, 2, 1]]).round(6)
    array([[ 1., -1.]])
    """
    first, second = flattened(as_series(x, "x")), flattened(as_series(y, "y"))
    return pearson(average_ranks(first), average_ranks(second))


MAX_PERMUTED = 7
"""With so few points a p-value is counted over all permutations."""


def permutation_p_value(x: ArrayLike, y: ArrayLike) -> Floats:
    """Return exact p-values (S, M) of correlations of x (S, T), y (M, T): the share of T! orders with an |r| as large."""
    first, second = standardised(as_series(x, "x")), standardised(as_series(y, "y"))
    if first.shape[1] > MAX_PERMUTED:
        raise ValueError(f"x: {first.shape[1]} points; more than {MAX_PERMUTED} are not counted one by one")
    orders = np.array([*permutations(range(first.shape[1]))])  # the first is the identity
    permuted = second[:, orders]
    correlations = (np.abs(np.einsum("t,mpt->mp", row, permuted)) for row in first)
    shares = [np.where(np.isnan(r[:, 0]), np.nan, (r >= r[:, :1] - 1e-9).mean(axis=1)) for r in correlations]
    return np.array(shares)


def correlation_p_value(correlation: ArrayLike, n: ArrayLike, n_controls: int = 0) -> Floats:
    """Return two-sided p-values of correlations by Student's t with n - 2 - n_controls degrees of freedom, at least 2 / n!.

    For independent points, which checkpoints of a run are not: see `residual_test`. NaN without a degree of freedom.
    """
    r = np.asarray(correlation, dtype=np.float64)
    degrees_of_freedom = np.asarray(n, dtype=np.float64) - 2 - n_controls
    degrees_of_freedom = np.where(degrees_of_freedom > 0, degrees_of_freedom, np.nan)
    with np.errstate(divide="ignore"):
        t = np.abs(r) * np.sqrt(degrees_of_freedom / np.maximum(1.0 - r * r, 0.0))
    least = 2.0 * np.exp(-gammaln(np.asarray(n, dtype=np.float64) + 1.0))
    return np.asarray(np.maximum(2.0 * stdtr(degrees_of_freedom, -t), least))


_NEGLIGIBLE = 1e-9  # a residual below this share of its series is rounding noise
COLLINEAR = 1e-9
"""1 - R^2 below which a series counts as spanned by the controls, so that it has no partial correlation."""


def partial_correlation(xy: Floats, xz: Floats, yz: Floats, zz: Floats) -> Floats:
    """Return correlations (..., S, M) given z, from xy (..., S, M), xz (..., S, C), yz (..., M, C), zz (..., C, C).

    (xy - xz zz^-1 zy) / sqrt((1 - xz zz^-1 zx)(1 - yz zz^-1 zy)); NaN where the controls span x or y, or one is constant.
    """
    is_undefined = np.asarray(np.isnan(zz).any(axis=(-2, -1)))[..., None, None]
    strength, vectors = np.linalg.eigh(np.where(is_undefined, np.eye(zz.shape[-1]), zz))
    is_kept = strength > COLLINEAR
    basis = vectors * np.where(is_kept, 1.0 / np.sqrt(np.where(is_kept, strength, 1.0)), 0.0)[..., None, :]
    first, second = (np.einsum("...sc,...cd->...sd", part, basis) for part in (xz, yz))
    x_variance = 1.0 - (first * first).sum(axis=-1)[..., :, None]
    y_variance = 1.0 - (second * second).sum(axis=-1)[..., None, :]
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (xy - np.einsum("...sc,...mc->...sm", first, second)) / np.sqrt(x_variance * y_variance)
    defined = (x_variance > COLLINEAR) & (y_variance > COLLINEAR) & ~is_undefined
    return np.clip(np.where(defined, value, np.nan), -1.0, 1.0)


def orthogonal_to(rows: Floats, design: Floats) -> tuple[Floats, int]:
    """Return the rows (n, R) less their projection on `design`, rounding set to 0, and the rank of the design."""
    # Of length 1, so that a control in small units is not taken for rounding noise.
    _, strength, basis = np.linalg.svd(unit_rows(design), full_matrices=False)
    rank = int((strength > _NEGLIGIBLE * strength[0]).sum())
    basis = basis[:rank]
    residuals = rows - (rows @ basis.T) @ basis
    residuals = residuals - (residuals @ basis.T) @ basis
    row_length = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    residual_length = np.sqrt((residuals * residuals).sum(axis=1, keepdims=True))
    return np.where(residual_length > _NEGLIGIBLE * row_length, residuals, 0.0), rank


def unit_rows(rows: Floats) -> Floats:
    """Return the rows (n, R) scaled to length 1; a row of zeros stays."""
    length = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return rows / np.where(length > 0, length, 1.0)


def standardised(series: Floats) -> Floats:
    """Return the rows with mean 0 and length 1; a constant row becomes NaN."""
    constant = is_constant(series)
    # Divided by the largest value first, so that squares neither overflow nor vanish.
    scale = np.abs(series).max(axis=1, keepdims=True)
    centred = series / np.where(scale > 0, scale, 1.0)
    centred = centred - centred.mean(axis=1, keepdims=True)
    length = np.sqrt((centred * centred).sum(axis=1, keepdims=True))
    length[constant] = np.nan
    return centred / length
