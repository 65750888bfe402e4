"""Permutations of runs within their configurations: all of them if they can be counted, else random draws."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain, permutations, product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.statistics.coefficients import Floats

MAX_EXACT = 50_000
"""Most permutations that are all counted: a configuration of eight runs has 40,320."""
DRAWS = 10_000
"""Random permutations of a test where not all are counted."""
_BLOCK = 10_000


def members_of(configurations: Sequence[object]) -> list[NDArray[np.int64]]:
    """Return the indices of the runs of each configuration."""
    return [np.flatnonzero([label == name for label in configurations]) for name in dict.fromkeys(configurations)]


def within_configurations(
    configurations: Sequence[object], *, draws: int = DRAWS, seed: int = 0
) -> tuple[NDArray[np.int64], bool]:
    """Return permutations (P, R) of R runs that leave every run in its configuration, and whether these are all.

    The first is the identity. Beyond `MAX_EXACT` the others are `draws` random ones, so that a share of the rows is a valid
    p-value (Phipson and Smyth 2010).
    """
    blocks = list(blocks_within_configurations(configurations, draws=draws, seed=seed))
    return np.concatenate([orders for orders, _ in blocks]), blocks[0][1]


def blocks_within_configurations(
    configurations: Sequence[object], *, draws: int = DRAWS, seed: int = 0
) -> Iterator[tuple[NDArray[np.int64], bool]]:
    """Yield `within_configurations` in blocks; the first rows do not depend on the number of draws."""
    members = members_of(configurations)
    count = math.prod(math.factorial(len(runs)) for runs in members)
    if count <= MAX_EXACT:
        table = np.empty((count, len(configurations)), dtype=np.int64)
        table[:, np.concatenate(members)] = [[*chain(*orders)] for orders in product(*map(permutations, members))]
        yield table, True
        return
    random = np.random.default_rng(seed)
    identity = np.arange(len(configurations))[None]
    yield identity, False
    for start in range(0, draws, _BLOCK):
        table = np.tile(identity, (min(_BLOCK, draws - start), 1))
        for runs in members:
            table[:, runs] = random.permuted(table[:, runs], axis=1)
        yield table, False


def share_as_extreme(statistics: ArrayLike) -> Floats:
    """Return two-sided p-values of the first of P statistics (P, ...): the share that lies as far from the mean."""
    values = np.asarray(statistics, dtype=np.float64)
    distance = np.abs(values - values.mean(axis=0))
    # Equal permutations differ by rounding alone; they count as equal.
    extreme = distance >= distance[0] - 1e-9 * np.maximum(np.abs(values).max(axis=0), 1e-300)
    return np.where(np.isfinite(values).all(axis=0), extreme.mean(axis=0), np.nan)
