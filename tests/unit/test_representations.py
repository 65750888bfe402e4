"""Representation topology divergence: a case by hand, an independent program, and what must not change it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ripser import ripser

from toposcale.homology import representation_topology_divergence


def oracle(first, second):
    """The definition written out, with the ripser package (float32) for H1."""

    def scaled(points):
        distances = np.linalg.norm(points[:, None] - points[None], axis=2)
        return distances / np.quantile(distances, 0.9)

    def one_way(a, b):
        n = len(a)
        joined = np.zeros((2 * n, 2 * n))
        joined[:n, n:] = a
        joined[n:, :n] = a.T
        joined[n:, n:] = np.minimum(a, b)
        bars = ripser(joined, distance_matrix=True, maxdim=1)["dgms"][1]
        return (bars[:, 1] - bars[:, 0]).sum()

    a, b = scaled(first), scaled(second)
    return (one_way(a, b) + one_way(b, a)) / 2


def clouds(seed, n=14, d=3):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((n, d + 2))


def rotation(d, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]


def test_representation_topology_divergence_a_case_by_hand():
    # P: an equilateral triangle of side 1. Q: the same, its third point moved away to a distance of 2 from the others.
    # Of the 9 entries of r1 three are 0 and six are 1, so its 0.9 quantile is 1. Of those of r2, in order
    # 0 0 0 1 1 2 2 2 2, it is 2: r2 has 1/2 for the first two points and 1 else.
    triangle = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    isosceles = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3.75)]])
    # RTD(P, Q): at 1/2 Q joins its first two points, which are also joined through the first copy: a loop, until P joins
    # them at 1. RTD(Q, P): P joins nothing before Q does.
    assert representation_topology_divergence(triangle, isosceles) == pytest.approx(0.25, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_representation_topology_divergence_equals_a_reference(seed):
    first, second = clouds(seed)
    expected = oracle(first, second)
    assert expected > 0.1
    assert representation_topology_divergence(first, second) == pytest.approx(expected, rel=1e-5)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), factor=st.floats(1e-3, 1e3))
def test_representation_topology_divergence_is_invariant(seed, factor):
    first, second = clouds(seed)
    moved = factor * first @ rotation(3, seed) + 5.0
    assert representation_topology_divergence(first, moved) == pytest.approx(0.0, abs=1e-9)
    assert representation_topology_divergence(moved, second) == pytest.approx(
        representation_topology_divergence(first, second), abs=1e-9
    )


def test_representation_topology_divergence_of_equal_clouds():
    first, second = clouds(0)
    assert representation_topology_divergence(first, first) == 0.0
    assert representation_topology_divergence(first, second) == representation_topology_divergence(second, first)


def test_representation_topology_divergence_cluster_splits_seen():
    rng = np.random.default_rng(0)
    together = rng.standard_normal((20, 2))
    apart = together + 20.0 * (np.arange(20) % 2)[:, None]
    slightly = together + 0.01 * rng.standard_normal((20, 2))
    assert representation_topology_divergence(together, apart) > 10 * representation_topology_divergence(
        together, slightly
    )


def test_representation_topology_divergence_what_has_none():
    points, _ = clouds(0)
    with pytest.warns(RuntimeWarning, match="one point"):
        assert np.isnan(representation_topology_divergence(points, np.ones((len(points), 2))))
    with pytest.raises(ValueError, match="same rows, got 14 and 13"):
        representation_topology_divergence(points, points[1:])
    with pytest.raises(ValueError, match="finite"):
        representation_topology_divergence(points, points * np.nan)
