"""Representation topology divergence of two point clouds with the same rows."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.homology.rips import pairwise_distances, rips_diagrams_of_distances
from toposcale.homology.validation import undefined

_QUANTILE = 0.9


def representation_topology_divergence(first: ArrayLike, second: ArrayLike) -> float:
    """Compute the representation topology divergence (RTD) of two clouds that represent the same n texts.

    With r1 and r2 the distance matrices, each divided by its 0.9 quantile, RTD(P, Q) is the total persistence of H1 of
    the Vietoris-Rips filtration of the distances [[0, r1], [r1, min(r1, r2)]] on 2n points. The mean of RTD(P, Q) and
    RTD(Q, P) is 0 for equal clouds, and unchanged by rigid motions and scaling of either cloud.

    Parameters
    ----------
    first, second : array_like of shape (n, d1) and (n, d2)
        Clouds P and Q; row i of both represents text i.

    Returns
    -------
    float
        Mean of both, without units; NaN, with a RuntimeWarning, if the 0.9 quantile of a cloud's distances is 0.

    Raises
    ------
    ValueError
        If a cloud is not 2-D, is empty or holds NaN or infinity, or the clouds have different numbers of rows.

    References
    ----------
    Barannikov et al., ICML 2022, arXiv:2201.00058.

    Examples
    --------
    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> representation_topology_divergence(square, 2.0 * square)
    0.0
    """
    distances = [pairwise_distances(first), pairwise_distances(second)]
    if len(distances[0]) != len(distances[1]):
        raise ValueError(f"both clouds must have the same rows, got {len(distances[0])} and {len(distances[1])}")
    units = [float(np.quantile(matrix, _QUANTILE)) for matrix in distances]
    if min(units) == 0.0:
        return undefined("a cloud of one point has no representation divergence")
    r1, r2 = (matrix / unit for matrix, unit in zip(distances, units, strict=True))
    return (_divergence_to_union(r1, r2) + _divergence_to_union(r2, r1)) / 2.0


def _divergence_to_union(r1: NDArray[np.float64], r2: NDArray[np.float64]) -> float:
    union_distances = np.block([[np.zeros_like(r1), r1], [r1, np.minimum(r1, r2)]])
    _, loops = rips_diagrams_of_distances(union_distances, maxdim=1)
    return float((loops[:, 1] - loops[:, 0]).sum())
