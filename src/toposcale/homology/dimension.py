"""Persistent-homology dimension of a trajectory: how its spanning tree grows with the number of points."""

import math
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.homology.rips import pairwise_distances, spanning_tree_lengths


def persistent_homology_dimension(
    points: ArrayLike, *, sizes: Sequence[int] | None = None, repeats: int = 10, seed: int = 0
) -> tuple[float, float]:
    """Persistent-homology dimension of `points` (n, d): mean and standard deviation over subsamplings.

    One repeat draws, for each of `sizes`, that many rows without replacement and takes E = their sum of H0 lifetimes
    (alpha = 1); m is the least-squares slope of log E on log size; the dimension is 1 / (1 - m), without units. `sizes`
    defaults to eight sizes, log-spaced from n / 8 (at least 4) to n / 2. The standard deviation has divisor repeats - 1
    and is NaN for one repeat. A repeat with m >= 1 or E = 0 has no dimension: it makes both results NaN, with a
    RuntimeWarning. All distances are computed once: O(n^2 d) time, O(n^2) memory.
    Source: Birdal et al., NeurIPS 2021, arXiv:2111.13171.
    ValueError: `points` not 2-D, empty, NaN or infinite; fewer than two distinct `sizes`, or sizes outside 2 .. n;
    `repeats` less than 1.
    """
    distances = pairwise_distances(points)
    n_points = len(distances)
    if sizes is None:
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
