"""Vietoris-Rips persistence of point clouds against ripser.py, giotto-ph and gudhi's simplex tree.

Ours is in float64; ripser.py and giotto-ph compute in float32. All use one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.timing import Line, beside, compare
from toposcale.homology import rips_diagrams

CLOUDS = ((200, 48, 1), (600, 48, 1), (100, 48, 2))  # points, dimensions, highest homology
Diagrams = list[np.ndarray]


def rows() -> Iterator[Line]:
    """The clouds of each peer; the first cloud is the size of a layer in the configurations of this project."""
    yield from beside(
        "ripser", lambda ripser: clouds("ripser.py", lambda points, top: ripser.ripser(points, top)["dgms"])
    )
    yield from beside(
        "gph",
        lambda gph: clouds("giotto-ph", lambda points, top: gph.ripser_parallel(points, top, n_threads=1)["dgms"]),
    )
    points = random_cloud(200, 48)
    yield compare(
        "rips_diagrams 200 x 48, H0 and H1 / gudhi SimplexTree, collapsed",
        lambda: rips_diagrams(points),
        lambda: simplex_tree(points),
        limit=0.3,
    )


def clouds(peer: str, diagrams: Callable[[np.ndarray, int], Diagrams]) -> Iterator[Line]:
    """A row for each cloud, after a check that both sides find the same bars."""
    for n_points, dimension, top in CLOUDS:
        points = random_cloud(n_points, dimension)
        assert_same_bars(rips_diagrams(points, maxdim=top), diagrams(points, top))
        yield compare(
            f"rips_diagrams {n_points} x {dimension}, H0 to H{top} / {peer}",
            lambda points=points, top=top: rips_diagrams(points, maxdim=top),
            lambda points=points, top=top: diagrams(points, top),
            limit=1.0,
            rounds=15 if n_points < 500 else 7,
        )


def random_cloud(n_points: int, dimension: int) -> np.ndarray:
    """Normal points, as the rows of a weight matrix at the start of a training."""
    return np.random.default_rng(0).standard_normal((n_points, dimension))


def assert_same_bars(ours: Diagrams, theirs: Diagrams) -> None:
    """The same finite bars up to float32, longest first. One bar of H0 is infinite, and ours leaves it out."""
    for mine, other in zip(ours, theirs, strict=True):
        lengths = np.diff(other[np.isfinite(other).all(axis=1)], axis=1).ravel()
        np.testing.assert_allclose(np.diff(mine, axis=1).ravel(), np.sort(lengths)[::-1], atol=1e-5)


def simplex_tree(points: np.ndarray) -> None:
    """The same persistence in gudhi's general data structure, edges collapsed first."""
    from gudhi import RipsComplex

    tree = RipsComplex(points=points).create_simplex_tree(max_dimension=1)
    tree.collapse_edges(1)
    tree.expansion(2)
    tree.compute_persistence(homology_coeff_field=2)
