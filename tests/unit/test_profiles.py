"""Landscape profiles by hand and by their definition."""

import numpy as np
import pytest

from toposcale.landscape import grid_edges, landscape_profile, merge_tree


def path(count):
    return np.column_stack([np.arange(count - 1), np.arange(1, count)])


def test_two_valleys_by_hand():
    # Valleys at 0 and 1 of two and one vertices below the pass at 3; then one component of all five.
    profile = landscape_profile([0.0, 2.0, 3.0, 1.0, 4.0], path(5), levels=2)
    assert profile.minima.tolist() == [0, 3]
    assert profile.levels.tolist() == [0.0, 1.0, 3.0, 4.0]
    np.testing.assert_allclose(profile.mass, [[0.2, 0.0], [0.2, 0.2], [0.8, 0.0], [1.0, 0.0]])


def below(values, edges, level):
    """Components of a sublevel set as sets of vertices, by flooding."""
    inside = {v for v, value in enumerate(values.ravel()) if value <= level}
    neighbours = {v: set() for v in inside}
    for one, other in edges.tolist():
        if one in inside and other in inside:
            neighbours[one].add(other)
            neighbours[other].add(one)
    found = []
    while inside:
        todo, component = [min(inside)], set()
        while todo:
            vertex = todo.pop()
            if vertex not in component:
                component.add(vertex)
                todo += neighbours[vertex]
        inside -= component
        found.append(component)
    return found


@pytest.mark.parametrize("graph", ["grid4", "grid8"])
@pytest.mark.parametrize("seed", range(3))
def test_masses_match_the_definition(graph, seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 9, size=(8, 8)).astype(float) if seed == 2 else rng.normal(size=(8, 8))
    if seed == 1:
        values[2, :] = np.nan
        values[5, 5] = -np.inf
    edges = grid_edges(values.shape, graph)
    profile = landscape_profile(values, edges, levels=12)
    assert profile.minima.tolist() == merge_tree(values, edges).minima.tolist()
    heights = np.where(np.isfinite(values), values, np.nan)
    for level, mass in zip(profile.levels, profile.mass, strict=True):
        expected = sorted(len(component) / 64 for component in below(heights, edges, level))
        np.testing.assert_allclose(sorted(mass[mass > 0]), expected)


def test_minima_stay_beside_their_own_component():
    values, edges = np.random.default_rng(4).normal(size=(7, 7)), grid_edges((7, 7), "grid4")
    profile = landscape_profile(values, edges)
    for column, vertex in enumerate(profile.minima):
        for level, mass in zip(profile.levels, profile.mass[:, column], strict=True):
            if mass:
                component = next(c for c in below(values, edges, level) if vertex in c)
                assert mass == len(component) / 49
                assert min(component, key=lambda v: (values.flat[v], v)) == vertex


def test_nothing_finite_gives_an_empty_profile():
    profile = landscape_profile([np.nan, np.inf], [[0, 1]])
    assert profile.levels.shape == (0,)
    assert profile.mass.shape == (0, 1)


def test_constant_surface_is_one_full_block():
    profile = landscape_profile(np.ones((3, 3)), grid_edges((3, 3), "grid4"))
    assert profile.levels.tolist() == [1.0]
    assert profile.mass.tolist() == [[1.0]]


def test_wrong_levels_are_refused():
    with pytest.raises(ValueError, match=r"^levels:"):
        landscape_profile([0.0, 1.0], [[0, 1]], levels=1)
