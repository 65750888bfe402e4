"""Permutations of runs within their cells: all of them where they can be counted, else random draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations, product

import numpy as np
from numpy.typing import ArrayLike, NDArray

MAX_EXACT = 50_000
"""As many permutations are counted one by one: a cell of eight runs has 40,320."""
DRAWS = 10_000


def within_cells(
    cells: Sequence[object], *, draws: int = DRAWS, seed: int = 0
) -> tuple[NDArray[np.int64], bool]:
    """Permutations of runs that leave every run in its cell -> (indices (P, R), whether these are all).

    cells: the cell of each of R runs. The first permutation is the identity. Where there are more than `MAX_EXACT`,
    `draws` random ones follow the identity, so that a share of them is a valid p-value (Phipson and Smyth 2010).
    """
    members = [np.flatnonzero([cell == other for other in cells]) for cell in dict.fromkeys(cells)]
    count = math.prod(math.factorial(len(own)) for own in members)
    if count <= MAX_EXACT:
        orders = [np.array(list(permutations(own)), dtype=np.int64) for own in members]
        found = np.empty((count, len(cells)), dtype=np.int64)
        for row, chosen in enumerate(product(*orders)):
            for own, order in zip(members, chosen, strict=True):
                found[row, own] = order
        return found, True
    random = np.random.default_rng(seed)
    found = np.tile(np.arange(len(cells)), (draws + 1, 1))
    for own in members:
        found[1:, own] = random.permuted(found[1:, own], axis=1)
    return found, False


def share_as_extreme(statistics: ArrayLike) -> NDArray[np.float64]:
    """Two-sided p-value of the first of P statistics (P, ...): the share that lies as far from their mean; NaN for NaN."""
    values = np.asarray(statistics, dtype=np.float64)
    distance = np.abs(values - values.mean(axis=0))
    # Equal permutations differ by rounding alone; they count as equal.
    extreme = distance >= distance[0] - 1e-9 * np.maximum(np.abs(values).max(axis=0), 1e-300)
    return np.where(np.isfinite(values).all(axis=0), extreme.mean(axis=0), np.nan)
