"""Diagram distances by hand, against brute force over all matchings, and against Hera and persim."""

import itertools
import math

import gudhi.hera
import numpy as np
import persim
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toposcale.homology import diagram_distances, distances, rips_diagrams

KINDS = ("wasserstein_1", "wasserstein_2", "bottleneck")


def diagram_distance(a, b, *, kind):
    return diagram_distances(a, b, kinds=[kind])[kind]


def brute_force(a, b, kind):
    """Every partial matching of two small diagrams."""
    direct = [[max(abs(p[0] - q[0]), abs(p[1] - q[1])) for q in b] for p in a]
    best = math.inf
    for size in range(min(len(a), len(b)) + 1):
        for rows in itertools.combinations(range(len(a)), size):
            for columns in itertools.permutations(range(len(b)), size):
                costs = [direct[i][j] for i, j in zip(rows, columns, strict=True)]
                costs += [(a[i][1] - a[i][0]) / 2 for i in range(len(a)) if i not in rows]
                costs += [(b[j][1] - b[j][0]) / 2 for j in range(len(b)) if j not in columns]
                if kind == "bottleneck":
                    best = min(best, max(costs, default=0.0))
                else:
                    order = int(kind[-1])
                    best = min(best, sum(cost**order for cost in costs) ** (1 / order))
    return best


bars = st.tuples(st.integers(0, 20), st.integers(1, 20)).map(lambda bar: (bar[0] / 4, (bar[0] + bar[1]) / 4))
small_diagrams = st.lists(bars, max_size=4).map(lambda rows: np.array(rows, float).reshape(-1, 2))


@settings(max_examples=150)
@given(small_diagrams, small_diagrams, st.sampled_from(KINDS))
def test_diagram_distances_equals_the_best_of_all_matchings(a, b, kind):
    # Quarters are exact in binary, so only the square root and its sum may round.
    assert diagram_distance(a, b, kind=kind) == pytest.approx(brute_force(a, b, kind), rel=1e-12, abs=0)


def random_diagram(rng, n_bars):
    births = rng.random(n_bars)
    return np.column_stack([births, births + rng.exponential(0.2, n_bars)])


@settings(max_examples=30)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 2**32 - 1))
def test_diagram_distances_equals_hera(n_first, n_second, seed):
    rng = np.random.default_rng(seed)
    a, b = random_diagram(rng, n_first), random_diagram(rng, n_second)
    # Hera stops at a relative error of delta: the reason for the tolerances. gudhi.bottleneck_distance is no
    # oracle: in gudhi 3.13 it misses the best of all matchings on some diagrams of three bars.
    hera = gudhi.hera.bottleneck_distance(a, b, delta=1e-9)
    assert diagram_distance(a, b, kind="bottleneck") == pytest.approx(hera, rel=1.1e-9)
    for order in (1, 2):
        hera = gudhi.hera.wasserstein_distance(a, b, order=order, internal_p=np.inf, delta=1e-7)
        assert diagram_distance(a, b, kind=f"wasserstein_{order}") == pytest.approx(hera, rel=1.1e-7)


@settings(max_examples=60)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**32 - 1), st.booleans())
def test_diagram_distances_of_one_birth_equal_assignment(n_first, n_second, seed, tied):
    rng = np.random.default_rng(seed)
    deaths = [rng.integers(1, 6, n).astype(float) if tied else rng.gamma(3.0, 1.0, n) for n in (n_first, n_second)]
    a, b = (np.column_stack([np.zeros_like(one), one]) for one in deaths)
    # A bar without length of another birth changes no distance, and rules the alignment out.
    assigned = diagram_distances(a, np.vstack([b, [7.0, 7.0]]))
    assert diagram_distances(a, b) == pytest.approx(assigned, rel=1e-12, abs=1e-14)


@settings(max_examples=100)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.sampled_from([0.02, 0.2, 1.0]), st.booleans())
def test_diagram_distances_pair_in_order_only_where_optimal(n_bars, seed, change, tied):
    rng = np.random.default_rng(seed)
    a = rng.integers(1, 6, n_bars).astype(float) if tied else rng.gamma(3.0, 1.0, n_bars)
    a, b = np.sort(a), np.sort(a * np.exp(change * rng.standard_normal(n_bars)))
    in_order = distances._paired_in_order(a, b)
    assert in_order is None or in_order == pytest.approx(distances._aligned(a, b), rel=1e-12, abs=1e-14)
    if change == 0.02 and not tied:
        assert in_order is not None or a[0] < 0.2 * a[-1]


def test_diagram_distances_many_bars_of_one_birth_are_aligned():
    """One bar of the longer diagram has no partner; which one it is depends on the kind."""
    lengths = np.arange(1.0, 201.0)
    a = np.column_stack([np.zeros(200), lengths])
    b = np.column_stack([np.zeros(199), lengths[:-1]])
    assert diagram_distance(a, b, kind="wasserstein_1") == pytest.approx(100.0)  # the longest is left alone
    assert diagram_distance(a, b, kind="bottleneck") == pytest.approx(1.0)  # the shortest is: all others move by one


