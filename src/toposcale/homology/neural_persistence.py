"""Neural persistence: zero-dimensional persistence of a weight matrix as a complete bipartite graph.

A matrix (n_out, n_in) has n = n_out + n_in vertices and edge weights a = |w| / s. Vertices are born at 1 and edges
enter by descending a, so the n - 1 finite classes die at the edge weights of the maximum spanning tree.
"""

import math
import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.homology.validation import Floats, as_matrix, refuse_not_finite


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
    # Rows whose length is no power of two, since columns are read as well: they would share few lines of the cache.
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
