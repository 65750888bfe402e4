"""Merge tree of the sublevel sets of a function on a graph, and its persistence pairs in degree 0."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree


@dataclass(frozen=True)
class MergeTree:
    """Which sublevel components are born and which merge into which, but for pairs below the threshold.

    values: float64 (n,), as given. minima: int64 (n_minima,), the vertex that starts each component, by
    (value, index). saddles: int64 (n_saddles,), the vertex of each merge event in the order of the events; a
    vertex at which three components meet stands there twice. dying, surviving: int64 (n_saddles,), the
    minimum of the younger component, which ends at that saddle, and of the older one, which takes it over.
    roots: int64 (n_components,), the deepest minimum of every connected component of the graph.
    """

    values: np.ndarray
    minima: np.ndarray
    saddles: np.ndarray
    dying: np.ndarray
    surviving: np.ndarray
    roots: np.ndarray

    @property
    def n_minima(self) -> int:
        """Leaves of the tree."""
        return len(self.minima)

    @property
    def n_saddles(self) -> int:
        """Merge events, counted with multiplicity."""
        return len(self.saddles)

    @property
    def n_components(self) -> int:
        """Connected components of the graph; above one there are that many trees."""
        return len(self.roots)

    @property
    def diagram(self) -> np.ndarray:
        """Birth and death of every component, float64 (n_minima, 2), sorted.

        Units of the loss. The essential ones die at infinity. A component that ends only at a vertex of
        non-finite value dies at infinity as well.
        """
        filtration = _filtration(self.values)
        births = filtration[np.concatenate([self.dying, self.roots])]
        deaths = np.concatenate([filtration[self.saddles], np.full(len(self.roots), np.inf)])
        return np.column_stack([births, deaths])[np.lexsort((deaths, births))]

    @property
    def persistences(self) -> np.ndarray:
        """Death minus birth of the finite pairs, float64, in the order of the diagram."""
        finite = self.diagram[np.isfinite(self.diagram).all(axis=1)]
        return finite[:, 1] - finite[:, 0]

    @property
    def total_persistence(self) -> float:
        """Sum of death minus birth over the finite pairs; 0 when there is none."""
        return float(self.persistences.sum())

    @property
    def average_persistence(self) -> float:
        """Mean of death minus birth over the finite pairs; 0 when there is none (Xie et al. 2024)."""
        return self.total_persistence / len(self.persistences) if len(self.persistences) else 0.0

    @property
    def average_persistence_closed(self) -> float:
        """The same mean with one pair more, from the least to the largest finite value; NaN without a finite value.

        So the Topology ToolKit counts, which pairs the global minimum with the global maximum.
        """
        finite = self.values[np.isfinite(self.values)]
        if not len(finite):
            return float("nan")
        return (self.total_persistence + float(np.ptp(finite))) / (len(self.persistences) + 1)


def merge_tree(values: ArrayLike, edges: ArrayLike, *, threshold: float = 0.0) -> MergeTree:
    """Merge tree of the sublevel sets of `values` on the graph `edges`, in O(m log m).

    Vertices enter by (value, index), which settles every tie; a non-finite value enters last. values: (n,),
    or a grid that is read in C order; edges: integers (m, 2) into it, in any order. The older component, of
    smaller (value, index), survives a merge (elder rule); pairs whose persistence is not above `threshold` are
    dropped, so a constant function has one minimum and no saddle. What survives a merge is at least as persistent as
    what ends there, so a dropped branch carries no kept one. `ValueError`: no value, edges of another shape, a
    vertex that does not exist, or a negative threshold.

    Every vertex is first led down its steepest path to a minimum, for all vertices at once. Two minima are joined below
    a level by the graph if and only if they are joined by edges between such basins whose upper end lies below it, so
    the merges are those of the minimum spanning tree of the basins, and only that is walked edge by edge.
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
    basin = _basins(lower, upper, len(values))
    saddle, dying, surviving = _elder_rule(*_basin_tree(basin, lower, upper))
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
    """Values with everything non-finite moved to the top, where it enters last."""
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
    """The minimum that each vertex reaches by going to its lowest neighbour again and again."""
    target = np.arange(count)
    np.minimum.at(target, upper, lower)
    while True:
        further = target[target]
        if np.array_equal(further, target):
            return target
        target = further


