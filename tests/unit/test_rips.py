"""Rips diagrams on known shapes and against Ripser and gudhi's simplex tree; spanning trees against scipy."""

import math
import subprocess
import sys
import warnings
from importlib.metadata import version

import gudhi
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist, pdist, squareform

from paths import ROOT
from toposcale.homology import (
    h0_lifetimes,
    mean_pairwise_distance,
    nearest_distances,
    pairwise_distances,
    rips,
    rips_diagrams,
    spanning_tree_lengths,
)

SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
clouds = st.tuples(st.integers(2, 14), st.integers(1, 4), st.integers(0, 2**32 - 1))


def draw_cloud(shape_and_seed):
    n_points, dimension, seed = shape_and_seed
    rng = np.random.default_rng(seed)
    if seed % 2:  # a coarse lattice: duplicates and ties
        return rng.integers(0, 3, (n_points, dimension)).astype(float)
    return rng.standard_normal((n_points, dimension))


def simplex_tree_diagrams(points, maxdim):
    tree = gudhi.RipsComplex(distance_matrix=pairwise_distances(points)).create_simplex_tree(max_dimension=maxdim + 1)
    tree.compute_persistence(homology_coeff_field=2, min_persistence=0.0)
    diagrams = [tree.persistence_intervals_in_dimension(k).reshape(-1, 2) for k in range(maxdim + 1)]
    return [diagram[np.isfinite(diagram[:, 1])] for diagram in diagrams]


def test_rips_diagrams_unit_square():
    h0, h1 = rips_diagrams(SQUARE)
    np.testing.assert_array_equal(h0, [[0, 1]] * 3)
    np.testing.assert_array_equal(h1, [[1.0, math.sqrt(2.0)]])  # exact: no float32 on the way


def test_rips_diagrams_regular_hexagon_and_octahedron():
    angles = np.arange(6) * math.pi / 3
    h1 = rips_diagrams(np.column_stack([np.cos(angles), np.sin(angles)]))[1]
    np.testing.assert_allclose(h1, [[1.0, math.sqrt(3.0)]], rtol=1e-15)
    octahedron = np.concatenate([np.eye(3), -np.eye(3)])
    h0, h1, h2 = rips_diagrams(octahedron, maxdim=2)
    np.testing.assert_allclose(h0, [[0.0, math.sqrt(2.0)]] * 5, rtol=1e-15)
    assert h1.shape == (0, 2)
    np.testing.assert_allclose(h2, [[math.sqrt(2.0), 2.0]], rtol=1e-15)


@settings(max_examples=60)
@given(clouds, st.sampled_from([0, 1, 2]))
def test_rips_diagrams_equals_the_full_simplex_tree(shape_and_seed, maxdim):
    points = draw_cloud(shape_and_seed)
    ours, theirs = rips_diagrams(points, maxdim=maxdim), simplex_tree_diagrams(points, maxdim)
    assert len(ours) == maxdim + 1
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other[np.lexsort((other[:, 0], other[:, 0] - other[:, 1]))])
        persistences = one[:, 1] - one[:, 0]
        assert (persistences > 0).all()
        assert (np.diff(persistences) <= 0).all()


def test_pairwise_distances_equals_ripser_to_its_float32():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ripser import ripser
    points = np.random.default_rng(0).standard_normal((120, 8))
    expected = ripser(pairwise_distances(points), distance_matrix=True, maxdim=1)["dgms"]
    for ours, theirs in zip(rips_diagrams(points), expected, strict=True):
        theirs = theirs[np.isfinite(theirs[:, 1])]
        assert len(ours) == len(theirs)
        # Ripser keeps distances as float32: relative 6e-8 of values below 10.
        np.testing.assert_allclose(np.sort(ours, axis=0), np.sort(theirs, axis=0), atol=1e-6)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_rips_diagrams_invariances_and_scale(seed, factor):
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((20, 3))
    moved = factor * points[rng.permutation(20)] + rng.standard_normal(3)
    for before, after in zip(rips_diagrams(points), rips_diagrams(moved), strict=True):
        assert before.shape == after.shape
        np.testing.assert_allclose(
            np.sort(after, axis=0), factor * np.sort(before, axis=0), rtol=1e-9, atol=1e-9 * factor
        )


def test_rips_diagrams_duplicated_points_leave_no_phantom_bar():
    # Far from the origin |x|^2 + |y|^2 - 2xy would put duplicates 1e-5 or so apart.
    points = np.repeat(1e3 + np.random.default_rng(1).standard_normal((30, 5)), 3, axis=0)
    h0, _ = rips_diagrams(points)
    assert len(h0) == 29
    assert np.count_nonzero(h0_lifetimes(points) == 0.0) == 60


