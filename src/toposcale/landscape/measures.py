"""Numbers that describe a sampled loss surface: merge tree and homology by graph, and sharpness."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from toposcale.landscape.graphs import GRID_GRAPHS, grid_edges, point_edges
from toposcale.landscape.merge_tree import MergeTree, merge_tree


def surface_edges(coordinates: Sequence[ArrayLike], graph: str) -> np.ndarray:
    """Edges of a named graph on the points of a grid in C order; `coordinates` holds one array an axis.

    Grid graphs need the shape only; point graphs use the coordinates, so distances are true ones. `ValueError`:
    `gabriel`, which on a square grid is `grid4`, or a name that is no graph.
    """
    if graph == "gabriel":
        raise ValueError("graph: gabriel of a square grid is grid4; it is for scattered points")
    axes = [np.asarray(axis, dtype=np.float64) for axis in coordinates]
    if graph in GRID_GRAPHS:
        return grid_edges([len(axis) for axis in axes], graph)
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    return point_edges(points, graph)


def cubical_diagram(values: ArrayLike, *, dimension: int, graph: str) -> np.ndarray:
    """Sublevel persistence pairs of a grid of losses from gudhi's cubical complex, float64 (m, 2), sorted.

    `grid4`: losses stand on vertices and a cell enters with its highest vertex, so that neighbours along the
    axes are joined. `grid8`: losses stand on the top cells and a face enters with its lowest one, so that
    diagonal neighbours are joined as well. Non-finite losses enter last; pairs of zero persistence are
    dropped, essential classes die at infinity. `ValueError`: another graph, or a negative dimension.
    """
    if graph not in GRID_GRAPHS:
        raise ValueError(f"graph: {graph!r} has no cubical complex; use one of {', '.join(GRID_GRAPHS)}")
    if dimension < 0:
        raise ValueError(f"dimension: need 0 or more, got {dimension}")
    from gudhi import CubicalComplex

    values = np.asarray(values, dtype=np.float64)
    heights = np.where(np.isfinite(values), values, np.inf)
    where = "vertices" if graph == "grid4" else "top_dimensional_cells"
    complex_ = CubicalComplex(**{where: heights})
    complex_.compute_persistence(homology_coeff_field=2, min_persistence=0.0)
    pairs = np.asarray(complex_.persistence_intervals_in_dimension(dimension), dtype=np.float64).reshape(-1, 2)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def sharpness(values: ArrayLike) -> dict[str, float]:
    """How much the loss rises around the centre of a grid with an odd number of points an axis.

    `sharpness_max`, `sharpness_mean`: largest and mean finite loss of the grid less that of the centre, in units of the
    loss. `sharpness_relative`: 100 (largest - centre) / (1 + centre), the measure of Keskar et al. (2017), over this
    grid. NaN where the centre is not finite. `ValueError`: an even number of points along an axis.
    """
    values = np.asarray(values, dtype=np.float64)
    if not values.size or any(size % 2 == 0 for size in values.shape):
        raise ValueError(f"values: a centre needs an odd number of points along every axis, got {values.shape}")
    centre = float(values[tuple(size // 2 for size in values.shape)])
    if not np.isfinite(centre):
        return dict.fromkeys(("sharpness_max", "sharpness_mean", "sharpness_relative"), float("nan"))
    rise = values[np.isfinite(values)] - centre
    largest, mean = float(rise.max()), float(rise.mean())
    # It is relative to 1 + loss, so it needs a loss above -1.
    relative = 100 * largest / (1 + centre) if centre > -1 else float("nan")
    return {"sharpness_max": largest, "sharpness_mean": mean, "sharpness_relative": relative}


THRESHOLD = 0.01
"""Pairs of less persistence than this share of the surface's range are not counted."""


def landscape_features(
    values: ArrayLike,
    coordinates: Sequence[ArrayLike],
    graphs: Sequence[str],
    *,
    threshold: float = THRESHOLD,
    rounding: float = 0.0,
) -> tuple[dict[str, float], dict[str, MergeTree]]:
    """Features of a loss surface by name, and the merge tree of every graph.

    values: losses on a grid; coordinates: an array an axis. For every graph g what `tree_features` names, ending in
    `_g`; for the grid graphs also `h1_count_g`, `h1_total_g` and `h1_max_g` over the finite pairs of the cubical
    complex. Once: `nonfinite_count`, and the sharpness measures where the grid has a centre. A count is a plain number;
    persistences are in units of the loss. Pairs count whose persistence is above `threshold` times the range of the
    finite values and above `rounding`, in units of the loss.
    `ValueError`: coordinates that do not fit the values, an unknown graph, or a negative threshold.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.shape != tuple(len(np.asarray(axis)) for axis in coordinates):
        raise ValueError(f"coordinates: lengths do not match values of shape {values.shape}")
    features = {"nonfinite_count": float((~np.isfinite(values)).sum())}
    if all(size % 2 for size in values.shape):
        features |= sharpness(values)
    least = persistence_threshold(values, threshold, rounding)
    trees = {}
    for graph in graphs:
        tree = trees[graph] = merge_tree(values, surface_edges(coordinates, graph), threshold=least)
        named = tree_features(tree)
        if graph in GRID_GRAPHS:
            named |= _h1_features(values, graph, least)
        features |= {f"{name}_{graph}": value for name, value in named.items()}
    return features, trees


def persistence_threshold(values: ArrayLike, threshold: float, rounding: float) -> float:
    """What a pair's persistence must exceed: a share of the range of the finite values, and their rounding."""
    values = np.asarray(values, dtype=np.float64)
    finite = values[np.isfinite(values)]
    return max(threshold * float(np.ptp(finite)), rounding) if len(finite) else rounding


TREE_FEATURES = ("n_minima", "n_saddles", "average_persistence", "average_persistence_closed", "total_persistence")
"""Attributes of a merge tree that are features of every plane and graph."""


def tree_features(tree: MergeTree) -> dict[str, float]:
    """The `TREE_FEATURES` of a tree."""
    return {name: float(getattr(tree, name)) for name in TREE_FEATURES}


def _h1_features(values: np.ndarray, graph: str, least: float) -> dict[str, float]:
    pairs = cubical_diagram(values, dimension=1, graph=graph)
    lifetimes = (pairs[:, 1] - pairs[:, 0])[np.isfinite(pairs).all(axis=1)]
    lifetimes = lifetimes[lifetimes > least]
    total, largest = float(lifetimes.sum()), float(lifetimes.max(initial=0.0))
    return {"h1_count": float(len(lifetimes)), "h1_total": total, "h1_max": largest}
