"""Columns of steps and values, as tables and logs hold them, in order and on one grid."""

import numpy as np
from numpy.typing import ArrayLike

Series = tuple[ArrayLike, ArrayLike]
"""Steps (n,), and the values there, (n,) or (n, length)."""


def last_of_each(steps: np.ndarray) -> np.ndarray:
    """Return rows in the order of their steps, of each step the last one."""
    order = np.argsort(steps, kind="stable")
    is_last = np.append(np.diff(steps[order]) > 0, True)[: len(steps)]
    return np.asarray(order[is_last])


def in_order(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and values, ascending, each step once."""
    steps, values = (np.asarray(part, dtype=np.float64) for part in series)
    order = last_of_each(steps)
    return steps[order], values[order]


def on_grid(grid: np.ndarray, steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the values at the steps of a grid, NaN where there is none."""
    placed = np.full((len(grid), *values.shape[1:]), np.nan)
    _, target, source = np.intersect1d(grid, steps, return_indices=True)
    placed[target] = values[source]
    return placed
