"""Vietoris-Rips persistence of point clouds: Euclidean distances in float64, filtration value = distance."""

import hashlib
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist, squareform

from toposcale.homology.ripser import ripser_float64
from toposcale.homology.spanning_tree import Edges, heaviest_per_component, outside_largest, tree_weights
from toposcale.homology.validation import Floats, Indices, as_finite, as_finite_float64, undefined

_DIFFERENCE_ENTRIES = 1 << 15  # coordinates differenced at a time: a quarter of a megabyte stays in cache
_DENSE_POINTS = 2048  # up to here the whole distance matrix is kept: at most 32 MB
_BLOCK_ENTRIES = 1 << 23  # inner products held at a time: 64 MB
_SAMPLE_PAIRS = 1 << 16
_TILE_POINTS = 1024  # rows and columns of a tile of the distance matrix: 4 MB of float32
_FEW_CANDIDATES = 8  # a row with more neighbours than float32 can tell apart is compared in float64


def pairwise_distances(points: ArrayLike) -> Floats:
    """Euclidean distances (n, n) of the rows of `points` (n, d), float64, by direct differences.

    Not by |x|^2 + |y|^2 - 2xy, which loses half of the digits of small distances: here duplicates are at distance
    exactly 0.
    ValueError: `points` not 2-D, empty, NaN or infinite, or so large that a squared distance overflows.
    """
    return _refuse_overflow(squareform(pdist(as_finite_float64(points, "points"))))


def mean_pairwise_distance(distances: Floats) -> float:
    """Mean of a distance matrix (n, n) over its pairs: the length unit of the `_scaled` features.

    One point has no pairs: NaN, with a RuntimeWarning.
    """
    n_points = len(distances)
    if n_points < 2:
        return undefined("one point has no mean pairwise distance")
    return float(distances.sum()) / (n_points * (n_points - 1))


def rips_diagrams(points: ArrayLike, *, maxdim: int = 1) -> list[Floats]:
    """Vietoris-Rips diagrams H0 .. H`maxdim` of the rows of `points` (n, d), over the field of two elements.

    One (k, 2) float64 array (birth, death) a dimension, in the unit of `points`: finite bars of positive
    persistence, longest first. The one essential class of H0 is left out, and so are bars of duplicated
    points. To scale a diagram by the mean pairwise distance, divide it: no second run is needed.
    ValueError: `points` not 2-D, empty, NaN or infinite; `maxdim` negative.
    """
    return rips_diagrams_of_distances(pairwise_distances(points), maxdim=maxdim)


def rips_diagrams_of_distances(distances: Floats, *, maxdim: int = 1) -> list[Floats]:
    """`rips_diagrams` from a distance matrix (n, n), for callers that need the distances as well."""
    if maxdim < 0:
        raise ValueError(f"maxdim must be 0 or more, got {maxdim}")
    # From the radius at which one point sees all others the complex is a cone: nothing is born or dies later.
    radius = float(distances.max(axis=1).min())
    return [_finite_bars(diagram) for diagram in ripser_float64(distances, maxdim=maxdim, threshold=radius)]


def _finite_bars(diagram: Floats) -> Floats:
    births, deaths = diagram[:, 0], diagram[:, 1]
    bars = diagram[(deaths > births) & np.isfinite(deaths)]
    return bars[np.lexsort((bars[:, 0], bars[:, 0] - bars[:, 1]))]


def spanning_tree_lengths(distances: Floats) -> Floats:
    """Edge lengths (n - 1,) of a minimum spanning tree of `distances` (n, n), longest first."""
    n_points = len(distances)
    lengths = np.empty(n_points - 1)
    reach = distances[0].copy()
    reach[0] = math.inf
    outside = np.zeros(n_points)  # becomes infinite for a point in the tree
    outside[0] = math.inf
    for step in range(n_points - 1):
        nearest = int(reach.argmin())
        lengths[step] = reach[nearest]
        outside[nearest] = math.inf
        np.minimum(reach, distances[nearest], out=reach)
        np.maximum(reach, outside, out=reach)
    return np.sort(lengths)[::-1]


