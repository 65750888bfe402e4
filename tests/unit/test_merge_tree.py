"""Merge trees against trees drawn by hand, a plain union-find and gudhi."""

import os
import subprocess
import sys

import gudhi
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toposcale.figures.landscape import merge_tree_layout
from toposcale.landscape import grid_edges, merge_tree, point_edges


def path(count):
    return np.column_stack([np.arange(count - 1), np.arange(1, count)])


def union_find(values, edges):
    """The definition, vertex by vertex: (dying minimum, saddle) of all lasting pairs, and the roots."""
    filtration = [value if np.isfinite(value) else np.inf for value in np.ravel(values)]
    key = [(value, index) for index, value in enumerate(filtration)]
    neighbours = {vertex: [] for vertex in range(len(key))}
    for one, other in np.asarray(edges).tolist():
        neighbours[one].append(other)
        neighbours[other].append(one)
    component, pairs = {}, []
    for vertex in sorted(neighbours, key=key.__getitem__):
        component[vertex] = vertex
        for neighbour in neighbours[vertex]:
            if neighbour not in component or component[neighbour] == component[vertex]:
                continue
            older, younger = sorted((component[neighbour], component[vertex]), key=key.__getitem__)
            component = {v: older if root == younger else root for v, root in component.items()}
            if filtration[vertex] > filtration[younger]:
                pairs.append((younger, vertex))
    return sorted(pairs), sorted(set(component.values()))


def assert_matches_definition(values, edges):
    tree = merge_tree(values, edges)
    pairs, roots = union_find(values, edges)
    assert sorted(zip(tree.dying.tolist(), tree.saddles.tolist(), strict=True)) == pairs
    assert sorted(tree.roots.tolist()) == roots
    assert sorted(tree.minima.tolist()) == sorted([minimum for minimum, _ in pairs] + roots)
    return tree


@given(st.integers(0, 2**32 - 1), st.floats(0, 3))
@settings(max_examples=40)
def test_merge_tree_threshold_keeps_pairs_above_and_whole_tree(seed, threshold):
    values = np.random.default_rng(seed).normal(size=(6, 6))
    edges = grid_edges((6, 6), "grid8")
    whole, kept = merge_tree(values, edges), merge_tree(values, edges, threshold=threshold)
    assert kept.persistences.tolist() == [p for p in whole.persistences.tolist() if p > threshold]
    assert kept.roots.tolist() == whole.roots.tolist()
    assert set(kept.surviving.tolist()) <= set(kept.minima.tolist())  # no branch hangs on one that is gone
    assert kept.n_minima == kept.n_saddles + 1
    merge_tree_layout(kept)


def test_merge_tree_closed_average_counts_the_whole_range_once():
    tree = merge_tree([1.0, 4.0, 0.0, 3.0, 2.0], path(5))  # pairs of 3 and 1, a range of 4
    assert tree.average_persistence == 2.0
    assert tree.average_persistence_closed == pytest.approx(8 / 3)
    bowl = merge_tree([4.0, 1.0, 0.0, 1.0, np.inf], path(5))
    assert (bowl.average_persistence, bowl.average_persistence_closed) == (0.0, 4.0)
    assert np.isnan(merge_tree([np.nan, np.nan], path(2)).average_persistence_closed)
    with pytest.raises(ValueError, match=r"^threshold:"):
        merge_tree([1.0, 2.0], path(2), threshold=-1)


def test_merge_tree_hand_drawn_tree():
    # Valleys 1, 0, 2 with passes at 4 and 3: the 2 ends at 3 in the 0, the 1 ends at 4 in the 0.
    tree = merge_tree([1.0, 4.0, 0.0, 3.0, 2.0], path(5))
    assert tree.minima.tolist() == [2, 0, 4]
    assert tree.saddles.tolist() == [3, 1]
    assert tree.dying.tolist() == [4, 0]
    assert tree.surviving.tolist() == [2, 2]
    assert tree.roots.tolist() == [2]
    assert tree.diagram.tolist() == [[0.0, np.inf], [1.0, 4.0], [2.0, 3.0]]
    assert (tree.n_minima, tree.n_saddles, tree.n_components) == (3, 2, 1)
    assert tree.total_persistence == 4.0
    assert tree.average_persistence == 2.0


def test_merge_tree_monkey_saddle_counts_twice():
    tree = merge_tree([5.0, 1.0, 2.0, 3.0], [[0, 1], [0, 2], [0, 3]])
    assert tree.saddles.tolist() == [0, 0]
    assert tree.surviving.tolist() == [1, 1]
    assert tree.diagram.tolist() == [[1.0, np.inf], [2.0, 5.0], [3.0, 5.0]]


