"""Persistent-homology dimension of a trajectory."""

import math
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.homology.rips import pairwise_distances, spanning_tree_lengths

_MIN_POINTS = 10  # with fewer, all default sizes are the same


def persistent_homology_dimension(
    points: ArrayLike, *, sizes: Sequence[int] | None = None, repeats: int = 10, seed: int = 0
) -> tuple[float, float]:
    """Estimate the persistent-homology dimension of a point cloud by repeated subsampling.

    With E(s) the sum of the H0 lifetimes (alpha = 1) of s random points and m the least-squares slope of log E on log
    s, the dimension is 1 / (1 - m). Takes O(n^2 d) time and O(n^2) memory.

    Parameters
    ----------
    points : array_like of shape (n, d)
        Points as rows.
    sizes : sequence of int, optional
        Numbers of points s, at least two different ones; by default eight, log-spaced from n / 8 (at least 4) to n / 2.
    repeats : int
        Number of subsamplings.
    seed : int
        Seed of the subsampling.

    Returns
    -------
    mean, standard_deviation : float
        Over the repeats, without units. The standard deviation (divisor repeats - 1) of one repeat is NaN. Both are
        NaN, with a RuntimeWarning, if a repeat has E = 0 or m >= 1.

    Raises
    ------
    ValueError
        If `points` is not 2-D, is empty or holds NaN or infinity, has fewer than 10 rows and no `sizes`, `sizes` are not in
        2..n, or `repeats` is below 1.

    References
    ----------
    Birdal et al., NeurIPS 2021, arXiv:2111.13171.

    Examples
    --------
    >>> mean, standard_deviation = persistent_homology_dimension(np.linspace(0.0, 1.0, 200)[:, None])
    >>> round(mean)  # of a segment
    1
    """
    distances = pairwise_distances(points)
    n_points = len(distances)
    if sizes is None:
        if n_points < _MIN_POINTS:
            raise ValueError(f"points must have {_MIN_POINTS} or more rows if no sizes are given, got {n_points}")
        least, most = max(4, n_points // 8), max(4, n_points // 2)
        sizes = sorted({round(size) for size in np.geomspace(least, most, 8)})
    if len(set(sizes)) < 2 or min(sizes) < 2 or max(sizes) > n_points:
        raise ValueError(f"sizes must hold two different numbers from 2 to the {n_points} points, got {list(sizes)}")
    if repeats < 1:
        raise ValueError(f"repeats must be 1 or more, got {repeats}")
    rng = np.random.default_rng(seed)
    dimensions = np.array([_one_dimension(distances, sizes, rng) for _ in range(repeats)])
    if failed := int(np.isnan(dimensions).sum()):
        why = "total lifetime 0, or growing as fast as the number of points"
        message = f"{failed} of {repeats} subsamplings have no persistent-homology dimension ({why})"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return math.nan, math.nan
    deviation = float(dimensions.std(ddof=1)) if repeats > 1 else math.nan
    return float(dimensions.mean()), deviation


def _one_dimension(distances: NDArray[np.float64], sizes: Sequence[int], rng: np.random.Generator) -> float:
    """Return the dimension from one subsampling of a distance matrix (n, n); NaN if it is undefined."""
    totals = []
    for size in sizes:
        rows = rng.choice(len(distances), size, replace=False)
        totals.append(spanning_tree_lengths(distances[np.ix_(rows, rows)]).sum())
    if min(totals) <= 0.0:
        return math.nan
    log_sizes, log_totals = np.log(sizes), np.log(totals)
    centred = log_sizes - log_sizes.mean()
    slope = float(centred @ log_totals / (centred @ centred))
    return 1.0 / (1.0 - slope) if slope < 1.0 else math.nan