def h0_lifetimes(points: ArrayLike) -> Floats:
    """Lifetimes (n - 1,) of the finite H0 classes of the rows of `points` (n, d), longest first.

    They are the edge lengths of the Euclidean minimum spanning tree; duplicated points give zeros. Exact in float64:
    inner products only rule pairs out, with a proven error margin, and every pair that is left is compared by direct
    differences. Time O(n^2 d), mostly one matrix product; memory beyond the input: one float64 copy and a few blocks of
    64 MB. Measured on one core with float32 points (benchmarks/bench_homology.py): 50,304 x 2,048 in 6 minutes. Many
    points closer together than the rounding of inner products (1e-6 of their norm) are slower, up to the time of all
    direct differences.
    ValueError: `points` not 2-D, empty, NaN or infinite, or so large that a squared distance overflows.
    """
    cloud = as_finite(points, "points")
    if len(cloud) <= _DENSE_POINTS:
        return spanning_tree_lengths(pairwise_distances(cloud))
    distinct = cloud[np.unique(_first_of_equal_rows(cloud))]
    lengths = np.zeros(len(cloud) - 1)
    if len(distinct) > 1:
        search = _NeighbourSearch(distinct)
        edges = search.outgoing_edges(np.arange(len(distinct)), search.short_square())
        squares = -tree_weights(len(distinct), edges, lambda labels: search.outgoing_edges(labels, -math.inf))
        lengths[: len(squares)] = np.sqrt(squares)
    return np.sort(lengths)[::-1]


def nearest_distances(points: ArrayLike) -> Floats:
    """Distance (n,) of each row of `points` (n, d) to the nearest other row; infinite where there is no other row.

    Exact in float64, as `h0_lifetimes` is: every pair that inner products cannot rule out is compared by direct
    differences. Time O(n^2 d), mostly one matrix product.
    ValueError: `points` not 2-D, empty, NaN or infinite, or so large that a squared distance overflows.
    """
    cloud = as_finite(points, "points")
    if len(cloud) <= _DENSE_POINTS:
        distances = pairwise_distances(cloud)
        np.fill_diagonal(distances, math.inf)
        return np.asarray(distances.min(axis=1))
    first = _first_of_equal_rows(cloud)
    distinct, copies = np.unique(first, return_counts=True)
    squares = np.where(copies > 1, 0.0, math.inf)  # a repeated row is at distance 0
    _NeighbourSearch(cloud[distinct]).lower_to_nearest(squares)
    return np.sqrt(squares)[np.searchsorted(distinct, first)]


def nearest_neighbour_mean(points: ArrayLike) -> float:
    """Mean over the rows of `points` (n, d) of the distance to the nearest other row, in the unit of the points.

    One point has no other: NaN, with a RuntimeWarning. ValueError as in `nearest_distances`.
    """
    nearest = nearest_distances(points)
    if len(nearest) < 2:
        return undefined("one point has no nearest other point")
    return float(nearest.mean())


def _first_of_equal_rows(cloud: NDArray) -> Indices:
    """For each row the index of the first row that equals it. Rows are compared by digests, not copied."""
    first: dict[bytes, int] = {}
    # Adding 0 turns -0.0 into 0.0, which equals it and has other bytes.
    digests = (hashlib.blake2b((row + 0).tobytes(), digest_size=16).digest() for row in cloud)
    return np.array([first.setdefault(digest, index) for index, digest in enumerate(digests)], dtype=np.intp)


