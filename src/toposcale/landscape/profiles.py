"""Landscape profiles: how much of a sampled surface each valley holds, level by level."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from toposcale.landscape.merge_tree import MergeTree, merge_tree


@dataclass(frozen=True)
class LandscapeProfile:
    """Mass of the sublevel components by level.

    levels: float64 (l,), ascending losses. minima: int64 (m,), the vertex that names each component. mass:
    float64 (l, m), the share of all vertices in the component named by that minimum at that level, 0 before
    its birth and after it has merged into an older one.
    """

    levels: np.ndarray
    minima: np.ndarray
    mass: np.ndarray


def landscape_profile(values: ArrayLike, edges: ArrayLike, *, levels: int = 100) -> LandscapeProfile:
    """Profile of the sublevel sets of `values` on the graph `edges` (Geniesse et al. 2024, arXiv 2411.12136).

    `levels` losses evenly from the least to the largest finite value, and every birth and merge among them;
    see `merge_tree` for the arguments. Vertices of non-finite value belong to no component, but count in the
    whole. `ValueError`: fewer than 2 levels, and what `merge_tree` raises.
    """
    if levels < 2:
        raise ValueError(f"levels: need at least 2, got {levels}")
    tree = merge_tree(values, edges)
    edges = np.asarray(edges).reshape(-1, 2).astype(np.int64)
    finite = tree.values[np.isfinite(tree.values)]
    if not len(finite):
        return LandscapeProfile(np.empty(0), tree.minima, np.empty((0, tree.n_minima)))
    events = tree.values[np.concatenate([tree.minima, tree.saddles])]
    even = np.linspace(finite.min(), finite.max(), levels)
    at = np.union1d(even, events[np.isfinite(events)])
    mass = np.stack([_masses(tree, edges, level) for level in at])
    return LandscapeProfile(at, tree.minima, mass)


def _masses(tree: MergeTree, edges: np.ndarray, level: float) -> np.ndarray:
    """Share of all vertices in each minimum's component; the oldest minimum of a component has it all."""
    count = len(tree.values)
    inside = np.isfinite(tree.values) & (tree.values <= level)
    kept = edges[inside[edges].all(axis=1)]
    graph = csr_array((np.ones(len(kept)), (kept[:, 0], kept[:, 1])), shape=(count, count))
    label = connected_components(graph, directed=False)[1]
    size = np.bincount(label[inside], minlength=count)
    born = np.flatnonzero(inside[tree.minima])  # minima stand in order of age
    _, oldest = np.unique(label[tree.minima[born]], return_index=True)
    mass = np.zeros(tree.n_minima)
    mass[born[oldest]] = size[label[tree.minima[born[oldest]]]] / count
    return mass
