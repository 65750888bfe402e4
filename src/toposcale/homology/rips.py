"""Vietoris-Rips persistence of point clouds: Euclidean distances in float64, filtration value = distance."""

import hashlib
import math
from typing import NamedTuple

import numpy as np
from gudhi._ripser_ext import _full
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from toposcale.homology.validation import Floats, Indices, as_finite, undefined

_DIFFERENCE_ENTRIES = 1 << 15  # coordinates differenced at a time: a quarter of a megabyte stays in cache
_DENSE_POINTS = 2048  # up to here the whole distance matrix is kept: at most 32 MB
_FEW_POINTS = 256  # up to here, computing all distances is faster than ruling out pairs
_BLOCK_ENTRIES = 1 << 23  # inner products held at a time: 64 MB
_SAMPLE_PAIRS = 1 << 16
_DIFFERENCES_PER_PRODUCT = 64  # inner products in the time of a direct difference


def pairwise_distances(points: ArrayLike) -> Floats:
    """Return Euclidean distances (n, n) of points (n, d) in float64 by direct differences.

    Duplicates are at distance exactly 0; |x|^2 + |y|^2 - 2xy would lose half of the digits of small distances.
    """
    from scipy.spatial.distance import pdist, squareform  # slow to import: see docs/performance.md

    return _refuse_overflow(squareform(pdist(as_finite(points, "points", np.float64))))


def mean_pairwise_distance(distances: Floats) -> float:
    """Return the mean of distances (n, n) over the pairs, the unit of the `_scaled` features; NaN for one point."""
    n_points = len(distances)
    if n_points < 2:
        return undefined("one point has no mean pairwise distance")
    return float(distances.sum()) / (n_points * (n_points - 1))


def rips_diagrams(points: ArrayLike, *, maxdim: int = 1) -> list[Floats]:
    """Compute the Vietoris-Rips persistence diagrams of a point cloud over the two-element field.

    Parameters
    ----------
    points : array_like of shape (n, d)
        Points as rows.
    maxdim : int
        Largest homology dimension.

    Returns
    -------
    list of ndarray of shape (k, 2)
        (birth, death) of the finite bars of positive persistence of H0 to H`maxdim`, longest first, in the unit of
        `points` (filtration value = distance). The essential class of H0 and the zero bars of duplicates are left out.

    Raises
    ------
    ValueError
        If `points` is not 2-D, is empty, holds NaN or infinity or a squared distance overflows, or `maxdim` is
        negative.

    Examples
    --------
    >>> h0, h1 = rips_diagrams([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> h0.tolist(), h1.round(3).tolist()
    ([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]], [[1.0, 1.414]])
    """
    return rips_diagrams_of_distances(pairwise_distances(points), maxdim=maxdim)


def rips_diagrams_of_distances(distances: Floats, *, maxdim: int = 1) -> list[Floats]:
    """Return `rips_diagrams` of a distance matrix (n, n)."""
    if maxdim < 0:
        raise ValueError(f"maxdim must be 0 or more, got {maxdim}")
    # From the radius at which one point sees all others the complex is a cone: nothing is born or dies later.
    radius = float(distances.max(axis=1).min())
    return [_finite_bars(diagram) for diagram in _ripser_float64(distances, maxdim=maxdim, threshold=radius)]


def _ripser_float64(distances: Floats, *, maxdim: int, threshold: float) -> list[Floats]:
    """Return the diagrams (k, 2) of H0 to H`maxdim` of distances (n, n) up to `threshold`, over two elements."""
    # Under its private name: the ripser package computes in float32, and gudhi's public wrapper (`gudhi.sklearn`) imports
    # scikit-learn, two seconds in every job. pyproject.toml pins gudhi 3.13, and a test fails with another version.
    diagrams = _full(distances, max_dimension=maxdim, max_edge_length=threshold, homology_coeff_field=2)
    # Ripser stops at the dimension of the complex.
    return diagrams + [np.empty((0, 2))] * (maxdim + 1 - len(diagrams))


def _finite_bars(diagram: Floats) -> Floats:
    births, deaths = diagram[:, 0], diagram[:, 1]
    bars = diagram[(deaths > births) & np.isfinite(deaths)]
    return bars[np.lexsort((bars[:, 0], bars[:, 0] - bars[:, 1]))]