@pytest.mark.parametrize("graph", ["grid4", "grid8"])
@pytest.mark.parametrize("value", [0.0, 2.5, np.nan, np.inf])
def test_merge_tree_constant_surface_one_minimum_and_no_saddle(graph, value):
    tree = merge_tree(np.full((4, 5), value), grid_edges((4, 5), graph))
    assert (tree.n_minima, tree.n_saddles, tree.n_components) == (1, 0, 1)
    assert tree.minima.tolist() == [0]
    assert tree.total_persistence == 0.0


def test_merge_tree_plateau_is_one_minimum_at_its_smallest_index():
    tree = merge_tree([3.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0], path(7))
    assert tree.minima.tolist() == [1, 5]
    assert tree.saddles.tolist() == [4]
    assert tree.dying.tolist() == [5]


def test_merge_tree_plateau_reached_from_later_index_no_minimum():
    # Vertices 0..2 lie level, and only the last of them has a way down.
    tree = merge_tree([1.0, 1.0, 1.0, 0.0], path(4))
    assert tree.minima.tolist() == [3]
    assert tree.n_saddles == 0


def test_merge_tree_disconnected_graph_has_a_tree_per_component():
    tree = merge_tree([0.0, 2.0, 1.0, 5.0, 4.0], [[0, 1], [1, 2], [3, 4]])
    assert tree.n_components == 2
    assert tree.roots.tolist() == [0, 4]
    assert tree.diagram.tolist() == [[0.0, np.inf], [1.0, 2.0], [4.0, np.inf]]


def test_merge_tree_no_edges_gives_a_tree_per_vertex():
    tree = merge_tree([1.0, 0.0], np.empty((0, 2)))
    assert (tree.n_minima, tree.n_saddles, tree.n_components) == (2, 0, 2)


@pytest.mark.parametrize("wall", [np.nan, np.inf, -np.inf])
def test_merge_tree_non_finite_vertex_enters_last(wall):
    tree = merge_tree([0.0, wall, 1.0, 3.0, 2.0], path(5))
    # The two sides of the wall meet nowhere but at the wall: an event there, but no finite pair.
    assert tree.saddles.tolist() == [3, 1]
    assert tree.diagram.tolist() == [[0.0, np.inf], [1.0, np.inf], [2.0, 3.0]]
    assert tree.total_persistence == 1.0
    assert tree.n_components == 1


values_with_ties = st.integers(0, 3).map(float) | st.sampled_from([np.nan, np.inf, -np.inf])


@settings(max_examples=200)
@given(st.data())
def test_merge_tree_any_graph_matches_the_definition(data):
    count = data.draw(st.integers(1, 9))
    values = data.draw(st.lists(values_with_ties, min_size=count, max_size=count))
    vertex = st.integers(0, count - 1)
    edges = data.draw(st.lists(st.tuples(vertex, vertex), max_size=20))
    assert_matches_definition(values, np.array(edges, dtype=np.int64).reshape(-1, 2))


@pytest.mark.parametrize("graph", ["grid4", "grid8"])
@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_merge_tree_grid_matches_the_definition(graph, levels):
    values = np.random.default_rng(levels).integers(0, levels, size=(9, 11)).astype(float)
    assert_matches_definition(values, grid_edges(values.shape, graph))


@pytest.mark.parametrize("graph", ["grid4", "grid8"])
def test_merge_tree_grid_matches_gudhi_cubical_complexes(graph):
    rng = np.random.default_rng(5)
    for values in (rng.normal(size=(20, 30)), rng.integers(0, 6, size=(20, 30)).astype(float)):
        # Values on vertices join along edges only (grid4); values on squares join at corners too (grid8).
        where = "vertices" if graph == "grid4" else "top_dimensional_cells"
        complex_ = gudhi.CubicalComplex(**{where: values})
        complex_.persistence(homology_coeff_field=2, min_persistence=0.0)
        expected = complex_.persistence_intervals_in_dimension(0)
        tree = merge_tree(values, grid_edges(values.shape, graph))
        np.testing.assert_array_equal(tree.diagram, expected[np.lexsort((expected[:, 1], expected[:, 0]))])


@pytest.mark.parametrize("graph", ["delaunay", "aknn8"])
def test_merge_tree_point_graph_matches_gudhi_simplex_tree(graph):
    rng = np.random.default_rng(6)
    points, values = rng.normal(size=(120, 2)), rng.integers(0, 12, size=120).astype(float)
    edges = point_edges(points, graph)
    complex_ = gudhi.SimplexTree()
    for vertex, value in enumerate(values):
        complex_.insert([vertex], value)
    for one, other in edges:
        complex_.insert([one, other], max(values[one], values[other]))
    complex_.compute_persistence(persistence_dim_max=True, min_persistence=0.0)
    expected = complex_.persistence_intervals_in_dimension(0)
    tree = merge_tree(values, edges)
    np.testing.assert_array_equal(tree.diagram, expected[np.lexsort((expected[:, 1], expected[:, 0]))])