def test_diagram_distances_bars_above_and_below_one_birth_apart():
    a, b = np.array([[0.0, 2.0]]), np.array([[0.0, -2.0]])
    assert diagram_distances(a, b) == pytest.approx({"wasserstein_1": 2.0, "wasserstein_2": 2**0.5, "bottleneck": 1.0})


def test_diagram_distances_equals_brute_force_where_gudhi_errs():
    rng = np.random.default_rng(12)
    a, b = random_diagram(rng, 3), random_diagram(rng, 3)
    assert diagram_distance(a, b, kind="bottleneck") == brute_force(a, b, "bottleneck")


def test_diagram_distances_bottleneck_equals_persim():
    rng = np.random.default_rng(0)
    a, b = random_diagram(rng, 30), random_diagram(rng, 25)
    assert diagram_distance(a, b, kind="bottleneck") == pytest.approx(persim.bottleneck(a, b), rel=1e-12)


def test_diagram_distances_wasserstein_1_equals_persim():
    # All births equal and the bars close: points move along one axis only, where L2 and L-infinity are the
    # same.
    deaths = np.linspace(1.0, 2.0, 20)
    a = np.column_stack([np.zeros(20), deaths])
    b = np.column_stack([np.zeros(20), deaths + 0.01])
    assert diagram_distance(a, b, kind="wasserstein_1") == pytest.approx(0.2, rel=1e-12)
    assert diagram_distance(a, b, kind="wasserstein_1") == pytest.approx(persim.wasserstein(a, b), rel=1e-12)


def test_diagram_distances_by_hand():
    a, b = [[0.0, 4.0]], [[1.0, 4.0], [7.0, 8.0]]
    assert diagram_distance(a, b, kind="wasserstein_1") == 1.5
    assert diagram_distance(a, b, kind="wasserstein_2") == pytest.approx(math.sqrt(1.25), rel=1e-15)
    assert diagram_distance(a, b, kind="bottleneck") == 1.0
    empty = np.empty((0, 2))
    assert diagram_distance(a, empty, kind="wasserstein_1") == 2.0
    assert diagram_distance(empty, b, kind="bottleneck") == 1.5
    assert all(diagram_distance(empty, empty, kind=kind) == 0.0 for kind in KINDS)


def test_diagram_distances_descending_diagrams_measured_alike():
    rng = np.random.default_rng(1)
    a, b = random_diagram(rng, 12), random_diagram(rng, 9)
    for kind in KINDS:
        flipped = diagram_distance(-a, -b, kind=kind)
        assert flipped == diagram_distance(a, b, kind=kind)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS))
def test_diagram_distances_metric_properties(seed, kind):
    rng = np.random.default_rng(seed)
    a, b, c = (random_diagram(rng, int(rng.integers(0, 15))) for _ in range(3))
    there = diagram_distance(a, b, kind=kind)
    assert diagram_distance(a, a[::-1], kind=kind) == 0.0
    assert there == pytest.approx(diagram_distance(b, a, kind=kind), rel=1e-12)
    assert there <= diagram_distance(a, c, kind=kind) + diagram_distance(c, b, kind=kind) + 1e-12
    assert diagram_distance(3 * a, 3 * b, kind=kind) == pytest.approx(3 * there, rel=1e-12)


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_diagram_distances_wasserstein_2_of_extreme_scales(factor):
    rng = np.random.default_rng(2)
    a, b = random_diagram(rng, 12), random_diagram(rng, 9)
    expected = factor * diagram_distance(a, b, kind="wasserstein_2")
    assert diagram_distance(factor * a, factor * b, kind="wasserstein_2") == pytest.approx(expected, rel=1e-12)


def test_diagram_distances_bottleneck_stability_of_rips_diagrams():
    # Moving every point by at most e moves distances by at most 2e, and diagrams by no more (Chazal et al.
    # 2014).
    rng = np.random.default_rng(3)
    points = rng.standard_normal((40, 3))
    shift = rng.standard_normal((40, 3))
    shift *= 0.05 / np.linalg.norm(shift, axis=1, keepdims=True)
    for before, after in zip(rips_diagrams(points), rips_diagrams(points + shift), strict=True):
        assert 0.0 < diagram_distance(before, after, kind="bottleneck") <= 0.1 + 1e-12


def test_diagram_distances_bad_input_is_refused_by_name():
    good = [[0.0, 1.0]]
    with pytest.raises(ValueError, match=r"^a must have shape"):
        diagram_distance([1.0, 2.0, 3.0], good, kind="bottleneck")
    with pytest.raises(ValueError, match=r"^b must not hold NaN"):
        diagram_distance(good, [[0.0, math.nan]], kind="bottleneck")
    with pytest.raises(ValueError, match=r"^b must hold finite bars"):
        diagram_distance(good, [[0.0, math.inf]], kind="wasserstein_1")
    with pytest.raises(ValueError, match=r"^kinds must be a sequence of .*; got \['wasserstein'\]$"):
        diagram_distance(good, good, kind="wasserstein")
    with pytest.raises(ValueError, match=r"^kinds must be a sequence of .*; got 'bottleneck'$"):
        diagram_distances(good, good, kinds="bottleneck")