def spanning_tree_lengths(distances: Floats) -> Floats:
    """Return the edge lengths (n - 1,) of a minimum spanning tree of distances (n, n), longest first."""
    from scipy.cluster.hierarchy import linkage  # slow to import, as is scipy.spatial
    from scipy.spatial.distance import squareform

    # Single linkage merges clusters along the edges of a minimum spanning tree.
    return linkage(squareform(distances, checks=False), "single")[::-1, 2] if len(distances) > 1 else np.empty(0)


def h0_lifetimes(points: ArrayLike) -> Floats:
    """Compute the H0 lifetimes of a point cloud: the edge lengths of its Euclidean minimum spanning tree.

    Exact in float64: inner products only rule out pairs, with a rigorous error bound, and direct differences decide
    about the rest. Takes O(n^2 d) time, mostly one matrix product, and beyond the input a copy in float64, one in
    float32 and a few blocks. Measured on one core with float32 points (benchmarks/bench_homology.py): 50,304 x 2,048 in
    134 s. Many points closer to each other than the rounding of inner products (1e-6 of their norm) take up to the
    time of all direct differences.

    Parameters
    ----------
    points : array_like of shape (n, d)
        Points as rows.

    Returns
    -------
    ndarray of shape (n - 1,)
        Lifetimes of the finite classes, longest first, in the unit of `points`; 0 for duplicates.

    Raises
    ------
    ValueError
        If `points` is not 2-D, is empty, holds NaN or infinity, or a squared distance overflows.

    Examples
    --------
    >>> h0_lifetimes([[0.0], [1.0], [3.0]]).tolist()
    [2.0, 1.0]
    """
    cloud = as_finite(points, "points")
    if len(cloud) <= _DENSE_POINTS:
        return spanning_tree_lengths(pairwise_distances(cloud))
    distinct = cloud[np.unique(_first_of_equal_rows(cloud))]
    lengths = np.zeros(len(cloud) - 1)
    if len(distinct) > 1:
        lengths[: len(distinct) - 1] = np.sqrt(_NeighbourSearch(distinct).tree_squares())
    return np.sort(lengths)[::-1]


def nearest_distances(points: ArrayLike, most_rows: int | None = None) -> Floats:
    """Compute the distances of points to their nearest neighbours.

    Each is exact in float64, by the method of `h0_lifetimes`. Takes O(n^2 d) time, O(n d most_rows) with fewer rows.

    Parameters
    ----------
    points : array_like of shape (n, d)
        Points as rows.
    most_rows : int, optional
        With more points, the distances are of this many evenly spaced ones, to their neighbours among all points.

    Returns
    -------
    ndarray of shape (n,) or (most_rows,)
        Distances, in the unit of `points`; NaN, with a RuntimeWarning, for one point.

    Raises
    ------
    ValueError
        If `points` is not 2-D, is empty, holds NaN or infinity, or a squared distance overflows.

    Examples
    --------
    >>> nearest_distances([[0.0], [1.0], [4.0], [4.0]]).tolist()
    [1.0, 1.0, 0.0, 0.0]
    """
    cloud = as_finite(points, "points")
    if len(cloud) == 1:
        return np.array([undefined("one point has no nearest other point")])
    chosen = np.arange(len(cloud))
    if most_rows is not None and most_rows < len(cloud):
        chosen = np.linspace(0, len(cloud) - 1, most_rows).round().astype(np.intp)
    if len(cloud) <= _FEW_POINTS:
        distances = pairwise_distances(cloud)
        np.fill_diagonal(distances, math.inf)
        return distances.min(axis=1)[chosen]
    first = _first_of_equal_rows(cloud)
    distinct, copies = np.unique(first, return_counts=True)
    rows = np.searchsorted(distinct, first[chosen])
    squares = np.zeros(len(distinct))  # a repeated row is at distance 0
    search, components = _NeighbourSearch(cloud[distinct]), np.arange(len(distinct))
    for block in search.blocks(np.unique(rows[copies[rows] == 1])):
        start, _, nearest = search.candidates(block, components, -math.inf)
        squares[start] = nearest
    return np.sqrt(squares)[rows]