def _basin_tree(basin: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Minimum spanning forest of the basins: (saddle, basin, basin) of its edges by ascending saddle."""
    left, right = basin[lower], basin[upper]
    crossing = left != right
    upper = upper[crossing]
    pair = np.sort(np.column_stack([left[crossing], right[crossing]]), axis=1)
    minima, pair = np.unique(pair, return_inverse=True)
    pair = pair.reshape(-1, 2)
    # The lowest pass between two basins is the only edge between them that can matter.
    key = pair[:, 0] * len(minima) + pair[:, 1]
    order = np.lexsort((upper, key))
    first = order[np.flatnonzero(np.diff(key[order], prepend=-1))]
    weight = upper[first] + 1.0  # a stored zero would be read as no edge
    graph = csr_array((weight, (pair[first, 0], pair[first, 1])), shape=(len(minima), len(minima)))
    forest = minimum_spanning_tree(graph).tocoo()
    saddle = forest.data.astype(np.int64) - 1
    order = np.lexsort((forest.col, forest.row, saddle))
    return saddle[order], minima[forest.row[order]], minima[forest.col[order]]


def _elder_rule(saddle: np.ndarray, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(saddle, dying minimum, surviving minimum) of every merge, saddles ascending."""
    oldest = {vertex: vertex for vertex in np.union1d(left, right).tolist()}

    def root(vertex: int) -> int:
        while oldest[vertex] != vertex:
            oldest[vertex] = oldest[oldest[vertex]]
            vertex = oldest[vertex]
        return vertex

    merges = np.empty((len(saddle), 2), dtype=np.int64)
    for index, ends in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        merges[index] = older, younger = sorted(map(root, ends))
        oldest[younger] = older
    return saddle, merges[:, 1], merges[:, 0]


@dataclass(frozen=True)
class MergeTreeLayout:
    """A planar drawing of a merge tree: heights are losses, and no two branches cross.

    leaf: dict from minimum vertex to its x. nodes: float64 (k, 2), the x and height of every minimum and
    every saddle. segments: float64 (s, 2, 2), the line segments as pairs of (x, height): each branch is
    vertical, and the branches that meet at a saddle are joined by a horizontal bar.
    """

    leaf: dict[int, float]
    nodes: np.ndarray
    segments: np.ndarray


def merge_tree_layout(tree: MergeTree) -> MergeTreeLayout:
    """Coordinates that draw `tree`: leaves at x = 0, 1, ..., a saddle midway between what it joins.

    Components of the graph stand side by side; each root rises to the largest finite value. Non-finite
    heights are drawn a tenth of the range above that.
    """
    leaves = _leaf_order(tree)
    leaf = {int(vertex): float(x) for x, vertex in enumerate(leaves)}
    finite = tree.values[np.isfinite(tree.values)]
    low, top = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    beyond = top + 0.1 * ((top - low) or 1.0)

    def height(vertex: int) -> float:
        return float(tree.values[vertex]) if np.isfinite(tree.values[vertex]) else beyond

    stem = {vertex: (x, height(vertex)) for vertex, x in leaf.items()}  # the upper end of each living branch
    nodes, segments = list(stem.values()), []
    events = np.column_stack([tree.saddles, tree.dying, tree.surviving])
    for saddle, dying, surviving in events.tolist():
        level = height(saddle)
        (x_dying, y_dying), (x_surviving, y_surviving) = stem.pop(dying), stem[surviving]
        corners = (x_dying, level), (x_surviving, level)
        segments += [((x_dying, y_dying), corners[0]), ((x_surviving, y_surviving), corners[1]), corners]
        stem[surviving] = ((x_dying + x_surviving) / 2, level)
        nodes.append(stem[surviving])
    segments += [((x, y), (x, max(y, top))) for x, y in stem.values()]
    lines = np.array([line for line in segments if line[0] != line[1]], dtype=np.float64)
    return MergeTreeLayout(leaf, np.array(nodes, dtype=np.float64), lines.reshape(-1, 2, 2))


def _leaf_order(tree: MergeTree) -> np.ndarray:
    """Minima from left to right such that the leaves below every saddle stand together."""
    after = {int(vertex): -1 for vertex in tree.minima}  # linked lists, so that a merge costs O(1)
    last = {vertex: vertex for vertex in after}
    for dying, surviving in zip(tree.dying.tolist(), tree.surviving.tolist(), strict=True):
        after[last[surviving]] = dying
        last[surviving] = last[dying]
    order = []
    for vertex in tree.roots.tolist():
        while vertex >= 0:
            order.append(vertex)
            vertex = after[vertex]
    return np.array(order, dtype=np.int64)