def test_merge_tree_order_and_direction_of_edges_do_not_matter():
    rng = np.random.default_rng(7)
    values, edges = rng.integers(0, 5, size=80).astype(float), grid_edges((8, 10), "grid8")
    shuffled = rng.permutation(edges)[:, ::-1]
    once, again = merge_tree(values, edges), merge_tree(values, np.concatenate([shuffled, edges[:30]]))
    for name in ("minima", "saddles", "dying", "surviving", "roots"):
        np.testing.assert_array_equal(getattr(once, name), getattr(again, name))


def test_merge_tree_diagram_is_stable_under_shift_and_scale():
    values, edges = np.random.default_rng(8).normal(size=(12, 12)), grid_edges((12, 12), "grid4")
    tree, moved = merge_tree(values, edges), merge_tree(4 * values + 8, edges)
    np.testing.assert_allclose(moved.diagram, 4 * tree.diagram + 8, rtol=1e-14)


@pytest.mark.parametrize(
    ("values", "edges", "named"),
    [
        ([], [[0, 1]], "values"),
        ([1.0, 2.0], [[0, 2]], "edges"),
        ([1.0, 2.0], [[-1, 0]], "edges"),
        ([1.0, 2.0], [[0, 1, 1]], "edges"),
        ([1.0, 2.0], [[0.0, 1.0]], "edges"),
    ],
)
def test_merge_tree_wrong_calls_name_the_argument(values, edges, named):
    with pytest.raises(ValueError, match=f"^{named}:"):
        merge_tree(values, edges)


def crosses(first, second):
    """Whether a vertical and a horizontal segment cross in the inside of both."""
    upright = [segment for segment in (first, second) if segment[0, 0] == segment[1, 0]]
    level = [segment for segment in (first, second) if segment[0, 1] == segment[1, 1]]
    if len(upright) != 1 or len(level) != 1:
        return False
    (x, low), (_, high) = upright[0][np.argsort(upright[0][:, 1])]
    left, right = np.sort(level[0][:, 0])
    return left < x < right and low < level[0][0, 1] < high


@pytest.mark.parametrize("seed", range(5))
def test_merge_tree_layout_has_no_crossings(seed):
    values = np.random.default_rng(seed).normal(size=(7, 7))
    if seed == 4:
        values[:, 3] = np.nan
    tree = merge_tree(values, grid_edges((7, 7), "grid4"))
    layout = merge_tree_layout(tree)
    leaves = layout.nodes[: tree.n_minima]
    assert leaves[:, 0].tolist() == list(range(tree.n_minima))
    assert sorted(leaves[:, 1]) == sorted(values.flat[tree.minima])
    heights = layout.nodes[tree.n_minima :, 1]
    expected = values.ravel()[tree.saddles]
    np.testing.assert_array_equal(heights[np.isfinite(expected)], expected[np.isfinite(expected)])
    assert (heights[~np.isfinite(expected)] > np.nanmax(values)).all()
    segments = layout.segments
    assert not any(crosses(one, other) for i, one in enumerate(segments) for other in segments[:i])
    upright = segments[segments[:, 0, 0] == segments[:, 1, 0]]
    columns = [(x, *sorted(ends)) for x, ends in zip(upright[:, 0, 0], upright[:, :, 1], strict=True)]
    for i, (x, low, high) in enumerate(columns):  # no two stems lie on each other
        assert not any(x == other[0] and low < other[2] and other[1] < high for other in columns[:i])


def test_merge_tree_layout_layout_by_hand():
    layout = merge_tree_layout(merge_tree([1.0, 4.0, 0.0, 3.0, 2.0], path(5)))
    assert layout.nodes.tolist() == [[0, 0], [1, 2], [2, 1], [0.5, 3], [1.25, 4]]
    assert [[0.5, 3.0], [0.5, 4.0]] in layout.segments.tolist()
    assert [[2.0, 4.0], [0.5, 4.0]] in layout.segments.tolist()


def test_merge_tree_merge_trees_do_not_import_torch():
    code = (
        "import sys; from toposcale.landscape import merge_tree, grid_edges, point_edges, landscape_profile; "
        "merge_tree([0., 1.], grid_edges((2,), 'grid4')); print('torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "False"
