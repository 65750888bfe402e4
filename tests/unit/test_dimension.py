"""Persistent-homology dimension of clouds whose dimension is known, its reproducibility and its refusals."""

import math
import warnings

import numpy as np
import pytest

from toposcale.homology import persistent_homology_dimension


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_persistent_homology_dimension_of_an_embedded_cube(dimension):
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((10, dimension)))[0]
    points = rng.random((1000, dimension)) @ basis.T
    mean, deviation = persistent_homology_dimension(points, sizes=[100, 200, 400, 800], repeats=10, seed=1)
    # Edge effects of the cube bias samples this small by some tenths in dimension 3; neighbours stay a unit
    # apart.
    assert mean == pytest.approx(dimension, abs=0.35)
    assert 0.0 < deviation < 0.5


def test_persistent_homology_dimension_is_invariant():
    rng = np.random.default_rng(1)
    points = rng.standard_normal((120, 3))
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    first = persistent_homology_dimension(points, seed=5)
    assert persistent_homology_dimension(points, seed=5) == first
    assert persistent_homology_dimension(points, seed=6) != first
    assert persistent_homology_dimension(7 * points @ rotation, seed=5) == pytest.approx(first, rel=1e-9)


def test_persistent_homology_dimension_slope_by_hand():
    # Points at 0, 1, 3: all three have E = 3, and two of them E = 1, 2 or 3. E(2) = 3 is slope 0, dimension
    # 1; E(2) = 2 is # slope 1 and E(2) = 1 a steeper one, which have no dimension.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [
            persistent_homology_dimension([[0.0], [1.0], [3.0]], sizes=[2, 3], repeats=1, seed=seed)[0]
            for seed in range(20)
        ]
    defined = [value for value in results if math.isfinite(value)]
    assert 0 < len(defined) < 20
    assert defined == pytest.approx([1.0] * len(defined), rel=1e-12)


def test_persistent_homology_dimension_nan_with_a_warning():
    with pytest.warns(RuntimeWarning, match="3 of 3 subsamplings"):
        assert all(map(math.isnan, persistent_homology_dimension(np.ones((50, 2)), repeats=3)))
    # All points at one distance: E grows as size - 1, faster than size.
    with pytest.warns(RuntimeWarning, match="3 of 3 subsamplings"):
        assert all(map(math.isnan, persistent_homology_dimension(np.eye(50), repeats=3)))


def test_persistent_homology_dimension_one_repeat_no_deviation():
    mean, deviation = persistent_homology_dimension(np.random.default_rng(2).standard_normal((60, 2)), repeats=1)
    assert math.isfinite(mean)
    assert math.isnan(deviation)


def test_persistent_homology_dimension_bad_input_refused_by_name():
    points = np.random.default_rng(3).standard_normal((20, 2))
    for sizes in ([5], [5, 5], [1, 5], [5, 21]):
        with pytest.raises(ValueError, match=r"^sizes must"):
            persistent_homology_dimension(points, sizes=sizes)
    with pytest.raises(ValueError, match=r"^points must have 10 or more rows if no sizes are given, got 9$"):
        persistent_homology_dimension(points[:9])
    assert persistent_homology_dimension(points[:10], repeats=1)[0] > 0
    with pytest.raises(ValueError, match=r"^repeats must"):
        persistent_homology_dimension(points, repeats=0)
    with pytest.raises(ValueError, match=r"^points must"):
        persistent_homology_dimension([[math.nan]])
