"""What explains most of neural persistence, and neural persistence of two layers at once.

Source: Girrbach et al., "Addressing caveats of neural persistence with deep graph persistence", TMLR 2023,
arXiv:2307.10865.
"""

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.homology.neural_persistence import neural_persistence_of_tree, spanning_tree_weights
from toposcale.homology.validation import Floats, Indices, as_matrix, refuse_not_finite, undefined

_BLOCK_ENTRIES = 1 << 18
_ALL_ENTRIES = 1 << 9  # up to here tau is that of all pairs of entries
_SAMPLED_PAIRS = 1 << 16  # the standard error of such a tau is below 0.005


def weight_variance(weight: ArrayLike) -> float:
    """Variance (divisor n) of |w| / max |w| over the entries of a matrix: between 0 and 1/4, without units.

    Neural persistence follows it closely where large weights are not concentrated in space. An all-zero matrix has
    none: NaN, with a RuntimeWarning.
    ValueError: `weight` not 2-D, empty, NaN or infinite.
    """
    matrix = as_matrix(weight, "weight")
    largest = float(np.max([block.max() for block in _blocks(matrix)]))
    refuse_not_finite(largest, "weight")
    if largest == 0.0:
        return undefined("an all-zero weight matrix has no relative variance")
    count, mean, squares = 0, 0.0, 0.0
    for block in _blocks(matrix):
        block /= largest
        block_mean = float(block.mean())
        shift, total = block_mean - mean, count + block.size
        # The sums of two blocks around their common mean (Chan, Golub and LeVeque 1979).
        squares += float(np.square(block - block_mean).sum()) + shift**2 * count * block.size / total
        mean += shift * block.size / total
        count = total
    return squares / count


def spatial_concentration(weight: ArrayLike) -> float:
    """How far large weights lie together: the largest of three Kendall's tau-b between position and |w|, at most 1.

    Rows and columns are sorted by their mean |w|; the positions are the place of an entry's row, that of its column, and
    their sum, which moves across the anti-diagonals. Of more than 512 entries tau is that of 65,536 random pairs,
    always the same ones for a shape: its standard error is below 0.005.
    Equal |w| throughout have none: NaN, with a RuntimeWarning.
    ValueError: `weight` not 2-D, empty, NaN or infinite.
    """
    matrix = as_matrix(weight, "weight")
    n_columns = matrix.shape[1]
    row_means, column_sums = [], np.zeros(n_columns)
    for block in _blocks(matrix):
        row_means.append(block.mean(axis=1))
        column_sums += block.sum(axis=0)
    refuse_not_finite(column_sums, "weight")
    rows, columns = _pairs_of_entries(*matrix.shape)
    larger = _order(np.abs(matrix[rows, columns]))
    if not larger.any():
        return undefined("equal weights have no spatial concentration")
    row_ranks = _ranks(np.concatenate(row_means)).take(rows)
    column_ranks = _ranks(column_sums).take(columns)
    taus = [_tau(ranks, larger) for ranks in (row_ranks, column_ranks, row_ranks + column_ranks)]
    return float(np.nanmax(taus))  # a single row or column has no order


def deep_graph_persistence(first: ArrayLike, second: ArrayLike) -> float:
    """Neural persistence of two consecutive matrices, (n_hidden, n_in) and (n_out, n_hidden), as one graph.

    With A and B the two as |(w - mean) / sd|, S[i, j] = max over hidden k of min(A[k, i], B[j, k]): the value is
    `neural_persistence` of S, (n_in, n_out). S is never made. In the graph of inputs, hidden units and outputs let no
    edge of k be heavier than b[k], the smaller of its heaviest edges to either side: from a weight on, inputs and
    outputs are then connected exactly where they are in S. So the spanning tree of S is that of this graph without one
    edge b[k] for every k, and the time is that of `neural_persistence`. A constant matrix has none: NaN, with a
    RuntimeWarning.
    ValueError: not 2-D, empty, NaN or infinite, or the hidden units of the two differ in number.
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
    reach = np.minimum(sides[0].max(axis=1), sides[1].max(axis=1))
    np.minimum(edges, reach[:, None], out=edges)
    weights, counts = np.unique(spanning_tree_weights(edges), return_counts=True)
    left_out, times = np.unique(reach, return_counts=True)
    counts[np.searchsorted(weights, left_out)] -= times
    return neural_persistence_of_tree(np.repeat(weights, counts))


# A model has few shapes, and each of its checkpoints the same ones: 2 MB a shape.
@lru_cache(maxsize=8)
def _pairs_of_entries(n_rows: int, n_columns: int) -> tuple[Indices, Indices]:
    """Rows and columns, (2, n) each, of pairs of entries: all pairs, or a sample that depends on the shape alone."""
    size = n_rows * n_columns
    if size <= _ALL_ENTRIES:
        pairs = np.array(np.triu_indices(size, 1))
    else:
        pairs = np.random.default_rng(0).integers(size, size=(2, _SAMPLED_PAIRS))
    return np.divmod(pairs, n_columns)


def _ranks(means: Floats) -> NDArray[np.int32]:
    """The place of each row or column when they are sorted by their means, equal ones in their order."""
    return np.argsort(np.argsort(means, kind="stable")).astype(np.int32)


def _order(pairs: NDArray) -> NDArray[np.float32]:
    """Of each pair in (2, n) whether the second is larger (1), smaller (-1) or equal (0)."""
    # Sums of so few signs are exact in float32, and faster than as integers.
    return np.subtract(pairs[1] > pairs[0], pairs[1] < pairs[0], dtype=np.float32)


def _tau(ranks: NDArray[np.integer], larger: NDArray[np.float32]) -> float:
    """tau-b over pairs of ranks, (2, n): agreement over the root of the pairs that differ in either."""
    after = _order(ranks)
    differing = math.sqrt(float(after @ after) * float(larger @ larger))
    return float(after @ larger) / differing if differing else math.nan


def _blocks(matrix: NDArray) -> Iterator[Floats]:
    """|w| of some rows at a time, as float64 copies."""
    step = max(1, _BLOCK_ENTRIES // matrix.shape[1])
    for first in range(0, len(matrix), step):
        yield np.abs(matrix[first : first + step].astype(np.float64))