def _first_of_equal_rows(cloud: NDArray) -> Indices:
    """Return for each row the index of the first row that equals it, by digests."""
    first: dict[bytes, int] = {}
    # Adding 0 turns -0.0 into 0.0, which equals it and has other bytes.
    digests = (hashlib.blake2b((row + 0).tobytes(), digest_size=16).digest() for row in cloud)
    return np.array([first.setdefault(digest, index) for index, digest in enumerate(digests)], dtype=np.intp)


# Minimum spanning trees of graphs with too many edges to list, in rounds of Boruvka's and Kruskal's algorithms.
#
# A round gathers, for every component but the largest, one shortest edge that leaves it, and possibly every edge up to a
# threshold. Kruskal on these edges takes only edges of a minimum spanning tree of the whole graph:
# - up to the threshold all edges are there, so Kruskal decides on them as it would in the whole graph;
# - an edge e above the threshold is the shortest one out of some component, so it belongs to a minimum spanning tree.
#   With ties, let the gathered edges come first among equals. A path that is to replace e leaves that component by an
#   edge as short as e; that edge was gathered, so the component at its other end chose it, and the same holds there: the
#   whole path was gathered, and Kruskal sees it. Each round at least halves the number of components other than the
#   largest.


class _Edges(NamedTuple):
    """Edges as arrays (m,) of end points (vertex or component numbers) and lengths."""

    start: Indices
    end: Indices
    length: Floats


def _shortest_of_each(edges: _Edges) -> Indices:
    """Return the index of one shortest edge for every vertex at which an edge starts."""
    order = np.lexsort((edges.length, edges.start))
    return order[np.unique(edges.start[order], return_index=True)[1]]


def _shortest_forest(n_vertices: int, edges: _Edges) -> tuple[Floats, Indices]:
    """Return the edge lengths of a minimum spanning forest, and the tree number (n,) of each vertex.

    Parallel edges are allowed, loops are not.
    """
    order = np.argsort(edges.length)
    low, high = np.sort([edges.start[order], edges.end[order]], axis=0)
    # Of parallel edges the first in the order is the shortest; scipy would add them up.
    first = np.sort(np.unique(low * n_vertices + high, return_index=True)[1])
    # Edges enter by rank: positive numbers, since a length of 0 would not be an edge to scipy.
    ranks = np.arange(1.0, len(first) + 1)
    # Older versions of scipy find trees with 32-bit indices only.
    ends = low[first].astype(np.int32), high[first].astype(np.int32)
    forest = minimum_spanning_tree(csr_array((ranks, ends), shape=(n_vertices, n_vertices)))
    taken = order[first[forest.data.astype(np.intp) - 1]]
    return edges.length[taken], connected_components(forest, directed=False)[1].astype(np.intp)


