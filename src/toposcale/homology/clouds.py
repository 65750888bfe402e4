"""The Vietoris-Rips features of a point cloud: what weights, embeddings and gradients are all described by."""

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
    """Named summaries of the diagrams H0 .. H`maxdim` of points (n, d), and the diagrams, (k, 2) each.

    `h{k}_{name}` for every name of `summarize_diagram`, in the unit of the points; those with a unit again as
    `h{k}_{name}_scaled`, the value of the cloud divided by its mean pairwise distance (NaN if all points are the same).
    ValueError: `points` not 2-D, empty, NaN or infinite.
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
    """What stands for the description of a matrix of `shape` that holds NaN or infinity.

    The names that `compute` gives to a finite matrix of that shape, every value NaN, and in each dimension a diagram
    of one NaN bar.
    """
    # The names do not depend on the size, so a small stand-in will do.
    stand_in = np.random.default_rng(0).standard_normal([min(size, _STAND_IN) for size in shape])
    features, diagrams = compute(stand_in)
    return dict.fromkeys(features, math.nan), [np.full((1, 2), math.nan) for _ in diagrams]
