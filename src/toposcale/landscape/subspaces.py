"""Minima and saddles of a loss in a cube of a subspace of the Hessian, and those of its quadratic model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toposcale.landscape.curvature import Loss, Parameters, detach
from toposcale.landscape.graphs import point_edges
from toposcale.landscape.merge_tree import MergeTree, merge_tree
from toposcale.landscape.plane_names import SUBSPACES
from toposcale.landscape.surface import rounding_of

GRAPH = "aknn8"
"""Graph that joins the minima, with an edge from each to the lowest."""
_SAME_POINT_SHARE = 1e-2  # share of the extent within which the ends of descents are one point
_MIN_RELATIVE_DECREASE = 1e-6  # of the loss, at which a descent ends: smaller ones are rounding of float32
_SEGMENT = np.linspace(0.0, 1.0, 17)[:, None]
Function = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""Function of coordinates (k,) that returns its value and its gradient (k,)."""


def subspace_trees(
    loss: Loss,
    parameters: Mapping[str, Tensor],
    directions: Sequence[Parameters],
    signs: Sequence[float],
    *,
    extent: float,
    starts: int,
    threshold: float,
    seed: int,
) -> dict[str, MergeTree]:
    """Return the merge trees, by kind of `SUBSPACES`, of the minima in the cube |a_i| <= extent of theta + sum a_i d_i.

    The d_i are eigenvectors of the Hessian over sqrt(|eigenvalue|), with the `signs` of their eigenvalues. How minima are
    searched from `starts` points and joined: docs/method.md. Pairs count whose persistence is above the share `threshold`
    of extent^2 / 2, by which the quadratic model (of gradient and eigenvalues) rises along an axis.
    """
    centre = detach(parameters)
    stacked = {name: torch.stack([direction[name] for direction in directions]) for name in centre}

    def function(point: np.ndarray) -> tuple[float, np.ndarray]:
        with torch.enable_grad():
            coordinates = torch.tensor(point, requires_grad=True)
            moved = {
                name: value + torch.tensordot(coordinates.to(value), stacked[name], 1) for name, value in centre.items()
            }
            height = loss(moved)
            (slope,) = torch.autograd.grad(height, coordinates, materialize_grads=True)
        return float(height.detach()), slope.numpy()

    curvatures = np.asarray(signs, dtype=np.float64)
    points = np.random.default_rng(seed).uniform(-extent, extent, (starts, len(directions)))
    points[0] = 0
    height, slope = function(points[0])

    def quadratic(point: np.ndarray) -> tuple[float, np.ndarray]:
        return height + slope @ point + curvatures @ point**2 / 2, slope + curvatures * point

    # Unlike the range of a sample, it is the same in every dimension.
    minimum_persistence = max(threshold * extent**2 / 2, rounding_of(np.array([height]), parameters))
    return {
        kind: _tree_of_minima(searched, points, extent, minimum_persistence)
        for kind, searched in zip(SUBSPACES, (function, quadratic), strict=True)
    }


def _tree_of_minima(function: Function, starts: np.ndarray, extent: float, threshold: float) -> MergeTree:
    """Return the merge tree of the ends of the descents from `starts`, joined by segments."""
    from scipy.optimize import minimize  # slow to import: see docs/performance.md

    bounds = [(-extent, extent)] * starts.shape[1]
    descent: dict[str, Any] = {
        "jac": True,
        "method": "L-BFGS-B",
        "bounds": bounds,
        "options": {"ftol": _MIN_RELATIVE_DECREASE},
    }
    ends = [minimize(function, start, **descent) for start in starts]
    points, values = np.array([end.x for end in ends]), np.array([end.fun for end in ends])
    order = np.argsort(values, kind="stable")
    _, first = np.unique(np.round(points[order] / (_SAME_POINT_SHARE * extent)), axis=0, return_index=True)
    kept = order[np.sort(first)]
    points, values = points[kept], values[kept]
    to_lowest = [[0, index] for index in range(1, len(points))]
    edges = np.unique(np.concatenate([point_edges(points, GRAPH), np.reshape(to_lowest, (-1, 2))]), axis=0).astype(int)
    passes = [
        max(function(point)[0] for point in (1 - _SEGMENT) * points[one] + _SEGMENT * points[other])
        for one, other in edges
    ]
    # A pass is a vertex above both ends of its segment.
    through = len(points) + np.arange(len(edges))
    joined = np.concatenate([np.column_stack([edges[:, side], through]) for side in (0, 1)])
    return merge_tree(np.concatenate([values, passes]), joined, threshold=threshold)
