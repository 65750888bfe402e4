"""Features of a sampled loss surface: merge tree and homology by graph, and sharpness."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from toposcale.landscape.graphs import GRID_GRAPHS, grid_edges, point_edges
from toposcale.landscape.merge_tree import MergeTree, merge_tree


def surface_edges(coordinates: Sequence[ArrayLike], graph: str) -> np.ndarray:
    """Return the edges (m, 2) of a named graph on the points of a grid in C order, given by its axes (k arrays).

    Point graphs use the true distances. ValueError: an unknown graph, or `gabriel`, which is `grid4` on a square grid.
    """
    if graph == "gabriel":
        raise ValueError("graph: gabriel of a square grid is grid4; it is for scattered points")
    axes = [np.asarray(axis, dtype=np.float64) for axis in coordinates]
    if graph in GRID_GRAPHS:
        return grid_edges([len(axis) for axis in axes], graph)
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    return point_edges(points, graph)


def cubical_diagram(values: ArrayLike, *, dimension: int, graph: str) -> np.ndarray:
    """Compute the sublevel persistence diagram of a grid of losses by its cubical complex.

    Parameters
    ----------
    values : array_like
        Losses on a grid; non-finite ones enter last.
    dimension : int
        Homology dimension.
    graph : {"grid4", "grid8"}
        Losses on vertices, with a cell entering with its highest vertex (neighbours along the axes are joined), or on
        top cells, with a face entering with its lowest cell (diagonal neighbours are joined as well).

    Returns
    -------
    ndarray of shape (m, 2)
        (birth, death) in the unit of the loss, sorted, float64. Pairs of zero persistence are left out, essential
        classes die at infinity.

    Raises
    ------
    ValueError
        If `dimension` is negative or `graph` is another one.

    Examples
    --------
    >>> cubical_diagram([[0.0, 2.0, 1.0]], dimension=0, graph="grid4").tolist()
    [[0.0, inf], [1.0, 2.0]]
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
    """Compute how much the loss rises around the centre of a grid.

    Parameters
    ----------
    values : array_like
        Losses on a grid with an odd number of points along every axis.

    Returns
    -------
    dict of str to float
        `sharpness_max`, `sharpness_mean`: largest and mean finite loss less that of the centre, in the unit of the
        loss; `sharpness_relative`: 100 (largest - centre) / (1 + centre), Keskar's measure over the grid. All are NaN
        if the centre is not finite, and the last one if it is -1 or less.

    Raises
    ------
    ValueError
        If an axis has an even number of points.

    References
    ----------
    Keskar et al., ICLR 2017, arXiv:1609.04836.

    Examples
    --------
    >>> sharpness([2.0, 1.0, 3.0])
    {'sharpness_max': 2.0, 'sharpness_mean': 1.0, 'sharpness_relative': 100.0}
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
    plane: str = "",
) -> tuple[dict[str, float], dict[str, MergeTree]]:
    """Compute the features of a loss surface and its merge tree on every graph.

    Parameters
    ----------
    values : array_like
        Losses on a grid.
    coordinates : sequence of array_like
        Coordinates along each axis, in weight units.
    graphs : sequence of str
        Graphs, of `GRAPHS` without `gabriel`.
    threshold, rounding : float
        Pairs count whose persistence is above both: a share of the range of the finite values, and in the unit of the
        loss.
    plane : str, optional
        Name of the plane, which the names of features then have before the graph: `n_minima_negative_0.3_g`.

    Returns
    -------
    features : dict of str to float
        For every graph g: `n_minima_g`, `n_saddles_g`, `average_persistence_g`, `average_persistence_closed_g` and
        `total_persistence_g`, for a grid graph also `h1_count_g`, `h1_total_g` and `h1_max_g` of the finite pairs of
        the cubical complex; once: `nonfinite_count`, and `sharpness` if the grid has a centre. Persistences in the unit
        of the loss.
    trees : dict of str to MergeTree
        Merge tree by graph.

    Raises
    ------
    ValueError
        If `coordinates` do not fit `values`, a graph is unknown, or `threshold` is negative.

    Examples
    --------
    >>> features, trees = landscape_features([[0.0, 2.0, 1.0]], [[0.0], [0.0, 1.0, 2.0]], ["grid4"])
    >>> features["n_minima_grid4"], features["average_persistence_grid4"]
    (2.0, 1.0)
    """
    values = np.asarray(values, dtype=np.float64)
    if values.shape != tuple(len(np.asarray(axis)) for axis in coordinates):
        raise ValueError(f"coordinates: lengths do not match values of shape {values.shape}")
    features = {"nonfinite_count": float((~np.isfinite(values)).sum())}
    if all(size % 2 for size in values.shape):
        features |= sharpness(values)
    least = persistence_threshold(values, threshold, rounding)
    of_plane = f"_{plane}" if plane else ""
    features = {f"{name}{of_plane}": value for name, value in features.items()}
    trees = {}
    for graph in graphs:
        tree = trees[graph] = merge_tree(values, surface_edges(coordinates, graph), threshold=least)
        named = tree_features(tree)
        if graph in GRID_GRAPHS:
            named |= _h1_features(values, graph, least)
        features |= {f"{name}{of_plane}_{graph}": value for name, value in named.items()}
    return features, trees


def persistence_threshold(values: ArrayLike, threshold: float, rounding: float) -> float:
    """Return the persistence that a pair must exceed: a share of the range of the finite values, or their rounding."""
    values = np.asarray(values, dtype=np.float64)
    finite = values[np.isfinite(values)]
    return max(threshold * float(np.ptp(finite)), rounding) if len(finite) else rounding


TREE_FEATURES = ("n_minima", "n_saddles", "average_persistence", "average_persistence_closed", "total_persistence")
"""Attributes of a merge tree that are features of every plane and graph."""


def tree_features(tree: MergeTree) -> dict[str, float]:
    """Return the `TREE_FEATURES` of a merge tree."""
    return {name: float(getattr(tree, name)) for name in TREE_FEATURES}


def _h1_features(values: np.ndarray, graph: str, least: float) -> dict[str, float]:
    pairs = cubical_diagram(values, dimension=1, graph=graph)
    lifetimes = (pairs[:, 1] - pairs[:, 0])[np.isfinite(pairs).all(axis=1)]
    lifetimes = lifetimes[lifetimes > least]
    total, largest = float(lifetimes.sum()), float(lifetimes.max(initial=0.0))
    return {"h1_count": float(len(lifetimes)), "h1_total": total, "h1_max": largest}
