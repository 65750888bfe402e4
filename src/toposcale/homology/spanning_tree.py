"""Spanning trees of graphs too large to list all edges: rounds in which only the edges that can matter are gathered.

Both users of this module look for the multiset of edge weights of a MAXIMUM spanning tree (a minimum one is the same with
the sign turned). A round gathers, for every component but the largest, one heaviest edge that leaves it, and possibly every
edge of at least some weight. Kruskal on just those edges takes only edges of a maximum spanning tree of the whole graph:
- edges of at least the threshold are all there, so Kruskal decides on them as it would in the whole graph;
- an edge e below the threshold is the heaviest way out that some component found, so it belongs to a maximum spanning tree.
  With ties, let the edges gathered come first among equals. A detour that is to replace e starts at that component with an
  edge as heavy as e; that edge was gathered, so the component at its other end chose it, and the same holds there: the
  whole detour was gathered, and Kruskal sees it.
Each round at least halves the number of components other than the largest.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from toposcale.homology.validation import Floats, Indices


class Edges(NamedTuple):
    """Edges as three arrays of one length: two end points (vertex or component numbers) and the weight."""

    start: NDArray[np.integer]
    end: NDArray[np.integer]
    weight: NDArray[np.floating]


def tree_weights(n_vertices: int, edges: Edges, outgoing_edges: Callable[[Indices], Edges]) -> Floats:
    """Weights (n - 1,) of a maximum spanning tree, in no particular order.

    edges: those of the first round; outgoing_edges: those of a further one, from the component that each vertex is in.
    """
    labels, n_trees, rounds = np.arange(n_vertices), n_vertices, []
    while True:
        weights, trees = kruskal(n_trees, edges)
        rounds.append(weights)
        n_trees = int(trees.max()) + 1
        if n_trees == 1:
            return np.concatenate(rounds)
        labels = trees[labels]
        edges = outgoing_edges(labels)


def kruskal(n_vertices: int, edges: Edges) -> tuple[Floats, Indices]:
    """Weights of a maximum spanning forest, and the tree (0, 1, ...) that each vertex is in.

    Parallel edges may occur, loops not.
    """
    order = np.argsort(edges.weight)[::-1]
    low, high = np.sort([edges.start[order], edges.end[order]], axis=0)
    # Of parallel edges the first in the order is the heaviest; scipy would add them up.
    first = np.sort(np.unique(low * n_vertices + high, return_index=True)[1])
    # Edges enter by rank, heaviest first: positive numbers, since a weight of 0 would be no edge to scipy.
    ranks = np.arange(1.0, len(first) + 1)
    # Older versions of scipy find trees with 32-bit indices only.
    ends = low[first].astype(np.int32), high[first].astype(np.int32)
    graph = csr_array((ranks, ends), shape=(n_vertices, n_vertices))
    forest = minimum_spanning_tree(graph)
    if forest.nnz == 0:
        raise RuntimeError("a round of edges joined no two components")  # rather than go round for ever
    taken = first[forest.data.astype(np.intp) - 1]
    labels = connected_components(forest, directed=False)[1]
    return edges.weight[order[taken]].astype(np.float64), labels.astype(np.intp)


def heaviest_per_component(n_components: int, edges: Edges) -> Edges:
    """Of the edges that start in one component, one heaviest; components without an edge choose nothing."""
    best = np.full(n_components, -np.inf)
    np.maximum.at(best, edges.start, edges.weight.astype(np.float64))
    top = np.flatnonzero(edges.weight == best[edges.start])
    chosen = top[np.unique(edges.start[top], return_index=True)[1]]
    return Edges(edges.start[chosen], edges.end[chosen], edges.weight[chosen])


def outside_largest(labels: Indices) -> NDArray[np.bool_]:
    """Which vertices do not belong to the largest component: only those need to look for a way out."""
    return labels != np.bincount(labels).argmax()
