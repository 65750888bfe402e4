"""Spanning trees of complete graphs too large to sort: Boruvka rounds over blocks, Kruskal on the edges kept.

Both users of this module look for the multiset of edge weights of a MAXIMUM spanning tree (a minimum one is
the same with the sign turned). A round gathers, for every component but the largest, one heaviest edge that
leaves it, and possibly every edge of at least some weight. Kruskal on just those edges takes only edges of a
maximum spanning tree of the whole graph:
- edges of at least the threshold are all there, so Kruskal decides on them as it would in the whole graph;
- an edge e below the threshold is the heaviest way out that some component found, so it belongs to a maximum
  spanning tree. With ties, let the edges gathered come first among equals. A detour that is to replace e
  starts at that component with an edge as heavy as e; that edge was gathered, so the component at its other
  end chose it, and the same holds there: the whole detour was gathered, and Kruskal sees it.
Each round at least halves the number of components other than the largest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Edges(NamedTuple):
    """Edges as three arrays of one length: two end points (vertex or component numbers) and the weight."""

    start: NDArray[np.integer]
    end: NDArray[np.integer]
    weight: NDArray[np.floating]


def kruskal(n_vertices: int, edges: Edges) -> tuple[NDArray[np.float64], int]:
    """Weights of a maximum spanning forest, and its number of trees; parallel edges may occur, loops not.

    H0 of a flag filtration IS Kruskal's algorithm; gudhi's Ripser runs it in C++ and takes 14 ms to import,
    scipy's sparse graph package 190 ms. Ripser wants positive values, so edges enter by rank: 1 for the
    heaviest.
    """
    from gudhi._ripser_ext import _sparse

    order = np.argsort(edges.weight)[::-1]
    start, end = (column[order].astype(np.int32) for column in edges[:2])
    ranks = np.arange(1.0, len(order) + 1)
    deaths = _sparse(start, end, ranks, n_vertices, max_dimension=0)[0][:, 1]
    taken = deaths[np.isfinite(deaths)].astype(np.intp) - 1
    if len(taken) == 0:
        raise RuntimeError("a round of edges joined no two components")  # rather than go round for ever
    return edges.weight[order[taken]].astype(np.float64), len(deaths) - len(taken)


def component_labels(
    n_vertices: int, start: NDArray[np.integer], end: NDArray[np.integer]
) -> NDArray[np.intp]:
    """Connected components as labels 0, 1, ... by hooking each root under its least neighbouring root."""
    parent = np.arange(n_vertices)
    while True:
        roots_start, roots_end = parent[start], parent[end]
        apart = roots_start != roots_end
        if not apart.any():
            return np.unique(parent, return_inverse=True)[1]
        low, high = np.minimum(roots_start, roots_end)[apart], np.maximum(roots_start, roots_end)[apart]
        np.minimum.at(parent, high, low)
        while True:
            grandparent = parent[parent]
            if np.array_equal(grandparent, parent):
                break
            parent = grandparent


def heaviest_per_component(n_components: int, edges: Edges) -> Edges:
    """Of the edges that start in one component, one heaviest; components without an edge choose nothing."""
    best = np.full(n_components, -np.inf)
    np.maximum.at(best, edges.start, edges.weight.astype(np.float64))
    top = np.flatnonzero(edges.weight == best[edges.start])
    chosen = top[np.unique(edges.start[top], return_index=True)[1]]
    return Edges(edges.start[chosen], edges.end[chosen], edges.weight[chosen])


def outside_largest(labels: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which vertices do not belong to the largest component: only those need to look for a way out."""
    return labels != np.bincount(labels).argmax()