class _NeighbourSearch:
    """Search for shortest edges of a cloud (n, d): inner products rule out pairs, direct differences decide."""

    def __init__(self, cloud: NDArray) -> None:
        self.cloud = cloud
        self.centred = cloud.astype(np.float64)
        self.centred -= self.centred.mean(axis=0)  # shorter vectors, smaller rounding errors
        squares = _refuse_overflow(np.einsum("ij,ij->i", self.centred, self.centred))
        # Norms of at most 1, for float32. A power of two scales without rounding.
        self.unit = np.ldexp(1.0, -int(np.frexp(np.sqrt(squares.max()))[1]))
        self.centred *= self.unit
        self.squares = self.scaled(squares)

    def scaled(self, squares: Floats) -> Floats:
        """Return squared distances in the unit of the scaled cloud."""
        return squares * self.unit * self.unit

    def margins(self, points: Indices | slice, dtype: type[np.floating]) -> Floats:
        """Return the error margins (m,) of the points in sums of `dtype`."""
        # |x|^2 + |y|^2 - 2xy and the direct form both lie within margin(x) + margin(y) of the true square: an inner product
        # of d terms is off by at most d eps |x| |y|, (|x| + |y|)^2 <= 2 (|x|^2 + |y|^2), and underflow costs `tiny` a term.
        limits = np.finfo(dtype)
        return 8.0 * (self.cloud.shape[1] + 16) * float(limits.eps) * (self.squares[points] + limits.tiny / limits.eps)

    def lower_bounds(self, rows: Indices, labels: Indices, dtype: type[np.floating]) -> NDArray[np.floating]:
        """Return lower bounds (r, n) of the scaled squared distances by inner products; infinite within a component."""
        bounds = (-2.0 * self.centred[rows]).astype(dtype) @ self.centred.astype(dtype, copy=False).T
        least = self.squares - self.margins(slice(None), dtype)
        bounds += least[rows, None].astype(dtype)
        bounds += least.astype(dtype)
        bounds[labels[rows, None] == labels] = math.inf
        return bounds

    def exact_squares(self, start: Indices, end: Indices) -> Floats:
        """Return the squared distances (m,) of pairs of points by direct differences."""
        squares = np.empty(len(start))
        step = max(1, _DIFFERENCE_ENTRIES // self.cloud.shape[1])
        for first in range(0, len(start), step):
            part = slice(first, first + step)
            differences = self.cloud[start[part]].astype(np.float64)
            differences -= self.cloud[end[part]]
            squares[part] = np.einsum("ij,ij->i", differences, differences)
        return _refuse_overflow(squares)

    def short_square(self) -> float:
        """Return a squared distance that about n ln n pairs do not exceed, estimated from a sample."""
        n_points = len(self.cloud)
        start, end = np.random.default_rng(0).integers(n_points, size=(2, _SAMPLE_PAIRS))
        sample = self.exact_squares(start[start != end], end[start != end])
        rank = int(len(sample) * 2.0 * math.log(n_points) / n_points)
        threshold = np.partition(sample, rank)[rank]
        if np.count_nonzero(sample <= threshold) > 2 * (rank + 1):
            # So many pairs tie that far more would stay within: take the next smaller value, or none.
            return float(np.max(sample[sample < threshold], initial=-math.inf))
        return float(threshold)

    def tree_squares(self) -> Floats:
        """Return the squared edge lengths (n - 1,) of a minimum spanning tree, in no particular order."""
        labels, rounds, threshold = np.arange(len(self.cloud)), [], self.short_square()
        while labels.any():
            squares, trees = _shortest_forest(int(labels.max()) + 1, self.outgoing_edges(labels, threshold))
            rounds.append(squares)
            labels, threshold = trees[labels], -math.inf
        return np.concatenate(rounds)

    def outgoing_edges(self, labels: Indices, threshold: float) -> _Edges:
        """Return edges between components by squared length: all up to `threshold`, and a shortest one out of each.

        The largest component does not search.
        """
        blocks = self.blocks(np.flatnonzero(labels != np.bincount(labels).argmax()))
        pieces = [self.candidates(block, labels, threshold) for block in blocks]
        start, end, squares = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
        edges = _Edges(labels[start], labels[end], squares)
        chosen = np.concatenate([_shortest_of_each(edges), np.flatnonzero(squares <= threshold)])
        return _Edges(*(column[chosen] for column in edges))

    def blocks(self, rows: Indices) -> list[Indices]:
        """Return `rows` in blocks whose inner products with all points fit in memory."""
        step = max(1, _BLOCK_ENTRIES // len(self.cloud))
        return [rows[first : first + step] for first in range(0, len(rows), step)]

    def candidates(
        self, rows: Indices, labels: Indices, threshold: float, dtype: type[np.floating] = np.float32
    ) -> tuple[Indices, Indices, Floats]:
        """Return start, end and square of the shortest edges out of `rows`, and of all edges up to `threshold`."""
        lower = self.lower_bounds(rows, labels, dtype)
        nearest = lower.argmin(axis=1)
        margin = self.margins(rows, dtype) + self.margins(nearest, dtype)
        limit = lower[np.arange(len(rows)), nearest] + 2.0 * margin
        np.maximum(limit, self.scaled(np.asarray(threshold)), out=limit)
        row, end = np.nonzero(lower <= limit[:, None])
        if dtype is np.float32 and len(row) > lower.size // _DIFFERENCES_PER_PRODUCT:
            return self.candidates(rows, labels, threshold, np.float64)
        squares = self.exact_squares(rows[row], end)
        first_of_row = np.flatnonzero(np.diff(row, prepend=-1))  # every row has at least its nearest point
        least = np.minimum.reduceat(squares, first_of_row)
        kept = (squares == least[row]) | (squares <= threshold)
        return rows[row[kept]], end[kept], squares[kept]


def _refuse_overflow(distances: Floats) -> Floats:
    if not np.isfinite(distances).all():
        raise ValueError("points are so far apart that a squared distance overflows float64")
    return distances
