"""Landscape profile of a function on a graph: the mass of each sublevel component, level by level."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from toposcale.landscape.merge_tree import MergeTree, merge_tree


@dataclass(frozen=True)
class LandscapeProfile:
    """Mass of the sublevel components by level.

    Attributes
    ----------
    levels : ndarray of shape (l,)
        Ascending losses, float64.
    minima : ndarray of shape (m,)
        Vertex that names each component, int64.
    mass : ndarray of shape (l, m)
        Share of all vertices in the component, 0 before its birth and after its merge into an older one, float64.
    """

    levels: np.ndarray
    minima: np.ndarray
    mass: np.ndarray


def landscape_profile(values: ArrayLike, edges: ArrayLike, *, levels: int = 100) -> LandscapeProfile:
    """Compute the landscape profile of a function on a graph.

    Parameters
    ----------
    values, edges
        As in `merge_tree`. Vertices of non-finite value belong to no component, but count in the whole.
    levels : int
        Number of even levels from the least to the largest finite value; all births and merges are added.

    Returns
    -------
    LandscapeProfile
        Levels in the unit of `values`, and mass by level and minimum; no level if no value is finite.

    Raises
    ------
    ValueError
        If `levels` is below 2, and as in `merge_tree`.

    References
    ----------
    Geniesse et al. 2024, arXiv:2411.12136.

    Examples
    --------
    >>> profile = landscape_profile([0.0, 2.0, 1.0], [[0, 1], [1, 2]], levels=2)
    >>> profile.levels.tolist(), profile.mass.round(2).tolist()
    ([0.0, 1.0, 2.0], [[0.33, 0.0], [0.33, 0.33], [1.0, 0.0]])
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
    heights = np.union1d(even, events[np.isfinite(events)])
    mass = np.stack([_masses(tree, edges, level) for level in heights])
    return LandscapeProfile(heights, tree.minima, mass)


def _masses(tree: MergeTree, edges: np.ndarray, level: float) -> np.ndarray:
    """Return the share (m,) of all vertices in the component of each minimum at a level; 0 but for its oldest minimum."""
    count = len(tree.values)
    inside = np.isfinite(tree.values) & (tree.values <= level)
    inner_edges = edges[inside[edges].all(axis=1)]
    graph = csr_array((np.ones(len(inner_edges)), (inner_edges[:, 0], inner_edges[:, 1])), shape=(count, count))
    label = connected_components(graph, directed=False)[1]
    vertices_in_component = np.bincount(label[inside], minlength=count)
    born = np.flatnonzero(inside[tree.minima])  # minima stand in order of age
    _, oldest = np.unique(label[tree.minima[born]], return_index=True)
    mass = np.zeros(tree.n_minima)
    mass[born[oldest]] = vertices_in_component[label[tree.minima[born[oldest]]]] / count
    return mass
