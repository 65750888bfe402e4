"""Neighbourhood graphs against small cases by hand and their brute-force definitions."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toposcale.landscape import grid_edges, point_edges


def edge_set(edges):
    edges = [tuple(edge) for edge in edges.tolist()]
    assert len(set(edges)) == len(edges)
    assert all(one < other for one, other in edges)
    assert edges == sorted(edges)
    return set(edges)


def grid_points(rows, columns):
    return np.array(list(itertools.product(np.linspace(-1, 1, rows), np.linspace(-1, 1, columns))))


def test_grid_edges_grid_of_two_by_three_by_hand():
    assert edge_set(grid_edges((2, 3), "grid4")) == {(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)}
    diagonals = {(0, 4), (1, 3), (1, 5), (2, 4)}
    assert edge_set(grid_edges((2, 3), "grid8")) == edge_set(grid_edges((2, 3), "grid4")) | diagonals


@pytest.mark.parametrize("shape", [(1,), (7,), (1, 1), (4, 1), (3, 5), (3, 4, 2), (2, 2, 2, 2)])
@pytest.mark.parametrize("graph", ["grid4", "grid8"])
def test_grid_edges_grid_matches_the_distance_between_indices(shape, graph):
    index = list(itertools.product(*map(range, shape)))
    expected = set()
    for (i, one), (j, other) in itertools.combinations(enumerate(index), 2):
        gaps = [abs(a - b) for a, b in zip(one, other, strict=True)]
        if (sum(gaps) if graph == "grid4" else max(gaps)) == 1:
            expected.add((i, j))
    assert edge_set(grid_edges(shape, graph)) == expected


def empty_circumcircle(points):
    """Delaunay edges by definition: those of every triangle whose circumcircle holds no other point."""
    edges = set()
    for triple in itertools.combinations(range(len(points)), 3):
        corners = points[list(triple)]
        sides = corners[1:] - corners[0]
        centre = corners[0] + np.linalg.solve(2 * sides, (sides**2).sum(axis=1))
        radius = np.linalg.norm(corners[0] - centre)
        others = np.delete(points, triple, axis=0)
        if (np.linalg.norm(others - centre, axis=1) > radius).all():
            edges |= set(itertools.combinations(triple, 2))
    return edges


@pytest.mark.parametrize("seed", range(4))
def test_point_edges_delaunay_matches_empty_circumcircles(seed):
    points = np.random.default_rng(seed).normal(size=(25, 2))
    assert edge_set(point_edges(points, "delaunay")) == empty_circumcircle(points)


def nearest(points):
    """By (distance, index); integer coordinates make squared distances, and so ties, exact."""
    edges = set()
    for one, point in enumerate(points):
        square = ((points - point) ** 2).sum(axis=1)
        others = sorted((square[other], other) for other in range(len(points)) if other != one)
        edges |= {(min(one, other), max(one, other)) for _, other in others[:8]}
    return edges


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=60))
def test_point_edges_aknn8_with_ties_and_repeated_points(points):
    points = np.array(points, dtype=float)
    assert edge_set(point_edges(points, "aknn8")) == nearest(points)


def test_point_edges_aknn8_ties_go_on_beyond_the_first_question():
    angle = np.arange(40) * 2 * np.pi / 40
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    edges = point_edges(np.concatenate([ring, [[0.0, 0.0]]]), "aknn8")
    from_centre = {one for one, other in edges.tolist() if other == 40}
    # All 40 are equally near to the centre; the first eight by index are its own choice, and the centre is
    # nobody's.
    assert from_centre == set(range(8))


@pytest.mark.parametrize("graph", ["delaunay", "aknn8"])
def test_point_edges_repeated_points_stay_connected(graph):
    points = np.repeat(np.random.default_rng(0).normal(size=(12, 2)), 3, axis=0)
    edges = point_edges(points, graph)
    assert set(edges.ravel().tolist()) == set(range(36))
    if graph != "aknn8":
        assert {(0, 1), (0, 2)} <= edge_set(edges)


def test_point_edges_points_on_a_line_are_a_chain():
    points = np.outer([3.0, 0.0, 2.0, 7.0], [0.6, 0.8])
    assert edge_set(point_edges(points, "delaunay")) == {(1, 2), (0, 2), (0, 3)}


@pytest.mark.parametrize("graph", ["delaunay", "aknn8"])
def test_point_edges_tiny_clouds(graph):
    assert point_edges([[1.0, 2.0]], graph).shape == (0, 2)
    assert point_edges([[1.0, 2.0], [0.0, 0.0]], graph).tolist() == [[0, 1]]
    assert point_edges([[1.0, 2.0], [1.0, 2.0]], graph).tolist() == [[0, 1]]
    assert point_edges([[0.0, 0.0], [1.0, 0.0], [0.4, 1.0]], graph).tolist() == [[0, 1], [0, 2], [1, 2]]


def test_point_edges_flat_cloud_in_space_triangulated_in_plane():
    flat = np.random.default_rng(1).normal(size=(20, 2))
    basis = np.array([[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(point_edges(flat @ basis, "delaunay"), point_edges(flat, "delaunay"))


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: grid_edges((3, 3), "delaunay"), "graph"),
        (lambda: grid_edges((3, 0), "grid4"), "shape"),
        (lambda: grid_edges((), "grid4"), "shape"),
        (lambda: point_edges([[0.0, 1.0]], "grid4"), "graph"),
        (lambda: point_edges([0.0, 1.0], "delaunay"), "points"),
        (lambda: point_edges([[0.0, np.nan]], "delaunay"), "points"),
    ],
)
def test_grid_edges_wrong_calls_name_the_argument(call, named):
    with pytest.raises(ValueError, match=f"^{named}:"):
        call()
