"""Minimum spanning trees of graphs with too many edges to list, in rounds of Boruvka's and Kruskal's algorithms.

A round gathers, for every component but the largest, one shortest edge that leaves it, and possibly every edge up to a
threshold. Kruskal on these edges takes only edges of a minimum spanning tree of the whole graph:
- up to the threshold all edges are there, so Kruskal decides on them as it would in the whole graph;
- an edge e above the threshold is the shortest one out of some component, so it belongs to a minimum spanning tree.
  With ties, let the gathered edges come first among equals. A path that is to replace e leaves that component by an
  edge as short as e; that edge was gathered, so the component at its other end chose it, and the same holds there: the
  whole path was gathered, and Kruskal sees it. Each round at least halves the number of components other than the
  largest.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from toposcale.homology.validation import Floats, Indices


class Edges(NamedTuple):
    """Edges as arrays (m,) of end points (vertex or component numbers) and lengths."""

    start: Indices
    end: Indices
    length: Floats


def shortest_of_each(edges: Edges) -> Indices:
    """Return the index of one shortest edge for every vertex at which an edge starts."""
    order = np.lexsort((edges.length, edges.start))
    return order[np.unique(edges.start[order], return_index=True)[1]]


def shortest_forest(n_vertices: int, edges: Edges) -> tuple[Floats, Indices]:
    """Return the edge lengths of a minimum spanning forest, and the tree number (n,) of each vertex.

    Parallel edges are allowed, loops are not.
    """
    order = np.argsort(edges.length)
    low, high = np.sort([edges.start[order], edges.end[order]], axis=0)
    # Of parallel edges the first in the order is the shortest; scipy would add them up.
    first = np.sort(np.unique(low * n_vertices + high, return_index=True)[1])
    # Edges enter by rank: positive numbers, since a length of 0 would be no edge to scipy.
    ranks = np.arange(1.0, len(first) + 1)
    # Older versions of scipy find trees with 32-bit indices only.
    ends = low[first].astype(np.int32), high[first].astype(np.int32)
    forest = minimum_spanning_tree(csr_array((ranks, ends), shape=(n_vertices, n_vertices)))
    taken = order[first[forest.data.astype(np.intp) - 1]]
    return edges.length[taken], connected_components(forest, directed=False)[1].astype(np.intp)