def test_rips_diagrams_one_point_and_two_points():
    assert [diagram.shape for diagram in rips_diagrams([[1.0, 2.0]], maxdim=2)] == [(0, 2)] * 3
    assert h0_lifetimes([[1.0, 2.0]]).shape == (0,)
    h0, h1 = rips_diagrams([[0.0, 0.0], [3.0, 4.0]])
    assert (h0.tolist(), h1.shape) == ([[0.0, 5.0]], (0, 2))


@pytest.mark.parametrize(("n_points", "dimension"), [(1, 3), (2, 1), (60, 7), (30, 5000)])
def test_pairwise_distances_distances_equal_scipy(n_points, dimension):
    points = np.random.default_rng(2).standard_normal((n_points, dimension))
    distances = pairwise_distances(points)
    # Sums of d squares in another order: d eps at worst.
    np.testing.assert_allclose(distances, squareform(pdist(points)), rtol=dimension * 2.3e-16)
    np.testing.assert_array_equal(distances, distances.T)
    assert (np.diagonal(distances) == 0.0).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_pairwise_distances_arithmetic_is_float64_whatever_input(dtype):
    points = (100 * np.random.default_rng(3).standard_normal((20, 6))).astype(dtype)
    wide = points.astype(np.float64)
    np.testing.assert_array_equal(pairwise_distances(points), pairwise_distances(wide))
    np.testing.assert_array_equal(h0_lifetimes(points), h0_lifetimes(wide))


def test_mean_pairwise_distance():
    assert mean_pairwise_distance(pairwise_distances(SQUARE)) == pytest.approx((4 + 2 * math.sqrt(2)) / 6, rel=1e-15)
    with pytest.warns(RuntimeWarning, match="one point"):
        assert math.isnan(mean_pairwise_distance(pairwise_distances([[1.0]])))


def test_mean_pairwise_distance_dividing_diagram_scaling_cloud():
    points = np.random.default_rng(4).standard_normal((25, 4))
    mean = mean_pairwise_distance(pairwise_distances(points))
    for diagram, scaled in zip(rips_diagrams(points), rips_diagrams(points / mean), strict=True):
        np.testing.assert_allclose(diagram / mean, scaled, rtol=1e-12)


@settings(max_examples=60)
@given(clouds)
def test_h0_lifetimes_lifetimes_are_the_h0_bars(shape_and_seed):
    points = draw_cloud(shape_and_seed)
    lifetimes = h0_lifetimes(points)
    assert lifetimes.shape == (len(points) - 1,)
    np.testing.assert_array_equal(lifetimes[lifetimes > 0], rips_diagrams(points, maxdim=0)[0][:, 1])


def scipy_lengths(points):
    distances = pairwise_distances(points)
    return np.sort(minimum_spanning_tree(distances + 1.0 - np.eye(len(points))).data)[::-1] - 1.0


def test_spanning_tree_lengths_prim_equals_scipy():
    points = np.random.default_rng(5).standard_normal((150, 3))
    np.testing.assert_allclose(spanning_tree_lengths(pairwise_distances(points)), scipy_lengths(points), atol=1e-15)


def clustered(rng):
    """Clusters, some tighter than the rounding of inner products, with duplicates among them."""
    centres = 100.0 * rng.standard_normal((6, 4))
    spreads = 10.0 ** rng.integers(-12, 2, 6)
    cloud = centres[rng.integers(0, 6, 300)] + spreads[rng.integers(0, 6, 300), None] * rng.standard_normal((300, 4))
    return np.concatenate([cloud, cloud[:20]])


@pytest.mark.parametrize("block", [1, 5_000, 1 << 23])
@pytest.mark.parametrize("kind", ["gaussian", "lattice", "clusters", "line", "one distance", "offset"])
def test_h0_lifetimes_large_cloud_path_equals_prim(monkeypatch, kind, block):
    rng = np.random.default_rng(6)
    cloud = {
        "gaussian": lambda: rng.standard_normal((400, 30)),
        "lattice": lambda: rng.integers(0, 9, (400, 3)).astype(float),
        "clusters": lambda: clustered(rng),
        "line": lambda: np.cumsum(rng.exponential(1.0, 300) ** 3)[:, None] * [1.0, 2.0],
        "one distance": lambda: np.eye(120),
        "offset": lambda: 1e6 + 1e-3 * rng.standard_normal((300, 5)),
    }[kind]()
    expected = h0_lifetimes(cloud)
    monkeypatch.setattr(rips, "_DENSE_POINTS", 1)
    monkeypatch.setattr(rips, "_BLOCK_ENTRIES", block)
    # The two paths add the squares of one difference in another order; of whole numbers every order is exact.
    exact = kind in ("lattice", "one distance")
    np.testing.assert_allclose(h0_lifetimes(cloud), expected, rtol=0 if exact else 1e-15 * cloud.shape[1], atol=0)


