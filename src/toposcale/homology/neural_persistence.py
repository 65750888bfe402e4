"""Neural persistence: zero-dimensional persistence of a weight matrix as a complete bipartite graph.

A matrix (n_out, n_in) has n = n_out + n_in vertices and edge weights a = |w| / s. Vertices are born at 1 and edges
enter by descending a, so the n - 1 finite classes die at the edge weights of the maximum spanning tree. Deep graph
persistence is that of two consecutive matrices, and two simple quantities explain most of neural persistence.
"""

import math
import warnings
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.homology.validation import Floats, Indices, as_matrix, refuse_not_finite, undefined

_ALL_ENTRIES = 1 << 9  # up to here tau is that of all pairs of entries
_SAMPLED_PAIRS = 1 << 16  # the standard error of such a tau is below 0.005


def neural_persistence(weight: ArrayLike, *, p: int = 1, scale: float | None = None) -> float:
    """Compute the neural persistence of a weight matrix.

    With a = |weight| / scale on the n - 1 edges of the maximum spanning tree, n = n_out + n_in:

    - p = 1: sum(1 - a) / (n - 1), equation 1 of the paper, at most 1;
    - p = 2: sqrt(1 + sum (1 - a)^2) / sqrt(n - 1), the authors' code, whose leading 1 is their essential class (1, 0).

    Parameters
    ----------
    weight : array_like of shape (n_out, n_in)
        Weight matrix.
    p : {1, 2}
        Order of the norm.
    scale : float, optional
        Unit of the weights, max|weight| by default. Published values of p = 2 take the maximum over all matrices.

    Returns
    -------
    float
        Neural persistence, without units; NaN, with a RuntimeWarning, for an all-zero matrix.

    Raises
    ------
    ValueError
        If `weight` is not 2-D, is empty or holds NaN or infinity, `p` is not 1 or 2, or `scale` is below max|weight|.

    References
    ----------
    Rieck et al., ICLR 2019, arXiv:1812.09764.

    Examples
    --------
    >>> neural_persistence([[4.0, 2.0], [1.0, 3.0]])  # a = 1, 3/4, 1/2
    0.25
    """
    return neural_persistence_of_tree(spanning_tree_weights(weight), p=p, scale=scale)


def neural_persistence_of_tree(tree_weights: Floats, *, p: int = 1, scale: float | None = None) -> float:
    """Return `neural_persistence` from the edge weights (n - 1,) of `spanning_tree_weights`."""
    if p not in (1, 2):
        raise ValueError(f"p must be 1 or 2, got {p!r}")
    largest = float(tree_weights.max())  # the heaviest edge of the graph is always in the tree
    if largest == 0.0:
        warnings.warn("an all-zero weight matrix has no neural persistence", RuntimeWarning, stacklevel=3)
        return math.nan
    if scale is None:
        scale = largest
    elif not largest <= scale < math.inf:
        raise ValueError(f"scale must be finite and at least max|weight| = {largest:.6g}, got {scale!r}")
    persistences = 1.0 - tree_weights / scale
    if p == 1:
        return float(persistences.sum()) / len(persistences)
    return math.sqrt((1.0 + float(persistences @ persistences)) / len(persistences))


def spanning_tree_weights(weight: ArrayLike) -> Floats:
    """Return |w| (n_out + n_in - 1,) on the maximum spanning tree of `weight` (n_out, n_in), in no particular order.

    Exact for every input, ties included, in O(n_out n_in) time. Values are compared in their own precision and returned as
    float64.
    """
    matrix = as_matrix(weight, "weight")
    if len(matrix) < matrix.shape[1]:
        matrix = matrix.T  # the tree is the same
    # float32 holds 16-bit floats exactly.
    sizes = np.abs(np.ascontiguousarray(matrix, np.float64 if matrix.dtype.itemsize == 8 else np.float32))
    refuse_not_finite(sizes, "weight")
    # The heaviest edge of every row is in a maximum spanning tree. It makes the row and the column at its end one vertex;
    # what is left is a tree of the columns, of which two are joined by the heaviest edge from a row of either.
    column_of_row, n_columns = sizes.argmax(axis=1), sizes.shape[1]
    # Rows whose length is not a power of two, since columns are read as well: they would share few lines of the cache.
    between = np.full((n_columns, n_columns + 16), -1.0, sizes.dtype)[:, :n_columns]
    for column in np.unique(column_of_row):
        between[column] = sizes[column_of_row == column].max(axis=0)
    tree = _complete_graph_tree(np.maximum(between, between.T))
    return np.concatenate([sizes[np.arange(len(sizes)), column_of_row], tree]).astype(np.float64)


