"""Tensors of a checkpoint that are no weights: integers, masks, tables of sines and other buffers.

Names tell some of them; most have names of their own, but values that no training leaves: two of them in a triangle, or
sines of the position.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toposcale.io.quantisation import is_floating

Rows = Callable[[int], Any]
"""Function of a number that returns as many first rows of a tensor, as an array of NumPy or of PyTorch."""

INTEGERS = "integers"
COMPLEX = "complex numbers"
BY_NAME = "buffers by their name"
MASK = "masks"
TABLE = "tables of sines or frequencies"

# Buffers in files of weights: causal masks, rotary frequencies, statistics of batches.
_BUFFERS = re.compile(
    r"(^|\.)(attention|attn)\.(bias|masked_bias)$|(^|\.)rotary_emb\.(inv_freq|(cos|sin)_cached)$"
    r"|(^|\.)(running_(mean|var)|num_batches_tracked)$"
)
_MASKS = re.compile(r"mask|tril|triu|causal")
_BLOCK_ROWS = 16
MAX_AXES = 64  # of an array of NumPy
# Of the recurrence of a sine, by the size of the column: rounding to bfloat16 leaves a third of it, weights leave 1.
_MAX_RESIDUAL = 1e-2
_MIN_POSITIONS = 6
_MIN_ENTRIES = 64  # from here on no weights are only zeros and ones


def is_buffer(name: str) -> bool:
    """Return True if a tensor of this name is a buffer (a mask or a table), not a weight."""
    return _BUFFERS.search(name) is not None


def not_a_weight(name: str, shape: Sequence[int], dtype: str, rows: Rows) -> str:
    """Return what a tensor is that is no weight; "" for a weight. Most weights are told by their first rows.

    A matrix of one value is a weight, as some start so, unless it is called a mask.
    """
    if is_buffer(name):
        return BY_NAME
    if not is_floating(dtype):
        return COMPLEX if re.search("complex|^C", dtype) else INTEGERS
    axes = [length for length in shape if length != 1]
    if not axes or 0 in axes or len(shape) > MAX_AXES:
        return ""
    if len(axes) == 1:
        return TABLE if _is_geometric(_as_matrix(rows(shape[0]), axes)[0]) else ""
    block = _as_matrix(rows(min(_BLOCK_ROWS, shape[0])), axes)
    if _is_table(block):
        return TABLE
    if not _has_two_values(block):
        return ""
    matrix = _as_matrix(rows(shape[0]), axes)
    if not _has_two_values(matrix):
        return ""
    is_mask = _MASKS.search(name.lower()) if (matrix == matrix[0, 0]).all() else _is_mask(matrix)
    return MASK if is_mask else ""


def _as_matrix(values: Any, axes: Sequence[int]) -> np.ndarray:
    """Return values as float64 (rows, last axis)."""
    values = values.reshape(-1, axes[-1])
    if hasattr(values, "detach"):
        values = values.detach().double().cpu().resolve_conj().resolve_neg().numpy()
    return np.asarray(values).astype(np.float64)


def _has_two_values(matrix: np.ndarray) -> bool:
    """Return True for at most two different values, none of which is NaN."""
    first = matrix[0, 0]
    other_values = matrix[matrix != first]
    return not np.isnan(first) and (len(other_values) == 0 or bool((other_values == other_values[0]).all()))


def _is_mask(matrix: np.ndarray) -> bool:
    """Return True for a matrix of two values that is split by its diagonal, or whose larger value stands for "no" or "yes".

    An identity, which some weights start as, is none.
    """
    largest = np.abs(matrix).max()
    excludes = not np.isfinite(largest) or largest >= 1e4  # it is added to scores, and takes them out of the softmax
    high = matrix == matrix.max()
    if excludes or min(high.sum(axis=1).max(), (~high).sum(axis=1).max()) <= 1:
        return excludes
    if largest == 1 and matrix.min() == 0 and matrix.size >= _MIN_ENTRIES:
        return True
    columns = high.shape[1]
    squares = high.reshape(-1, columns, columns) if len(high) % columns == 0 else high[None]
    triangles = [np.tri(squares.shape[1], columns, k) > 0 for k in (0, -1)]
    return any((squares == one).all() or (squares != one).all() for one in triangles)


def _is_table(block: np.ndarray) -> bool:
    """Return True for columns, or rows, that are sines of their position, of any frequency and phase."""
    return np.isfinite(block).all() and (_are_sines(block) or _are_sines(block.T))


def _are_sines(block: np.ndarray) -> bool:
    """Return True if all columns obey x[p + 1] + x[p - 1] = 2 cos(frequency) x[p], at least one of them with a bend."""
    if len(block) < _MIN_POSITIONS:
        return False
    size = np.sqrt((block**2).mean(axis=0))
    middle, ends = block[1:-1, size > 0], (block[2:] + block[:-2])[:, size > 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = (middle * ends).sum(axis=0) / (middle**2).sum(axis=0)
    residual = np.sqrt(((ends - slopes * middle) ** 2).mean(axis=0)) / size[size > 0]
    return len(slopes) > 0 and bool((residual < _MAX_RESIDUAL).all()) and bool((np.abs(slopes) < 2 - 1e-3).any())


def _is_geometric(values: np.ndarray) -> bool:
    """Return True for the frequencies of a table: positive, each the same share of the one before."""
    if len(values) < 4 or not (values > 0).all() or not np.isfinite(values).all():
        return False
    ratios = np.diff(np.log(values))
    return bool(ratios[0] < -1e-3 and np.abs(ratios - ratios[0]).max() < 1e-2 * -ratios[0])
