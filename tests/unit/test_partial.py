"""Partial correlations against residuals of a regression."""

import numpy as np
import pytest

from toposcale.statistics.correlation import pearson
from toposcale.statistics.partial import partial_correlation


def residual(target, *given):
    design = np.column_stack([np.ones(len(target)), *given])
    return target - design @ np.linalg.lstsq(design, target, rcond=None)[0]


def given(x, y, *controls):
    x, y, z = np.atleast_2d(x), np.atleast_2d(y), np.vstack(controls)
    return partial_correlation(pearson(x, y), pearson(x, z), pearson(y, z), pearson(z, z))[0, 0]


@pytest.mark.parametrize("n_controls", [1, 2, 3])
def test_partial_correlation_is_the_correlation_of_residuals(n_controls):
    rng = np.random.default_rng(0)
    z = rng.standard_normal((n_controls, 40))
    x, y = (
        z.sum(axis=0) + rng.standard_normal(40),
        z.T @ np.arange(1, n_controls + 1) + rng.standard_normal(40),
    )
    # 1e-10: the regression solves a system of condition number about 10 in float64.
    expected = pearson(residual(x, *z), residual(y, *z))[0, 0]
    assert given(x, y, *z) == pytest.approx(expected, abs=1e-10)


def test_textbook_value():
    value = partial_correlation(*(np.array([[r]]) for r in (0.7, 0.6, 0.5, 1.0)))
    assert value == pytest.approx(0.4 / np.sqrt(0.64 * 0.75))


def test_a_copy_of_a_control_leaves_nothing():
    rng = np.random.default_rng(1)
    z, y = rng.standard_normal((2, 20))
    assert np.isnan(given(z, y, z))
    assert np.isnan(given(y, -z, rng.standard_normal(20), z))


def test_controls_that_are_copies_count_as_one_and_a_constant_one_leaves_nothing():
    rng = np.random.default_rng(2)
    x, y, z = rng.standard_normal((3, 30))
    assert given(x, y, z, -z) == pytest.approx(given(x, y, z))
    assert np.isnan(given(x, y, z, np.ones(30)))


def test_shapes_broadcast():
    rng = np.random.default_rng(3)
    x, y, z = rng.standard_normal((3, 12)), rng.standard_normal((4, 12)), rng.standard_normal((2, 12))
    parts = [pearson(x, y), pearson(x, z), pearson(y, z), pearson(z, z)]
    stacked = partial_correlation(*(np.stack([part] * 5) for part in parts))
    assert stacked.shape == (5, 3, 4)
    np.testing.assert_allclose(stacked[2], partial_correlation(*parts))
