"""Neural persistence against two slow exact trees, by hand, under ties, heavy tails and block structure."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse.csgraph import minimum_spanning_tree

from toposcale.homology import neural_persistence, spanning_tree_weights
from toposcale.homology.neural_persistence import neural_persistence_of_tree


def prim_weights(weight):
    """Maximum spanning tree of the bipartite graph by textbook Prim: the oracle, with no cleverness."""
    magnitudes = np.abs(np.asarray(weight, dtype=np.float64))
    n_rows, n_columns = magnitudes.shape
    graph = np.full((n_rows + n_columns,) * 2, -1.0)
    graph[:n_rows, n_rows:] = magnitudes
    graph[n_rows:, :n_rows] = magnitudes.T
    in_tree = np.zeros(len(graph), bool)
    in_tree[0] = True
    reach, found = graph[0].copy(), []
    for _ in range(len(graph) - 1):
        vertex = int(np.argmax(np.where(in_tree, -2.0, reach)))
        found.append(reach[vertex])
        in_tree[vertex] = True
        reach = np.maximum(reach, graph[vertex])
    return np.sort(found)


def scipy_weights(weight):
    """The same tree by scipy: minimum spanning tree of the ranks (1 = heaviest), then ranks to weights."""
    magnitudes = np.abs(np.asarray(weight, dtype=np.float64))
    n_rows, n_columns = magnitudes.shape
    descending = -np.sort(-magnitudes, axis=None)
    ranks = np.empty(magnitudes.size)
    ranks[np.argsort(-magnitudes, axis=None)] = np.arange(1, magnitudes.size + 1)
    graph = np.zeros((n_rows + n_columns,) * 2)
    graph[:n_rows, n_rows:] = ranks.reshape(magnitudes.shape)
    tree = minimum_spanning_tree(graph).data.astype(int)
    return np.sort(descending[tree - 1])


def assert_exact_tree(weight):
    found = spanning_tree_weights(weight)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(np.sort(found), prim_weights(weight))


finite32 = st.floats(-(2.0**100), 2.0**100, width=32)
shapes = st.tuples(st.integers(1, 9), st.integers(1, 9))


@settings(max_examples=200)
@given(shapes.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=finite32)))
def test_spanning_tree_weights_equal_prim_on_small_matrices(weight):
    assert_exact_tree(weight)


@settings(max_examples=100)
@given(
    rows=st.integers(2, 60),
    columns=st.integers(2, 60),
    kind=st.sampled_from(
        ["gaussian", "cauchy", "few values", "mostly zero", "rank one", "row scales", "column scales", "blocks"]
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_neural_persistence_tree_is_exact_in_every_regime(rows, columns, kind, seed):
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((rows, columns)).astype(np.float32)
    if kind == "cauchy":
        weight = rng.standard_cauchy((rows, columns))
    elif kind == "few values":
        weight = rng.integers(-2, 3, (rows, columns)).astype(np.float32)
    elif kind == "mostly zero":
        weight *= rng.random((rows, columns)) < 0.02
    elif kind == "rank one":
        weight = np.outer(weight[:, 0], weight[0])
    elif kind == "row scales":
        weight *= 2.0 ** -np.arange(rows, dtype=np.float32)[:, None]
    elif kind == "column scales":
        weight *= 2.0 ** -np.arange(columns, dtype=np.float32)
    elif kind == "blocks":
        group = rng.integers(0, 5, rows)[:, None] == rng.integers(0, 5, columns)
        weight = np.where(group, weight, weight * 1e-6)
    assert_exact_tree(weight)


def test_neural_persistence_the_two_oracles_agree_and_so_do_we():
    weight = np.random.default_rng(1).standard_normal((90, 40))
    np.testing.assert_array_equal(prim_weights(weight), scipy_weights(weight))
    np.testing.assert_array_equal(np.sort(spanning_tree_weights(weight)), scipy_weights(weight))


def test_neural_persistence_large_matrix_against_scipy():
    weight = np.random.default_rng(2).standard_normal((1500, 400)).astype(np.float32)
    np.testing.assert_array_equal(np.sort(spanning_tree_weights(weight)), scipy_weights(weight))


@pytest.mark.parametrize("fill", [0.0, -3.0])
def test_neural_persistence_constant_matrix_has_a_constant_tree(fill):
    np.testing.assert_array_equal(spanning_tree_weights(np.full((400, 300), fill)), np.full(699, abs(fill)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int8])
def test_neural_persistence_of_every_dtype_equals_float64(dtype):
    weight = (np.random.default_rng(3).standard_normal((80, 50)) * 20).astype(dtype)
    assert_exact_tree(weight)
    assert neural_persistence(weight) == neural_persistence(weight.astype(np.float64))


def test_neural_persistence_layout_in_memory_does_not_matter():
    weight = np.random.default_rng(4).standard_normal((120, 60)).astype(np.float32)
    expected = np.sort(spanning_tree_weights(weight))
    for same in (np.asfortranarray(weight), np.repeat(weight, 2, axis=1)[:, ::2], weight[::-1, ::-1][::-1, ::-1]):
        np.testing.assert_array_equal(np.sort(spanning_tree_weights(same)), expected)


def test_neural_persistence_by_hand():
    # Edges by weight: 4 (row 0, column 0), 3 (row 1, column 0), 2 (row 1, column 1); 1 closes a cycle.
    weight = np.array([[4.0, -1.0], [3.0, -2.0]])
    np.testing.assert_array_equal(np.sort(spanning_tree_weights(weight)), [2.0, 3.0, 4.0])
    # a = 1, 3/4, 1/2
    assert neural_persistence(weight) == pytest.approx((0 + 0.25 + 0.5) / 3, rel=1e-15)
    assert neural_persistence(weight, p=2) == pytest.approx(math.sqrt((1 + 0.0625 + 0.25) / 3), rel=1e-15)
    assert neural_persistence(weight, p=2, scale=8.0) == pytest.approx(
        math.sqrt((1 + 0.25 + 0.390625 + 0.5625) / 3), rel=1e-15
    )


def test_neural_persistence_one_weight():
    assert neural_persistence([[-2.5]]) == 0.0
    assert neural_persistence([[-2.5]], p=2) == 1.0
    assert neural_persistence([[-2.5]], scale=5.0) == 0.5


def test_neural_persistence_tree_and_the_matrix_have_one_value():
    weight = np.random.default_rng(5).standard_normal((30, 20))
    tree = spanning_tree_weights(weight)
    assert (1 - tree / tree.max()).sum() / 49 == pytest.approx(neural_persistence(weight), rel=1e-13)
    assert neural_persistence_of_tree(tree, p=2) == neural_persistence(weight, p=2)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), factor=st.floats(1e-3, 1e3))
def test_neural_persistence_invariances(seed, factor):
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((25, 40))
    value = neural_persistence(weight)
    assert 0.0 <= value <= 1.0
    shuffled = weight[rng.permutation(25)][:, rng.permutation(40)]
    flipped = shuffled.T * rng.choice([-1.0, 1.0], (40, 25))
    # The tree's weights are the same numbers, summed in another order.
    assert neural_persistence(flipped) == pytest.approx(value, rel=1e-13)
    assert neural_persistence(weight * factor) == pytest.approx(value, rel=1e-13)
    assert neural_persistence(weight, scale=2 * np.abs(weight).max()) == pytest.approx((1 + value) / 2, rel=1e-13)


def test_neural_persistence_all_zero_matrix_is_nan_with_warning():
    with pytest.warns(RuntimeWarning, match="all-zero") as caught:
        assert math.isnan(neural_persistence(np.zeros((3, 4))))
    assert caught[0].filename == __file__


@pytest.mark.parametrize("function", [neural_persistence, spanning_tree_weights])
@pytest.mark.parametrize(
    "weight",
    [
        np.ones(3),
        np.ones((2, 2, 2)),
        np.empty((0, 3)),
        np.empty((3, 0)),
        [[1.0, math.nan]],
        [[1.0, -math.inf]],
        np.where(np.arange(90_000).reshape(300, 300) == 71_234, np.nan, 1.0),
        np.where(np.arange(90_000).reshape(300, 300) == 71_234, np.inf, 1.0).astype(np.float16),
        [[1j]],
        [["a"]],
    ],
)
def test_neural_persistence_bad_weight_is_refused_by_name(function, weight):
    with pytest.raises(ValueError, match=r"^weight must"):
        function(weight)


def test_neural_persistence_bad_options_are_refused_by_name():
    with pytest.raises(ValueError, match=r"^p must be 1 or 2"):
        neural_persistence([[1.0]], p=3)
    for scale in (0.5, 0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"^scale must"):
            neural_persistence([[1.0]], scale=scale)
