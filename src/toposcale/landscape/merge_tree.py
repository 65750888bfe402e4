"""Merge tree of the sublevel sets of a function on a graph with its H0 persistence pairs, and features of a surface."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from toposcale.landscape.graphs import GRID_GRAPHS, grid_edges, point_edges


@dataclass(frozen=True)
class MergeTree:
    """Births and merges of sublevel components whose persistence is above a threshold.

    Attributes
    ----------
    values : ndarray of shape (n,)
        Values of the vertices, float64.
    minima : ndarray of shape (n_minima,)
        Vertex that starts each component, by (value, index), int64.
    saddles : ndarray of shape (n_saddles,)
        Vertex of each merge in order; one at which three components meet occurs twice, int64.
    dying, surviving : ndarray of shape (n_saddles,)
        Minimum of the younger component, which ends at the saddle, and of the older one, which goes on, int64.
    roots : ndarray of shape (n_components,)
        Deepest minimum of every connected component of the graph, int64.
    """

    values: np.ndarray
    minima: np.ndarray
    saddles: np.ndarray
    dying: np.ndarray
    surviving: np.ndarray
    roots: np.ndarray

    @property
    def n_minima(self) -> int:
        """Return the number of leaves."""
        return len(self.minima)

    @property
    def n_saddles(self) -> int:
        """Return the number of merges, with multiplicity."""
        return len(self.saddles)

    @property
    def n_components(self) -> int:
        """Return the number of connected components of the graph, which is the number of trees."""
        return len(self.roots)

    @property
    def diagram(self) -> np.ndarray:
        """Return birth and death of every component (n_minima, 2) in the unit of the values, sorted, float64.

        Essential components, and those that end at a vertex of non-finite value, die at infinity.
        """
        filtration = _filtration(self.values)
        births = filtration[np.concatenate([self.dying, self.roots])]
        deaths = np.concatenate([filtration[self.saddles], np.full(len(self.roots), np.inf)])
        return np.column_stack([births, deaths])[np.lexsort((deaths, births))]

    @property
    def persistences(self) -> np.ndarray:
        """Return death - birth of the finite pairs in the order of the diagram, float64."""
        finite = self.diagram[np.isfinite(self.diagram).all(axis=1)]
        return finite[:, 1] - finite[:, 0]

    @property
    def total_persistence(self) -> float:
        """Return the sum of death - birth over the finite pairs; 0 if there is none."""
        return float(self.persistences.sum())

    @property
    def average_persistence(self) -> float:
        """Return the mean of death - birth over the finite pairs (Xie et al. 2024); 0 if there is none."""
        return self.total_persistence / len(self.persistences) if len(self.persistences) else 0.0

    @property
    def average_persistence_closed(self) -> float:
        """Return that mean with one more pair, the least and the largest finite value; NaN without a finite value.

        The Topology ToolKit pairs the global minimum with the global maximum in this way.
        """
        finite = self.values[np.isfinite(self.values)]
        if not len(finite):
            return float("nan")
        return (self.total_persistence + float(np.ptp(finite))) / (len(self.persistences) + 1)


def merge_tree(values: ArrayLike, edges: ArrayLike, *, threshold: float = 0.0) -> MergeTree:
    """Compute the merge tree of the sublevel sets of a function on a graph, in O(m log m).

    Vertices enter by (value, index), which settles ties; non-finite values enter last. At a merge the component of the
    smaller minimum survives (elder rule). It is at least as persistent as the other one, so a dropped branch carries no
    kept one.

    Parameters
    ----------
    values : array_like of shape (n,) or a grid
        Values of the vertices; a grid is read in C order.
    edges : array_like of shape (m, 2)
        Vertex pairs, integers, in any order.
    threshold : float
        Pairs whose persistence is not above it are dropped, in the unit of `values`.

    Returns
    -------
    MergeTree
        A constant function has one minimum and no saddle.

    Raises
    ------
    ValueError
        If there is no value, `edges` has another shape or an unknown vertex, or `threshold` is negative.

    Examples
    --------
    >>> tree = merge_tree([0.0, 2.0, 1.0], [[0, 1], [1, 2]])
    >>> tree.minima.tolist(), tree.saddles.tolist(), tree.diagram.tolist()
    ([0, 2], [1], [[0.0, inf], [1.0, 2.0]])
    """
    if not threshold >= 0:
        raise ValueError(f"threshold: need 0 or more, got {threshold}")
    values = np.asarray(values, dtype=np.float64).ravel()
    edges = _checked_edges(edges, len(values))
    filtration = _filtration(values)
    order = np.argsort(filtration, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    lower, upper = np.sort(rank[edges], axis=1).T  # from here on a vertex is its rank
    # Two minima are joined below a level by the graph if and only if they are joined by edges between basins of steepest
    # descent whose upper end lies below it. So the merges are those of the basins by these edges.
    basin = _basins(lower, upper, len(values))
    left, right = np.sort([basin[lower], basin[upper]], axis=0)
    between = np.flatnonzero(left != right)
    ascending = between[np.lexsort((right[between], left[between], upper[between]))]
    saddle, dying, surviving = _elder_rule(upper[ascending], left[ascending], right[ascending])
    ends = np.zeros(len(values), dtype=bool)
    ends[dying] = True
    with np.errstate(invalid="ignore"):  # a pair of two infinities has no persistence
        kept = filtration[order[saddle]] - filtration[order[dying]] > threshold
    lowest = np.flatnonzero(basin == np.arange(len(values)))
    roots = lowest[~ends[lowest]]
    return MergeTree(
        values=values,
        minima=order[np.sort(np.concatenate([dying[kept], roots]))],
        saddles=order[saddle[kept]],
        dying=order[dying[kept]],
        surviving=order[surviving[kept]],
        roots=order[roots],
    )


def _filtration(values: np.ndarray) -> np.ndarray:
    """Return the values (n,) with infinity in the place of non-finite ones."""
    return np.where(np.isfinite(values), values, np.inf)


def _checked_edges(edges: ArrayLike, count: int) -> np.ndarray:
    if not count:
        raise ValueError("values: a merge tree needs at least one vertex")
    edges = np.asarray(edges)
    if edges.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(f"edges: need integers of shape (m, 2), got {edges.dtype} {edges.shape}")
    if edges.min() < 0 or edges.max() >= count:
        raise ValueError(f"edges: vertices must lie in 0..{count - 1}, got {edges.min()}..{edges.max()}")
    return edges.astype(np.int64, copy=False)


def _basins(lower: np.ndarray, upper: np.ndarray, count: int) -> np.ndarray:
    """Return the minimum (n,) that each vertex reaches by steepest descent."""
    target = np.arange(count)
    np.minimum.at(target, upper, lower)
    while True:
        further = target[target]
        if np.array_equal(further, target):
            return target
        target = further


def _elder_rule(passes: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return (saddle, dying minimum, surviving minimum) of every merge of basins (3, merges) by passes, ascending."""
    oldest = {vertex: vertex for vertex in np.union1d(left, right).tolist()}

    def root(vertex: int) -> int:
        while oldest[vertex] != vertex:
            oldest[vertex] = oldest[oldest[vertex]]
            vertex = oldest[vertex]
        return vertex

    merges = []
    for saddle, left_basin, right_basin in zip(passes.tolist(), left.tolist(), right.tolist(), strict=True):
        older, younger = sorted((root(left_basin), root(right_basin)))
        if older != younger:
            oldest[younger] = older
            merges.append((saddle, younger, older))
    return np.array(merges, dtype=np.int64).reshape(-1, 3).T


