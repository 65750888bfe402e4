"""Neighbourhood graphs on grids and on scattered points."""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

GRID_GRAPHS = ("grid4", "grid8")
POINT_GRAPHS = ("delaunay", "aknn8")
GRAPHS = GRID_GRAPHS + POINT_GRAPHS

_NEIGHBOURS = 8
_TIE = 1e-9  # lengths that differ by a smaller share are the same: coordinates of a grid are rounded sums


def grid_edges(shape: Sequence[int], graph: str) -> np.ndarray:
    """Compute the edges of a grid whose vertices are numbered in C order.

    Parameters
    ----------
    shape : sequence of int
        Number of vertices along each axis.
    graph : {"grid4", "grid8"}
        `grid4` joins neighbours along the axes (4 in the plane, 6 in space), `grid8` all vertices that differ by at
        most one in every index (8 in the plane, 26 in space).

    Returns
    -------
    ndarray of shape (m, 2)
        Vertex pairs, smaller index first, in lexicographic order, int64.

    Raises
    ------
    ValueError
        If `shape` is empty or has an axis without a vertex, or `graph` is unknown.

    Examples
    --------
    >>> grid_edges((2, 2), "grid4").tolist()
    [[0, 1], [0, 2], [1, 3], [2, 3]]
    """
    shape = tuple(int(size) for size in shape)
    if not shape or min(shape) < 1:
        raise ValueError(f"shape: every axis needs at least one vertex, got {shape}")
    if graph not in GRID_GRAPHS:
        raise ValueError(f"graph: {graph!r} is not a grid graph; use one of {', '.join(GRID_GRAPHS)}")
    vertex = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
    edges = []
    for step in itertools.product((-1, 0, 1), repeat=len(shape)):
        if step > (0,) * len(shape) and (graph == "grid8" or sum(map(abs, step)) == 1):
            start = vertex[tuple(slice(max(0, -s), size - max(0, s)) for s, size in zip(step, shape, strict=True))]
            end = vertex[tuple(slice(max(0, s), size - max(0, -s)) for s, size in zip(step, shape, strict=True))]
            edges.append(np.column_stack([start.ravel(), end.ravel()]))
    return _sorted_edges(np.concatenate(edges))


def point_edges(points: ArrayLike, graph: str) -> np.ndarray:
    """Compute the edges of a neighbourhood graph on points.

    A repeated point is joined to its first occurrence; points in a flat are triangulated within it.

    Parameters
    ----------
    points : array_like of shape (n, d)
        Points as rows, d >= 1.
    graph : {"delaunay", "aknn8"}
        Delaunay triangulation, or the union of each point's 8 nearest neighbours, exact, ties to the smaller index.

    Returns
    -------
    ndarray of shape (m, 2)
        Vertex pairs, smaller index first, in lexicographic order, int64.

    Raises
    ------
    ValueError
        If `points` is not 2-D or holds NaN or infinity, or `graph` is unknown.

    Examples
    --------
    >>> point_edges([[0.0], [3.0], [1.0]], "delaunay").tolist()
    [[0, 2], [1, 2]]
    """
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] < 1:
        raise ValueError(f"points: need an array of shape (n, d), got {points.shape}")
    if not np.isfinite(points).all():
        raise ValueError("points: coordinates must be finite")
    if graph not in POINT_GRAPHS:
        raise ValueError(f"graph: {graph!r} is not a point graph; use one of {', '.join(POINT_GRAPHS)}")
    if graph == "aknn8":
        return _nearest_edges(points)
    distinct, first, inverse = np.unique(points, axis=0, return_index=True, return_inverse=True)
    edges = _delaunay_edges(distinct)
    twin = first[inverse.ravel()]
    repeated = np.flatnonzero(twin != np.arange(len(points)))
    return _sorted_edges(np.concatenate([first[edges], np.column_stack([twin[repeated], repeated])]))


def _sorted_edges(edges: np.ndarray) -> np.ndarray:
    edges = np.sort(edges.astype(np.int64), axis=1)
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))]


def _delaunay_edges(points: np.ndarray) -> np.ndarray:
    """Return the unique edges of the Delaunay triangulation of distinct points (n, d), in the flat that they span."""
    from scipy.spatial import Delaunay  # slow to import, and a grid needs none

    if len(points) < 2:
        return np.empty((0, 2), dtype=np.int64)
    centred = points - points.mean(axis=0)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    dimension = int((spread > spread[0] * 1e-12).sum())
    if dimension < points.shape[1]:
        points = centred @ axes[:dimension].T
    if dimension == 1:
        order = np.argsort(points[:, 0], kind="stable")
        return np.column_stack([order[:-1], order[1:]])
    triangulation = Delaunay(points)
    pairs = itertools.combinations(range(dimension + 1), 2)
    edges = np.concatenate([triangulation.simplices[:, pair] for pair in pairs])
    # Qhull leaves out a point that coincides with another to rounding; it names the nearest vertex.
    left_out = triangulation.coplanar[:, [0, 2]]
    return np.unique(np.sort(np.concatenate([edges, left_out]), axis=1), axis=0)


def _nearest_edges(points: np.ndarray) -> np.ndarray:
    from scipy.spatial import cKDTree

    count = len(points)
    if count <= _NEIGHBOURS + 1:
        return _sorted_edges(np.array(list(itertools.combinations(range(count), 2))).reshape(-1, 2))
    tree = cKDTree(points)
    eighth = tree.query(points, k=_NEIGHBOURS + 1)[0][:, -1]  # the first is the point itself
    edges = []
    for row, near in enumerate(tree.query_ball_point(points, eighth * (1 + _TIE))):
        others = np.setdiff1d(near, row)
        tied = np.linalg.norm(points[others] - points[row], axis=1) >= eighth[row] * (1 - _TIE)
        nearest = others[np.argsort(tied, kind="stable")][:_NEIGHBOURS]
        edges.append(np.column_stack([np.full(_NEIGHBOURS, row), nearest]))
    return np.unique(_sorted_edges(np.concatenate(edges)), axis=0)