def _complete_graph_tree(weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the edge weights (n - 1,) of a maximum spanning tree of a graph with weights (n, n), by Prim's algorithm."""
    heaviest, barred = np.full(len(weights), -np.inf, weights.dtype), np.zeros(len(weights), weights.dtype)
    tree, vertex = np.empty(len(weights) - 1, weights.dtype), 0
    for size in range(len(tree)):
        barred[vertex] = -np.inf  # in the tree; a mask for `maximum` takes three times as long
        np.maximum(heaviest, weights[vertex], out=heaviest)
        vertex = int((heaviest + barred).argmax())
        tree[size] = heaviest[vertex]
    return tree


def weight_variance(weight: ArrayLike) -> float:
    """Compute the variance (divisor n) of |w| / max |w| over the entries of a matrix.

    Neural persistence follows it closely where large weights are not concentrated in space.

    Parameters
    ----------
    weight : array_like of shape (n_out, n_in)
        Weight matrix.

    Returns
    -------
    float
        Variance in 0..1/4, without units; NaN, with a RuntimeWarning, for an all-zero matrix.

    Raises
    ------
    ValueError
        If `weight` is not 2-D, is empty or holds NaN or infinity.

    References
    ----------
    Girrbach et al., TMLR 2023, arXiv:2307.10865.

    Examples
    --------
    >>> weight_variance([[0.0, 2.0], [-2.0, 0.0]])
    0.25
    """
    matrix = as_matrix(weight, "weight")
    shares = np.abs(matrix.astype(np.float64))
    largest = shares.max()
    refuse_not_finite(largest, "weight")
    if largest == 0.0:
        return undefined("an all-zero weight matrix has no relative variance")
    shares /= largest
    return float(shares.var())


def spatial_concentration(weight: ArrayLike) -> float:
    """Compute how strongly large weights concentrate in space: the largest Kendall's tau-b of position and |w|.

    Rows and columns are sorted by their mean |w|; the positions are an entry's row rank, its column rank and their sum,
    which moves across the anti-diagonals.

    Parameters
    ----------
    weight : array_like of shape (n_out, n_in)
        Weight matrix. For more than 512 entries tau is estimated from 65,536 random pairs, which depend only on
        the shape; its standard error is below 0.005.

    Returns
    -------
    float
        tau-b, at most 1, without units; NaN, with a RuntimeWarning, if all |w| are equal.

    Raises
    ------
    ValueError
        If `weight` is not 2-D, is empty or holds NaN or infinity.

    References
    ----------
    Girrbach et al., TMLR 2023, arXiv:2307.10865.

    Examples
    --------
    >>> round(spatial_concentration([[4.0, 3.0], [2.0, 1.0]]), 4)  # sqrt(5 / 6), across the anti-diagonals
    0.9129
    """
    matrix = as_matrix(weight, "weight")
    sizes = np.abs(matrix)
    row_means, column_means = (sizes.mean(axis=axis, dtype=np.float64) for axis in (1, 0))
    refuse_not_finite(column_means, "weight")
    pairs, rows, columns = _pairs_of_entries(*matrix.shape)
    larger = _order(sizes.take(pairs))
    if not larger.any():
        return undefined("equal weights have no spatial concentration")
    row_ranks, column_ranks = _ranks(row_means).take(rows), _ranks(column_means).take(columns)
    taus = [_tau(ranks, larger) for ranks in (row_ranks, column_ranks, row_ranks + column_ranks)]
    return float(np.nanmax(taus))  # a single row or column has no order


def deep_graph_persistence(first: ArrayLike, second: ArrayLike) -> float:
    """Compute the neural persistence of two consecutive weight matrices as one graph.

    With A and B the two as |(w - mean) / sd| and S[i, j] = max over hidden units k of min(A[k, i], B[j, k]), it is the
    `neural_persistence` of S, in the time of that function.

    Parameters
    ----------
    first : array_like of shape (n_hidden, n_in)
        Matrix that is applied first.
    second : array_like of shape (n_out, n_hidden)
        Matrix that is applied to its output.

    Returns
    -------
    float
        Deep graph persistence, without units; NaN, with a RuntimeWarning, if a matrix is constant.

    Raises
    ------
    ValueError
        If a matrix is not 2-D, is empty or holds NaN or infinity, or the numbers of hidden units differ.

    References
    ----------
    Girrbach et al., TMLR 2023, arXiv:2307.10865.

    Examples
    --------
    >>> weight = [[2.0, 0.0], [0.0, -2.0]]
    >>> round(deep_graph_persistence(weight, weight), 4)  # S = sqrt(2) I, so a = 1, 1, 0
    0.3333
    """
    above, below = as_matrix(first, "first"), as_matrix(second, "second").T
    if len(above) != len(below):
        raise ValueError(f"first must have as many rows as second has columns, got {len(above)} and {len(below)}")
    edges = np.empty((len(above), above.shape[1] + below.shape[1]))  # the one copy in float64
    sides = np.split(edges, [above.shape[1]], axis=1)
    sides[0][:], sides[1][:] = above, below
    for name, side in zip(("first", "second"), sides, strict=True):
        refuse_not_finite(side, name)
    if any(np.ptp(side) == 0.0 for side in sides):
        return undefined("a constant weight matrix has no deep graph persistence")
    for side in sides:
        side -= side.mean()
        side /= side.std()
        np.abs(side, out=side)
    # S is never made. In the graph of inputs, hidden units and outputs let no edge of hidden unit k be heavier than
    # reach[k], the smaller of its heaviest edges to either side: down to any weight, inputs and outputs are then connected
    # as in S. So the spanning tree of S is that of this graph less one edge of weight reach[k] for every k.
    reach = np.minimum(sides[0].max(axis=1), sides[1].max(axis=1))
    np.minimum(edges, reach[:, None], out=edges)
    weights, counts = np.unique(spanning_tree_weights(edges), return_counts=True)
    left_out, times = np.unique(reach, return_counts=True)
    counts[np.searchsorted(weights, left_out)] -= times
    return neural_persistence_of_tree(np.repeat(weights, counts))


# A model has few shapes, and each of its checkpoints the same ones: 3 MB a shape.
@lru_cache(maxsize=8)
def _pairs_of_entries(n_rows: int, n_columns: int) -> tuple[Indices, Indices, Indices]:
    """Return indices, rows and columns (2, n) of all pairs of entries, or of a sample that depends only on the shape."""
    size = n_rows * n_columns
    if size <= _ALL_ENTRIES:
        pairs = np.array(np.triu_indices(size, 1))
    else:
        pairs = np.random.default_rng(0).integers(size, size=(2, _SAMPLED_PAIRS))
    return pairs, *np.divmod(pairs, n_columns)


def _ranks(means: Floats) -> NDArray[np.int32]:
    """Return the rank of each row or column by its mean, equal means in their order."""
    return np.argsort(np.argsort(means, kind="stable")).astype(np.int32)


def _order(pairs: NDArray) -> NDArray[np.float32]:
    """Return for each pair of (2, n) the sign of second - first."""
    # Sums of so few signs are exact in float32, and faster than as integers.
    return np.subtract(pairs[1] > pairs[0], pairs[1] < pairs[0], dtype=np.float32)


def _tau(ranks: NDArray[np.integer], larger: NDArray[np.float32]) -> float:
    """Return tau-b of pairs of ranks (2, n) and the order (n,) of their weights."""
    after = _order(ranks)
    differing = math.sqrt(float(after @ after) * float(larger @ larger))
    return float(after @ larger) / differing if differing else math.nan