class _NeighbourSearch:
    """Shortest edges between components of a cloud: inner products rule pairs out, differences decide."""

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

    def lower_bounds(
        self, rows: Indices, columns: Indices | slice, labels: Indices, dtype: type[np.floating]
    ) -> NDArray[np.floating]:
        """Return lower bounds (r, c) of the scaled squared distances by inner products; infinite within a component."""
        bounds = (-2.0 * self.centred[rows]).astype(dtype) @ self.centred[columns].astype(dtype, copy=False).T
        for points, axis in ((rows, 1), (columns, 0)):
            part = self.squares[points] - self.margins(points, dtype)
            bounds += np.expand_dims(part.astype(dtype), axis)
        bounds[labels[rows, None] == labels[columns]] = math.inf
        return bounds

    def exact_squares(self, start: Indices, end: Indices) -> Floats:
        squares = np.empty(len(start))
        step = max(1, _DIFFERENCE_ENTRIES // self.cloud.shape[1])
        for first in range(0, len(start), step):
            part = slice(first, first + step)
            differences = self.cloud[start[part]].astype(np.float64)
            differences -= self.cloud[end[part]]
            squares[part] = np.einsum("ij,ij->i", differences, differences)
        return _refuse_overflow(squares)

    def short_square(self) -> float:
        """A squared distance that about n ln n pairs of the cloud stay within, judged from a sample."""
        n_points = len(self.cloud)
        start, end = np.random.default_rng(0).integers(n_points, size=(2, _SAMPLE_PAIRS))
        sample = self.exact_squares(start[start != end], end[start != end])
        rank = int(len(sample) * 2.0 * math.log(n_points) / n_points)
        threshold = np.partition(sample, rank)[rank]
        if np.count_nonzero(sample <= threshold) > 2 * (rank + 1):
            # So many pairs tie that far more would stay within: take the next smaller value, or none.
            return float(np.max(sample[sample < threshold], initial=-math.inf))
        return float(threshold)

    def outgoing_edges(self, labels: Indices, threshold: float) -> Edges:
        """Edges between components, weight = -square: all up to `threshold`, and a shortest out of each.

        The largest component does not search.
        """
        searching = np.flatnonzero(outside_largest(labels))
        step = max(1, _BLOCK_ENTRIES // len(self.cloud))
        blocks = (searching[first : first + step] for first in range(0, len(searching), step))
        pieces = [self.candidates(block, labels, threshold) for block in blocks]
        start, end, squares = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
        edges = Edges(labels[start], labels[end], -squares)
        chosen = heaviest_per_component(int(labels.max()) + 1, edges)
        short = squares <= threshold
        return Edges(*(np.concatenate([best, every[short]]) for best, every in zip(chosen, edges, strict=True)))

    def candidates(self, rows: Indices, labels: Indices, threshold: float) -> tuple[Indices, Indices, Floats]:
        """Shortest ways out of the points `rows`, and all pairs within `threshold`: start, end, square."""
        lower = self.lower_bounds(rows, slice(None), labels, np.float64)
        nearest = lower.argmin(axis=1)
        margin = self.margins(rows, np.float64) + self.margins(nearest, np.float64)
        limit = lower[np.arange(len(rows)), nearest] + 2.0 * margin
        np.maximum(limit, self.scaled(np.asarray(threshold)), out=limit)
        row, end = np.nonzero(lower <= limit[:, None])
        squares = self.exact_squares(rows[row], end)
        first_of_row = np.flatnonzero(np.diff(row, prepend=-1))  # every row has at least its nearest point
        least = np.minimum.reduceat(squares, first_of_row)
        kept = (squares == least[row]) | (squares <= threshold)
        return rows[row[kept]], end[kept], squares[kept]

    def lower_to_nearest(self, nearest: Floats) -> None:
        """Lower the bounds `nearest` (n,) in place to the squared distances of the points to the nearest other point.

        A tile of the upper triangle of the distance matrix serves its rows and its columns.
        """
        n_points = len(self.cloud)
        labels = np.arange(n_points)
        tiles = [labels[first : first + _TILE_POINTS] for first in range(0, n_points, _TILE_POINTS)]
        for index, rows in enumerate(tiles):
            for columns in tiles[index:]:
                bounds = self.lower_bounds(rows, columns, labels, np.float32)
                self._lower_rows(nearest, rows, columns, bounds)
                if columns is not rows:
                    self._lower_rows(nearest, columns, rows, bounds.T)

    def _lower_rows(self, nearest: Floats, rows: Indices, columns: Indices, bounds: NDArray[np.floating]) -> None:
        """Lower `nearest` of `rows` (r,) to the squared distances of `columns` (c,) that `bounds` (r, c) allow."""
        open_rows = np.flatnonzero(bounds.min(axis=1) < self.scaled(nearest[rows]))
        rows, bounds = rows[open_rows], bounds[open_rows]
        if len(rows) == 0:
            return
        nearest[rows] = np.minimum(nearest[rows], self.exact_squares(rows, columns[bounds.argmin(axis=1)]))
        row, column = np.nonzero(bounds < self.scaled(nearest[rows])[:, None])
        if len(row) > _FEW_CANDIDATES * len(rows) and bounds.dtype == np.float32:
            bounds = self.lower_bounds(rows, columns, np.arange(len(self.cloud)), np.float64)
            self._lower_rows(nearest, rows, columns, bounds)
        else:
            np.minimum.at(nearest, rows[row], self.exact_squares(rows[row], columns[column]))


def _refuse_overflow(distances: Floats) -> Floats:
    if not np.isfinite(distances).all():
        raise ValueError("points are so far apart that a squared distance overflows float64")
    return distances
