"""Summaries of the Vietoris-Rips diagrams of a point cloud: rows of weights, embeddings or gradients."""

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.homology.diagrams import summarize_diagram
from toposcale.homology.rips import mean_pairwise_distance, pairwise_distances, rips_diagrams_of_distances

Description = tuple[dict[str, float], list[NDArray[np.float64]]]
"""Named numbers and the diagrams H0, H1, ... that they summarise."""

_STAND_IN = 8
_WITHOUT_UNIT = ("count", "entropy")


def cloud_features(points: ArrayLike, *, maxdim: int = 1) -> Description:
    """Compute summaries of the Vietoris-Rips diagrams of a point cloud.

    Parameters
    ----------
    points : array_like of shape (n, d)
        Points as rows.
    maxdim : int
        Largest homology dimension.

    Returns
    -------
    features : dict of str to float
        `h{k}_{name}` for every name of `summarize_diagram`, in the unit of `points`. Those with a unit again as
        `h{k}_{name}_scaled`, divided by the mean pairwise distance: NaN, with a RuntimeWarning, if it is 0 or
        undefined.
    diagrams : list of ndarray of shape (k, 2)
        The diagrams H0 to H`maxdim` of `rips_diagrams`.

    Raises
    ------
    ValueError
        If `points` is not 2-D, is empty or holds NaN or infinity.

    Examples
    --------
    >>> features, diagrams = cloud_features([[0.0], [1.0], [3.0]])
    >>> features["h0_total"], features["h0_total_scaled"]
    (3.0, 1.5)
    """
    distances = pairwise_distances(points)
    diagrams = rips_diagrams_of_distances(distances, maxdim=maxdim)
    unit = mean_pairwise_distance(distances)
    if not unit:
        message = "all points are the same, so there is no unit: the scaled values are NaN"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    features = {}
    for dimension, diagram in enumerate(diagrams):
        for name, value in summarize_diagram(diagram).items():
            features[f"h{dimension}_{name}"] = value
            if name not in _WITHOUT_UNIT:
                features[f"h{dimension}_{name}_scaled"] = value / unit if unit else math.nan
    return features, diagrams


def nan_features(compute: Callable[[NDArray[np.float64]], Description], shape: Sequence[int]) -> Description:
    """Return the names that `compute` gives a matrix of `shape`, all NaN, and one NaN bar per homology dimension.

    They describe a matrix that holds NaN or infinity.
    """
    # The names do not depend on the size, so a small stand-in will do.
    stand_in = np.random.default_rng(0).standard_normal([min(size, _STAND_IN) for size in shape])
    features, diagrams = compute(stand_in)
    return dict.fromkeys(features, math.nan), [np.full((1, 2), math.nan) for _ in diagrams]
