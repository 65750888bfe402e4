"""Spectra of weight matrices and of embeddings, each as one dimensionless number.

Weights: eigenvalues are squared singular values of the matrix as it is. Embeddings (n, d): singular values of the matrix
with centred columns, without those that rounding explains, in the precision in which the numbers were stored
(`precision`, by default that of the dtype of `points`); the arithmetic is in float64. If no value is left, the result is
NaN, with a RuntimeWarning. ValueError: a matrix that is not 2-D, empty, NaN or infinite.
"""

import importlib.util
import math
from contextlib import suppress
from typing import NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.homology.validation import as_finite, as_matrix, undefined

_BLOCK_ENTRIES = 1 << 20
_BLOCK_ROWS = 2048  # from here on a block is no cheaper by the row, and of 4,096 columns it is 64 MB
_MKL_FROM = 2048  # from this order on, MKL's eigenvalues save more than importing torch costs
_SQUARED_SAFELY = (1e-140, 1e140)  # largest entries whose squares, and those of far smaller ones, are normal numbers
_EPSILON = float(np.finfo(np.float64).eps)

MIN_EIGENVALUES = 16
"""Eigenvalues below which no exponent is fitted: from 2 or 4 of them it can be any number, such as 155."""


def effective_rank(points: ArrayLike, precision: float | None = None) -> float:
    """Return RankMe: exp(-sum p ln p), p = sigma / sum sigma over the singular values of the centred matrix (n, d).

    Between 1 and min(n, d); NaN for identical rows.
    Source: Garrido et al., ICML 2023, arXiv:2210.02885, without its smoothing constant.
    """
    values = _centred_singular_values(points, precision)
    if len(values) == 0:
        return undefined("identical points have no effective rank")
    shares = values / values.sum()
    return math.exp(-float(shares @ np.log(shares)))


def participation_ratio(points: ArrayLike, precision: float | None = None) -> float:
    """Return (sum lambda)^2 / sum lambda^2 over the eigenvalues of the covariance of the rows of `points` (n, d).

    Between 1 and min(n, d); NaN for identical rows.
    """
    values = _centred_singular_values(points, precision)
    if len(values) == 0:
        return undefined("identical points have no participation ratio")
    eigenvalues = (values / values[0]) ** 2
    return float(eigenvalues.sum() ** 2 / (eigenvalues @ eigenvalues))


def eigenspectrum_decay(points: ArrayLike, precision: float | None = None) -> float:
    """Return the alpha-ReQ exponent of lambda_i ~ i^-alpha: minus the least-squares slope of ln lambda_i on ln i.

    lambda are the covariance eigenvalues of `points` (n, d) in descending order, without those that are 0 up to rounding:
    after a LayerNorm, which removes one dimension, the last. NaN if fewer than `MIN_EIGENVALUES` are left.
    Source: Stringer et al., Nature 571, 2019.
    """
    values = _centred_singular_values(points, precision)
    if len(values) == 0:
        return undefined("identical points have no decay")
    if len(values) < MIN_EIGENVALUES:
        return math.nan
    log_rank = np.log(np.arange(1, len(values) + 1))
    log_rank -= log_rank.mean()
    return -2.0 * float(log_rank @ np.log(values) / (log_rank @ log_rank))


class WeightEigenvalues(NamedTuple):
    """Eigenvalues sigma^2 of a matrix, descending, in units of its largest |entry| squared, and that entry."""

    values: NDArray[np.float64]
    largest_entry: float


def weight_eigenvalues(weight: ArrayLike) -> WeightEigenvalues:
    """Return the eigenvalues sigma^2 of a matrix (n_out, n_in), descending, in units of its largest |entry| squared.

    From the Gram matrix of the shorter side, accumulated in float64 over blocks of rows, so that the memory is that of
    two Gram matrices and a block. The absolute error is about 1e-15 of the largest: eigenvalues below
    max(n_out, n_in) eps of it count as zero and are left out. An all-zero matrix has none.
    From order `_MKL_FROM` on they come from torch's LAPACK if torch is installed; they differ by that error.
    """
    matrix = as_matrix(weight, "weight")
    if matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T
    gram, largest = _gram(matrix)
    if not math.isfinite(largest):
        raise ValueError("weight must be finite, got NaN or infinity")
    if largest == 0.0:
        return WeightEigenvalues(np.empty(0), largest)
    if _SQUARED_SAFELY[0] < largest < _SQUARED_SAFELY[1]:
        gram /= largest**2
    else:
        gram, _ = _gram(matrix, largest)
    if len(gram) >= _MKL_FROM and importlib.util.find_spec("torch"):  # only by size: the same bytes in every job
        import torch

        eigenvalues = torch.linalg.eigvalsh(torch.from_numpy(gram)).numpy()[::-1]
    else:
        eigenvalues = np.linalg.eigvalsh(gram)[::-1]
    return WeightEigenvalues(eigenvalues[eigenvalues > max(matrix.shape) * _EPSILON * eigenvalues[0]], largest)


def have_exact_roots(eigenvalues: NDArray[np.float64], order: int) -> bool:
    """Return whether the roots of all `weight_eigenvalues` add up to the sum of the singular values within 1e-9 of it."""
    roots = np.sqrt(eigenvalues)
    # An eigenvalue is off by some 1e-15 of the largest, and its root by that over twice the root.
    return len(roots) == order and float(1e-14 * eigenvalues[0] * (0.5 / roots).sum()) <= 1e-9 * float(roots.sum())


