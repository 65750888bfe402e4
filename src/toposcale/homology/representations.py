"""Representation topology divergence: how differently two models place the same texts, whatever their units and axes.

Source: Barannikov et al., "Representation Topology Divergence: A Method for Comparing Neural Network Representations",
ICML 2022, arXiv:2201.00058.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.homology.rips import pairwise_distances, rips_diagrams_of_distances
from toposcale.homology.validation import undefined

_QUANTILE = 0.9


def representation_topology_divergence(first: ArrayLike, second: ArrayLike, *, symmetric: bool = True) -> float:
    """RTD of two clouds (n, d1) and (n, d2) whose rows are the same n texts; without units, 0 for equal clouds.

    r1 and r2 are the clouds' distance matrices, each over the 0.9 quantile of its entries. RTD(P, Q) is the total
    persistence of H1 of the filtered graph on 2n points with the distances [[0, r1], [r1, min(r1, r2)]]: what the
    second cloud joins before the first one does. Moving, turning and scaling either cloud leaves it as it is.
    The mean of RTD(P, Q) and RTD(Q, P), or the first alone where not `symmetric`. Time grows as that of H1 of 2n points.
    A cloud in which more than 0.9 of the distances are 0 has no unit: NaN, with a RuntimeWarning.
    ValueError: not 2-D, empty, NaN or infinite, or of different numbers of rows.
    """
    distances = [pairwise_distances(first), pairwise_distances(second)]
    if len(distances[0]) != len(distances[1]):
        raise ValueError(f"both clouds must have the same rows, got {len(distances[0])} and {len(distances[1])}")
    units = [float(np.quantile(matrix, _QUANTILE)) for matrix in distances]
    if min(units) == 0.0:
        return undefined("a cloud of one point has no representation divergence")
    r1, r2 = (matrix / unit for matrix, unit in zip(distances, units, strict=True))
    return (_one_way(r1, r2) + _one_way(r2, r1)) / 2.0 if symmetric else _one_way(r1, r2)


def _one_way(r1: NDArray[np.float64], r2: NDArray[np.float64]) -> float:
    joined = np.block([[np.zeros_like(r1), r1], [r1, np.minimum(r1, r2)]])
    _, loops = rips_diagrams_of_distances(joined, maxdim=1)
    return float((loops[:, 1] - loops[:, 0]).sum())
