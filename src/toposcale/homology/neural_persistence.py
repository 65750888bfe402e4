"""Neural persistence: zero-dimensional persistence of a weight matrix as a complete bipartite graph.

A matrix (n_out, n_in) has n = n_out + n_in vertices and edge weights a = |w| / s. Vertices are born at 1 and edges
enter by descending a, so the n - 1 finite classes die at the edge weights of the maximum spanning tree.
"""

import math
import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.homology.spanning_tree import Edges, heaviest_per_component, outside_largest, tree_weights
from toposcale.homology.validation import Floats, Indices, as_matrix, refuse_not_finite

_BLOCK_ENTRIES = 1 << 17  # half a megabyte of float32: a block and its mask stay in the second-level cache
_SAMPLE_ENTRIES = 1 << 14
_SMALL_ENTRIES = 512  # below this, sorting all edges costs less than looking for the few that matter


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

    Exact for every input, ties included, in about one pass over the matrix. Values are compared in their own precision
    and returned as float64. Memory beyond the matrix: a few vectors of length n and a block of 131,072 entries (or one
    row).
    """
    matrix = as_matrix(weight, "weight")
    if matrix.strides[0] < matrix.strides[1]:
        matrix = matrix.T  # the tree is the same, and blocks of rows are then contiguous
    n_rows, n_columns = matrix.shape
    edges = _all_edges(matrix) if matrix.size <= _SMALL_ENTRIES else _first_round_edges(matrix)
    return tree_weights(n_rows + n_columns, edges, lambda labels: _outgoing_edges(matrix, *np.split(labels, [n_rows])))


def _all_edges(matrix: NDArray) -> Edges:
    n_rows, n_columns = matrix.shape
    weights = np.concatenate([block for _, block in _blocks(matrix)]).reshape(-1)
    refuse_not_finite(weights, "weight")
    rows, columns = np.divmod(np.arange(matrix.size), n_columns)
    return Edges(rows, columns + n_rows, weights)


def _first_round_edges(matrix: NDArray) -> Edges:
    """Return every vertex's heaviest edge, and every edge above a threshold that leaves few components."""
    n_rows, n_columns = matrix.shape
    threshold = _heavy_threshold(matrix)
    most_kept = 16 * _heavy_count(matrix.shape)
    row_maxima, column_maxima = [], _ColumnMaxima(n_columns, _block_dtype(matrix))
    kept_positions, kept_weights, n_kept = [], [], 0
    for first_row, block in _blocks(matrix):
        row_maxima.append(_row_maxima(block))
        column_maxima.update(first_row, block)
        if threshold < math.inf:
            positions = np.flatnonzero(block >= threshold)
            kept_positions.append(positions + first_row * n_columns)
            kept_weights.append(block.reshape(-1)[positions])
            n_kept += len(positions)
            if n_kept > most_kept:  # the sample misled: go on without a threshold, which is exact as well
                threshold, kept_positions, kept_weights = math.inf, [], []
    row_ends, row_weights = (np.concatenate(parts) for parts in zip(*row_maxima, strict=True))
    kept_rows, kept_columns = np.divmod(np.concatenate([np.empty(0, np.intp), *kept_positions]), n_columns)
    return Edges(
        np.concatenate([np.arange(n_rows), column_maxima.rows, kept_rows]),
        np.concatenate([row_ends, np.arange(n_columns), kept_columns]) + n_rows,
        np.concatenate([row_weights, column_maxima.weights, *kept_weights]),
    )


def _heavy_count(shape: tuple[int, int]) -> int:
    """Return how many of the heaviest edges of a random matrix join nearly all of its rows and columns."""
    # A row of a tall matrix joins two columns only if two of its entries are heavy. k random edges make k^2 / (2 n_long)
    # such pairs, and the n_short columns need about n_short ln n_short; a quarter more, since sampling is uncertain.
    short, long = sorted(shape)
    return round(1.25 * math.sqrt(2 * long * short * math.log(short + 1)))


