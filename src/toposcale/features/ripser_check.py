"""Comparison of a run's diagrams with ripser, which shares no code with the program that computed them.

ripser computes in float32, so the two differ by rounding. The bottleneck distance of two diagrams is at most the largest
error of a distance between points (Cohen-Steiner et al. 2007), so ties cannot widen it.
"""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toposcale import homology
from toposcale.features.weights import WeightSettings, rows_of_cloud

Diagrams = Mapping[tuple[str, int], NDArray[np.float64]]
"""Finite bars (k, 2) of each layer and dimension that has any."""

# The largest difference that float32 explains, as a share of the mean distance between rows: its precision is 6e-8.
ROUNDING = 1e-5


def largest_difference(points: NDArray, diagrams: Iterable[NDArray[np.float64]]) -> float:
    """Return the largest bottleneck distance between `diagrams` (H0, H1, ..., of finite bars) and those of ripser.

    In units of the mean distance between two of the `points` (n, d), of which not all are the same.
    """
    from ripser import ripser  # it loads scikit-learn

    by_dimension = list(diagrams)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it wonders at points of more dimensions than there are points
        computed = ripser(np.asarray(points, dtype=np.float64), maxdim=len(by_dimension) - 1)["dgms"]
    finite = [np.asarray(diagram[np.isfinite(diagram[:, 1])], dtype=np.float64) for diagram in computed]
    pairs = zip(by_dimension, finite, strict=True)
    largest = max(homology.diagram_distances(*pair, kinds=["bottleneck"])["bottleneck"] for pair in pairs)
    return largest / homology.mean_pairwise_distance(homology.pairwise_distances(points))


def chosen_layers(diagrams: Diagrams) -> list[str]:
    """Return the first, middle and last name of the weight matrices with finite diagrams, or all of fewer than three."""
    damaged = {layer for (layer, _), diagram in diagrams.items() if not np.isfinite(diagram).all()}
    finite = sorted({layer for layer, _ in diagrams} - damaged)
    chosen = np.linspace(0, len(finite) - 1, min(3, len(finite))).round().astype(int)
    return [finite[index] for index in chosen]


def check(
    matrices: Iterable[tuple[str, np.ndarray]], diagrams: Diagrams, settings: WeightSettings
) -> list[dict[str, Any]]:
    """Return the name, number of points and `largest_difference` of each chosen layer, reading no further than needed."""
    chosen, clouds = chosen_layers(diagrams), []
    for layer, weight in matrices if chosen else ():
        if layer in chosen:
            points = weight[rows_of_cloud(len(weight), layer, settings)]
            by_dimension = [diagrams.get((layer, k), np.empty((0, 2))) for k in range(settings.max_dimension + 1)]
            difference = largest_difference(points, by_dimension)
            clouds.append({"layer": layer, "points": len(points), "difference": difference})
        if len(clouds) == len(chosen):
            break
    return sorted(clouds, key=lambda cloud: cloud["layer"])