def test_h0_lifetimes_of_clusters_by_their_distances(monkeypatch):
    """In one round of the search no edge meets the largest component."""
    monkeypatch.setattr(rips, "_DENSE_POINTS", 1)
    monkeypatch.setattr(rips._NeighbourSearch, "short_square", lambda search: 1.0)
    cloud = np.array([0.0, 1.0, 6.0, 7.0, 100.0, 101.0, 102.0])[:, None]
    assert h0_lifetimes(cloud).tolist() == [93.0, 5.0, 1.0, 1.0, 1.0, 1.0]


def test_spanning_tree_lengths_large_cloud_path_on_cloud_needs():
    cloud = np.random.default_rng(7).standard_normal((rips._DENSE_POINTS + 300, 16)).astype(np.float32)
    expected = spanning_tree_lengths(pairwise_distances(cloud))
    np.testing.assert_allclose(h0_lifetimes(cloud), expected, rtol=1e-14)


def test_nearest_distances_of_exact_small_cases():
    assert list(nearest_distances(SQUARE)) == [1.0] * 4
    assert list(nearest_distances([[0.0], [1.0], [4.0], [4.0]])) == [1.0, 1.0, 0.0, 0.0]
    # 1 and 2 are the nearest of each other; 7 lies 5 from 2.
    assert list(nearest_distances([[1.0], [7.0], [2.0]])) == [1.0, 5.0, 1.0]
    with pytest.warns(RuntimeWarning, match="no nearest other point"):
        assert np.isnan(nearest_distances([[1.0, 2.0]])).tolist() == [True]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_nearest_distances_follow_the_scale_and_no_motion(seed, factor):
    rng = np.random.default_rng(seed)
    cloud = rng.standard_normal((20, 4))
    rotation = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    moved = factor * cloud[rng.permutation(20)] @ rotation + 5.0
    assert np.sort(nearest_distances(moved)) == pytest.approx(factor * np.sort(nearest_distances(cloud)), rel=1e-9)
    # The edge to the nearest point is in every minimum spanning tree.
    lifetimes = h0_lifetimes(cloud)
    assert all(np.isclose(lifetimes, distance, rtol=1e-15, atol=0).any() for distance in nearest_distances(cloud))


def nearest_by_differences(cloud):
    wide = cloud.astype(np.float64)
    nearest = []
    for index, row in enumerate(wide):
        differences = wide - row
        squares = np.einsum("ij,ij->i", differences, differences)
        squares[index] = math.inf
        nearest.append(math.sqrt(squares.min()))
    return nearest


NEAREST_CLOUDS = {
    "gaussian": lambda rng: rng.standard_normal((200, 30)),
    "float32": lambda rng: rng.standard_normal((200, 30)).astype(np.float32),
    "duplicates": lambda rng: rng.standard_normal((90, 4))[rng.integers(0, 90, 200)],
    "one point": lambda rng: np.ones((40, 3)),
    "lattice": lambda rng: rng.integers(0, 9, (200, 3)) * 1.0,
    "one distance": lambda rng: np.eye(90),
    "clusters": lambda rng: clustered(rng),
    "offset": lambda rng: 1e9 + 1e-3 * rng.standard_normal((200, 5)),
    "two distant clusters": lambda rng: np.sign(np.arange(200) - 99.5)[:, None] * 1e6 + rng.standard_normal((200, 5)),
    "norms of many magnitudes": lambda rng: rng.standard_normal((200, 5)) * 10.0 ** rng.uniform(-60, 0, (200, 1)),
    "tiny": lambda rng: 1e-150 * rng.standard_normal((200, 5)),
    "squares that underflow": lambda rng: 1e-165 * rng.standard_normal((200, 5)),
    "huge": lambda rng: 1e150 * rng.standard_normal((200, 5)),
}


@pytest.mark.parametrize("block", [1, 5_000, 1 << 23])
@pytest.mark.parametrize("kind", NEAREST_CLOUDS)
def test_nearest_distances_equal_direct_differences(monkeypatch, kind, block):
    monkeypatch.setattr(rips, "_FEW_POINTS", 1)
    monkeypatch.setattr(rips, "_BLOCK_ENTRIES", block)
    cloud = NEAREST_CLOUDS[kind](np.random.default_rng(8))
    np.testing.assert_array_equal(nearest_distances(cloud), nearest_by_differences(cloud))