def _heavy_threshold(matrix: NDArray) -> float:
    """Return a weight that about `_heavy_count` edges reach, estimated from a sample."""
    # Any threshold gives the exact tree; this one leaves few vertices of a random matrix for a second round.
    # An odd stride does not divide the power-of-two widths of real layers, so the sample walks through all columns.
    stride = (matrix.size // _SAMPLE_ENTRIES) | 1
    rows, columns = np.divmod(np.arange(0, matrix.size, stride), matrix.shape[1])
    sample = np.abs(matrix[rows, columns].astype(np.float64))
    rank = min(len(sample), max(1, round(_heavy_count(matrix.shape) * len(sample) / matrix.size)))
    threshold = np.partition(sample, len(sample) - rank)[len(sample) - rank]
    if np.count_nonzero(sample >= threshold) > 2 * rank:  # ties would let far more edges reach it
        return float(np.min(sample[sample > threshold], initial=math.inf))
    return float(threshold)


def _outgoing_edges(matrix: NDArray, row_labels: Indices, column_labels: Indices) -> Edges:
    """Return one heaviest edge out of every component but the largest, between component numbers."""
    searching = np.split(outside_largest(np.concatenate([row_labels, column_labels])), [len(row_labels)])
    of_rows = _heaviest_out(matrix, np.flatnonzero(searching[0]), row_labels, column_labels)
    of_columns = _heaviest_out(matrix.T, np.flatnonzero(searching[1]), column_labels, row_labels)
    edges = Edges(*(np.concatenate(parts) for parts in zip(of_rows, of_columns, strict=True)))
    return heaviest_per_component(max(row_labels.max(), column_labels.max()) + 1, edges)


def _heaviest_out(matrix: NDArray, rows: Indices, row_labels: Indices, column_labels: Indices) -> Edges:
    """Return the heaviest edge of each of these rows to a column of another component, between component numbers."""
    ends, weights = [np.empty(0, np.intp)], [np.empty(0, _block_dtype(matrix))]
    for first, block in _blocks(matrix, rows):
        block[row_labels[rows[first : first + len(block)], None] == column_labels] = -1.0
        columns, maxima = _row_maxima(block)
        ends.append(columns)
        weights.append(maxima)
    end, weight = np.concatenate(ends), np.concatenate(weights)
    leaves = weight >= 0.0  # a vertex whose every edge stays inside has found only the mark
    return Edges(row_labels[rows][leaves], column_labels[end[leaves]], weight[leaves])


def _blocks(matrix: NDArray, rows: Indices | None = None) -> Iterator[tuple[int, NDArray[np.floating]]]:
    """Yield the first row and |w| of blocks of the chosen rows; the next block overwrites the last."""
    n_rows = len(matrix) if rows is None else len(rows)
    step = min(n_rows, max(1, _BLOCK_ENTRIES // matrix.shape[1]))
    buffer = np.empty((step, matrix.shape[1]), _block_dtype(matrix))
    for first in range(0, n_rows, max(step, 1)):
        part = matrix[first : first + step] if rows is None else matrix[rows[first : first + step]]
        yield first, np.abs(part.astype(buffer.dtype, copy=False), out=buffer[: len(part)])


def _block_dtype(matrix: NDArray) -> type[np.floating]:
    """Return the precision of a block; float32 holds 16-bit floats exactly."""
    return np.float64 if matrix.dtype.itemsize == 8 else np.float32


def _row_maxima(block: NDArray[np.floating]) -> tuple[Indices, NDArray[np.floating]]:
    columns = block.argmax(axis=1)
    return columns, block[np.arange(len(block)), columns]


class _ColumnMaxima:
    """Hold the heaviest entry of every column and its row, over blocks of rows."""

    def __init__(self, n_columns: int, dtype: type[np.floating]) -> None:
        self.weights = np.full(n_columns, -1.0, dtype)
        self.rows = np.zeros(n_columns, np.intp)

    def update(self, first_row: int, block: NDArray[np.floating]) -> None:
        maxima = block.max(axis=0)
        refuse_not_finite(maxima, "weight")
        better = np.flatnonzero(maxima > self.weights)
        if better.size:
            self.weights[better] = maxima[better]
            self.rows[better] = first_row + block[:, better].argmax(axis=0)
