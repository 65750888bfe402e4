"""Maximum spanning trees of graphs with too many edges to list, in rounds of Boruvka's and Kruskal's algorithms.

Both callers need the multiset of the edge weights of a MAXIMUM spanning tree (a minimum one has the sign turned). A
round gathers, for every component but the largest, one heaviest edge that leaves it, and possibly every edge above a
threshold. Kruskal on these edges takes only edges of a maximum spanning tree of the whole graph:
- above the threshold all edges are there, so Kruskal decides on them as it would in the whole graph;
- an edge e below the threshold is the heaviest one out of some component, so it belongs to a maximum spanning tree.
  With ties, let the gathered edges come first among equals. A path that is to replace e leaves that component by an
  edge as heavy as e; that edge was gathered, so the component at its other end chose it, and the same holds there: the
  whole path was gathered, and Kruskal sees it. Each round at least halves the number of components other than the
  largest.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from toposcale.homology.validation import Floats, Indices


class Edges(NamedTuple):
    """Edges as arrays (m,) of end points (vertex or component numbers) and weights."""

    start: NDArray[np.integer]
    end: NDArray[np.integer]
    weight: NDArray[np.floating]


def tree_weights(n_vertices: int, edges: Edges, outgoing_edges: Callable[[Indices], Edges]) -> Floats:
    """Return the edge weights (n - 1,) of a maximum spanning tree, in no particular order.

    The first round takes `edges`, later ones `outgoing_edges` of the component numbers (n,) of the vertices.
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
    """Return the edge weights of a maximum spanning forest, and the tree number (n,) of each vertex.

    Parallel edges are allowed, loops are not.
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
    """Return one heaviest edge per start component; components without an edge are left out."""
    best = np.full(n_components, -np.inf)
    np.maximum.at(best, edges.start, edges.weight.astype(np.float64))
    top = np.flatnonzero(edges.weight == best[edges.start])
    chosen = top[np.unique(edges.start[top], return_index=True)[1]]
    return Edges(edges.start[chosen], edges.end[chosen], edges.weight[chosen])


def outside_largest(labels: Indices) -> NDArray[np.bool_]:
    """Return a mask (n,) of the vertices outside the largest component, which alone need an outgoing edge."""
    return labels != np.bincount(labels).argmax()