@pytest.mark.parametrize("few_points", [1, rips._FEW_POINTS])
@pytest.mark.parametrize("kind", NEAREST_CLOUDS)
def test_nearest_distances_equal_scipy(monkeypatch, kind, few_points):
    monkeypatch.setattr(rips, "_FEW_POINTS", few_points)
    cloud = NEAREST_CLOUDS[kind](np.random.default_rng(8))
    distances = cdist(cloud, cloud)
    np.fill_diagonal(distances, math.inf)
    np.testing.assert_allclose(nearest_distances(cloud), distances.min(axis=1), rtol=1e-15 * len(cloud.T), atol=0)


def test_nearest_distances_take_few_direct_differences(monkeypatch):
    n_points, products, pairs = 2049, [], []
    lower_bounds, exact_squares = rips._NeighbourSearch.lower_bounds, rips._NeighbourSearch.exact_squares

    def counted_bounds(search, *arguments):
        bounds = lower_bounds(search, *arguments)
        products.append((bounds.dtype, bounds.size))
        return bounds

    def counted_squares(search, start, end):
        pairs.append(len(start))
        return exact_squares(search, start, end)

    monkeypatch.setattr(rips._NeighbourSearch, "lower_bounds", counted_bounds)
    monkeypatch.setattr(rips._NeighbourSearch, "exact_squares", counted_squares)
    monkeypatch.setattr(rips, "_BLOCK_ENTRIES", 128 * n_points)
    nearest_distances(0.02 * np.random.default_rng(10).standard_normal((n_points, 64)))
    assert {dtype for dtype, _ in products} == {np.dtype(np.float32)}
    assert sum(size for _, size in products) == n_points**2
    assert sum(pairs) < 20 * n_points


@pytest.mark.parametrize("function", [rips_diagrams, h0_lifetimes, pairwise_distances, nearest_distances])
@pytest.mark.parametrize("points", [np.ones(3), np.empty((0, 2)), np.empty((2, 0)), [[math.nan]], [[0.0], [math.inf]]])
def test_rips_diagrams_bad_points_are_refused_by_name(function, points):
    with pytest.raises(ValueError, match=r"^points must"):
        function(points)


def test_pairwise_distances_refuse_an_overflow_by_name():
    for function in (pairwise_distances, h0_lifetimes, nearest_distances):
        with np.errstate(over="ignore"), pytest.raises(ValueError, match=r"^points are so far apart"):
            function([[1e200], [-1e200]])


def test_rips_diagrams_private_ripser_is_one_of_the_pinned_gudhi():
    """`homology.rips` calls gudhi by a private name: its version is pinned, and another one must be looked at."""
    import tomllib

    pinned = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert "gudhi>=3.13,<3.14" in pinned
    assert version("gudhi").startswith("3.13."), "look whether gudhi._ripser_ext._full still means the same"


def test_rips_diagrams_negative_dimension_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^maxdim must"):
        rips_diagrams(SQUARE, maxdim=-1)


def test_rips_diagrams_weight_feature_job_imports_nothing_heavy():
    code = "\n".join(
        [
            "import sys, numpy as np, toposcale.homology as h, toposcale.features.spectra as s",
            "w = np.random.default_rng(0).standard_normal((40, 30))",
            "h.neural_persistence(w), h.summarize_diagram(h.rips_diagrams(w)[1]), h.h0_lifetimes(w)",
            "s.powerlaw_alpha(s.weight_eigenvalues(w).values), s.stable_rank(s.weight_eigenvalues(w).values)",
            "heavy = {'sklearn', 'torch', 'pandas', 'matplotlib', 'ripser', 'persim'}",
            "print(sorted(heavy & set(sys.modules)))",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_h0_lifetimes_of_equal_rows_are_0():
    assert np.array_equal(h0_lifetimes(np.ones((3000, 4))), np.zeros(2999))


def test_nearest_distances_of_some_rows_equal_those_of_all():
    cloud = np.random.default_rng(0).normal(size=(3000, 6))
    cloud[[17, 2999]] = cloud[1500]
    every = nearest_distances(cloud)
    rows = np.linspace(0, 2999, 700).round().astype(int)
    assert rows[-1] == 2999
    np.testing.assert_array_equal(nearest_distances(cloud, 700), every[rows])
    assert every[17] == every[1500] == every[2999] == 0
    np.testing.assert_array_equal(nearest_distances(cloud, 5000), every)
    np.testing.assert_array_equal(
        nearest_distances(cloud[:50], 7), nearest_distances(cloud[:50])[[0, 8, 16, 24, 33, 41, 49]]
    )
    np.testing.assert_array_equal(nearest_distances(np.ones((2500, 2)), 10), np.zeros(10))
