"""Distances between persistence diagrams against persim and gudhi, five pairs of diagrams a row.

H0 diagrams, whose bars are all born at 0, have a faster method of their own here; general ones do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

import gudhi
import numpy as np
from gudhi import hera

from benchmarks.timing import Line, beside, compare
from toposcale.homology import diagram_distances
from toposcale.homology.distances import DistanceKind

SIZES = (200, 1000)
PAIRS = 5  # the time of gudhi's bottleneck distance varies fivefold from pair to pair
PERSIM_BOTTLENECK_MOST = 200  # its bottleneck distance of 1,000 bars takes minutes
Pair = tuple[np.ndarray, np.ndarray]


def rows() -> Iterator[Line]:
    """Both kinds of diagrams in both sizes."""
    for size in SIZES:
        for kind, draw in (("H0", h0_diagram), ("general", general_diagram)):
            rng = np.random.default_rng(0)
            pairs = [(draw(size, rng), draw(size, rng)) for _ in range(PAIRS)]
            yield from against_gudhi(f"{kind}, {size} bars", pairs)
            yield from beside("persim", against_persim(f"{kind}, {size} bars", pairs))


def h0_diagram(size: int, rng: np.random.Generator) -> np.ndarray:
    """Bars that are born at 0, of lengths as of points in a high dimension."""
    return np.column_stack([np.zeros(size), rng.gamma(5.0, size=size)])


def general_diagram(size: int, rng: np.random.Generator) -> np.ndarray:
    """Bars that are born anywhere, many short and few long ones."""
    births = rng.random(size)
    return np.column_stack([births, births + 0.2 * rng.exponential(size=size)])


def against_gudhi(name: str, pairs: list[Pair]) -> Iterator[Line]:
    """Bottleneck by gudhi with its default e (with e = 0 it returns wrong values), Wasserstein by its Hera."""
    yield checked(f"bottleneck, {name} / gudhi", pairs, "bottleneck", gudhi.bottleneck_distance, 1e-9)
    orders: tuple[tuple[int, DistanceKind], ...] = ((1, "wasserstein_1"), (2, "wasserstein_2"))
    for order, kind in orders:
        # To its default accuracy of 1%, which takes it less time than an exact value would.
        yield checked(
            f"{kind}, {name} / gudhi.hera",
            pairs,
            kind,
            lambda a, b, order=order: hera.wasserstein_distance(a, b, order=order, internal_p=np.inf),
            0.01,
        )


def against_persim(name: str, pairs: list[Pair]) -> Callable[[ModuleType], Iterator[Line]]:
    """Its Wasserstein distance has another ground metric (L2), so its value differs and is not checked."""

    def measure(persim: ModuleType) -> Iterator[Line]:
        if len(pairs[0][0]) <= PERSIM_BOTTLENECK_MOST:
            yield checked(f"bottleneck, {name} / persim", pairs, "bottleneck", persim.bottleneck, 1e-9)
        yield checked(f"wasserstein_1, {name} / persim", pairs, "wasserstein_1", persim.wasserstein, None)

    return measure


def checked(
    name: str,
    pairs: list[Pair],
    kind: DistanceKind,
    reference: Callable[[np.ndarray, np.ndarray], float],
    accuracy: float | None,
) -> Line:
    """A row, after a check that all values agree to a relative `accuracy`, if one is given."""

    def ours() -> list[float]:
        return [diagram_distances(a, b, kinds=[kind])[kind] for a, b in pairs]

    def theirs() -> list[float]:
        return [reference(a, b) for a, b in pairs]

    if accuracy is not None:
        np.testing.assert_allclose(ours(), theirs(), rtol=accuracy)
    return compare(name, ours, theirs, limit=1.0, rounds=7)