def _gram(matrix: NDArray, unit: float = 1.0) -> tuple[NDArray[np.float64], float]:
    """Return matrix.T @ matrix in float64, with entries in that unit, and the largest |entry|, NaN if one is."""
    gram = np.zeros((matrix.shape[1],) * 2)
    largest = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # the caller looks at the largest
        for first in range(0, matrix.shape[0], _BLOCK_ROWS):
            block = matrix[first : first + _BLOCK_ROWS].astype(np.float64)
            largest = float(np.max([largest, block.max(), -block.min()]))
            if unit != 1.0:
                block /= unit
            gram += block.T @ block
    return gram, largest


def singular_values(weight: ArrayLike) -> NDArray[np.float64]:
    """Return the singular values (min(n_out, n_in),) of a matrix, descending, in its unit.

    The absolute error is about 1e-15 of the largest. Not the roots of `weight_eigenvalues`, whose error grows to 1e-8 for
    small ones. A long matrix is first reduced by QR over blocks of rows, so that the memory is that of a few blocks and
    squares of the shorter side.
    """
    matrix = as_finite(weight, "weight")
    if matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T
    reduced = matrix[:_BLOCK_ROWS].astype(np.float64)
    for first in range(_BLOCK_ROWS, matrix.shape[0], _BLOCK_ROWS):
        block = matrix[first : first + _BLOCK_ROWS].astype(np.float64)
        reduced = np.asarray(np.linalg.qr(np.vstack([reduced, block]), mode="r"), dtype=np.float64)
    return np.asarray(np.linalg.svd(reduced, compute_uv=False), dtype=np.float64)


def nuclear_norm(weight: ArrayLike) -> float:
    """Return the sum of the singular values of a matrix (n_out, n_in), in its unit; 0 for an all-zero matrix."""
    return float(singular_values(weight).sum())


def stable_rank(eigenvalues: NDArray[np.float64]) -> float:
    """Return the squared Frobenius over the squared spectral norm, from `weight_eigenvalues`: between 1 and the rank.

    NaN for an all-zero matrix. Relative error about 1e-14.
    """
    if len(eigenvalues) == 0:
        return undefined("an all-zero matrix has no stable rank")
    return float(eigenvalues.sum() / eigenvalues[0])


def powerlaw_alpha(eigenvalues: NDArray[np.float64]) -> float:
    """Return the ESD exponent: a power law fitted to the tail of the `weight_eigenvalues` lambda = sigma^2.

    alpha = 1 + n / sum ln(lambda / x_min) over the n eigenvalues from x_min on. x_min is the eigenvalue, of those with at
    least one larger, that gives the least Kolmogorov-Smirnov distance sup |F_empirical - F_fitted| (both sides of each
    step). NaN for fewer than `MIN_EIGENVALUES`, or without two different ones. Source: Clauset, Shalizi and Newman, SIAM
    Review 51, 2009.
    """
    if len(eigenvalues) < MIN_EIGENVALUES:
        return math.nan
    logs = np.log(np.sort(eigenvalues))
    # A tail needs a larger value after its first, and one start is enough for equal values.
    starts = np.flatnonzero(np.diff(logs, prepend=-math.inf) > 0)[:-1]
    if len(starts) == 0:
        return undefined("a power law needs at least two different eigenvalues")
    sizes = len(logs) - starts
    tail_sums = np.cumsum(logs[::-1])[::-1][starts]
    exponents = sizes / (tail_sums - sizes * logs[starts])  # alpha - 1
    step = max(1, _BLOCK_ENTRIES // len(logs))
    parts = [slice(first, first + step) for first in range(0, len(starts), step)]
    distances = [_ks_distances(logs, starts[part], exponents[part]) for part in parts]
    return 1.0 + float(exponents[int(np.argmin(np.concatenate(distances)))])


def _ks_distances(logs: NDArray, starts: NDArray[np.intp], exponents: NDArray) -> NDArray[np.float64]:
    """Return sup |F_empirical - F| of each tail logs[start:], with F = 1 - exp(-exponent (log - log[start]))."""
    index = np.arange(len(logs)) - starts[:, None]  # negative before the tail
    size = (len(logs) - starts)[:, None]
    fitted = -np.expm1(-exponents[:, None] * np.maximum(logs - logs[starts][:, None], 0.0))
    either_side = np.maximum((index + 1) / size - fitted, fitted - index / size)
    return np.max(either_side, axis=1, where=index >= 0, initial=0.0)


def _centred_singular_values(points: ArrayLike, precision: float | None) -> NDArray[np.float64]:
    """Return the singular values of the centred matrix, descending, without those that are zero up to rounding.

    Entries that are rounded by at most eps of themselves move no singular value by more than eps ||points||_F, which is
    also more than the rounding of the means and of the SVD when both are in float64. Twice that is the cutoff.
    """
    matrix = as_finite(points, "points", np.float64)
    values = np.linalg.svd(matrix - matrix.mean(axis=0), compute_uv=False)
    if precision is None:
        precision = _EPSILON
        with suppress(TypeError, ValueError):  # integers are exact
            precision = float(ml_dtypes.finfo(getattr(points, "dtype", None)).eps)
    return values[values > 2.0 * precision * float(np.linalg.norm(matrix))]