def surface_edges(coordinates: Sequence[ArrayLike], graph: str) -> np.ndarray:
    """Return the edges (m, 2) of a named graph on the points of a grid in C order, given by its axes (k arrays).

    Point graphs use the true distances. ValueError: an unknown graph.
    """
    axes = [np.asarray(axis, dtype=np.float64) for axis in coordinates]
    if graph in GRID_GRAPHS:
        return grid_edges([len(axis) for axis in axes], graph)
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    return point_edges(points, graph)


def cubical_diagram(values: ArrayLike, *, dimension: int, graph: str) -> np.ndarray:
    """Return (birth, death) (m, 2), sorted, of the sublevel sets of a grid of losses by its cubical complex.

    `grid4` has the losses on vertices, and a cell enters with its highest vertex, so that neighbours along the axes are
    joined; `grid8` on top cells, and a face enters with its lowest cell, so that diagonal neighbours are joined as well.
    Non-finite losses enter last, pairs of zero persistence are left out, and essential classes die at infinity.
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
    """Return how much the loss rises around the centre of a grid with an odd number of points along every axis.

    `sharpness_max`, `sharpness_mean`: largest and mean finite loss less that of the centre. `sharpness_relative`: 100
    (largest - centre) / (1 + centre), Keskar's measure over the grid (ICLR 2017, arXiv:1609.04836), NaN for a centre of -1
    or less. All are NaN if the centre is not finite.
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
        Graphs, of `GRAPHS`.
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
    minimum_persistence = persistence_threshold(values, threshold, rounding)
    of_plane = f"_{plane}" if plane else ""
    features = {f"{name}{of_plane}": value for name, value in features.items()}
    trees = {}
    for graph in graphs:
        tree = trees[graph] = merge_tree(values, surface_edges(coordinates, graph), threshold=minimum_persistence)
        tree_values = tree_features(tree)
        if graph in GRID_GRAPHS:
            tree_values |= _h1_features(values, graph, minimum_persistence)
        features |= {f"{name}{of_plane}_{graph}": value for name, value in tree_values.items()}
    return features, trees


def persistence_threshold(values: ArrayLike, threshold: float, rounding: float) -> float:
    """Return the persistence that a pair must exceed: a share of the range of the finite values, or their rounding."""
    values = np.asarray(values, dtype=np.float64)
    finite = values[np.isfinite(values)]
    return max(threshold * float(np.ptp(finite)), rounding) if len(finite) else rounding


TREE_FEATURES = ("n_minima", "n_saddles", "average_persistence", "average_persistence_closed", "total_persistence")
"""Attributes of a merge tree that are features of every plane and graph."""


def tree_features(tree: MergeTree) -> dict[str, float]:
    """Return the `TREE_FEATURES` of a merge tree; NaN without a finite value, and so without a minimum."""
    if not np.isfinite(tree.values).any():
        return dict.fromkeys(TREE_FEATURES, float("nan"))
    return {name: float(getattr(tree, name)) for name in TREE_FEATURES}


def _h1_features(values: np.ndarray, graph: str, minimum_persistence: float) -> dict[str, float]:
    if not np.isfinite(values).any():
        return dict.fromkeys(("h1_count", "h1_total", "h1_max"), float("nan"))
    pairs = cubical_diagram(values, dimension=1, graph=graph)
    lifetimes = (pairs[:, 1] - pairs[:, 0])[np.isfinite(pairs).all(axis=1)]
    lifetimes = lifetimes[lifetimes > minimum_persistence]
    total, largest = float(lifetimes.sum()), float(lifetimes.max(initial=0.0))
    return {"h1_count": float(len(lifetimes)), "h1_total": total, "h1_max": largest}
