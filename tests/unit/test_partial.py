"""Closed forms of partial correlation against residuals of a regression."""

import numpy as np
import pytest

from toposcale.statistics.correlation import pearson
from toposcale.statistics.partial import partial_correlation, partial_correlation_given_two


def residual(target, *given):
    design = np.column_stack([np.ones(len(target)), *given])
    return target - design @ np.linalg.lstsq(design, target, rcond=None)[0]


def r(x, y):
    return pearson(x, y)[0, 0]


def test_partial_correlation_is_the_correlation_of_residuals():
    rng = np.random.default_rng(0)
    z, w = rng.standard_normal((2, 40))
    x, y = z - 0.5 * w + rng.standard_normal(40), 2 * z + w + rng.standard_normal(40)
    # 1e-10: the regression solves a system of condition number about 10 in float64.
    assert partial_correlation(r(x, y), r(x, z), r(y, z)) == pytest.approx(
        r(residual(x, z), residual(y, z)), abs=1e-10
    )
    given_two = partial_correlation_given_two(r(x, y), r(x, z), r(y, z), r(x, w), r(y, w), r(z, w))
    assert given_two == pytest.approx(r(residual(x, z, w), residual(y, z, w)), abs=1e-10)


def test_textbook_value():
    assert partial_correlation(0.7, 0.6, 0.5) == pytest.approx(0.4 / np.sqrt(0.64 * 0.75))


def test_a_copy_of_the_control_leaves_nothing():
    assert np.isnan(partial_correlation(0.8, 1.0, 0.8))
    assert np.isnan(partial_correlation(0.8, 0.8, -1.0))


def test_two_controls_that_are_copies_count_as_one():
    one = partial_correlation(0.7, 0.6, 0.5)
    assert partial_correlation_given_two(0.7, 0.6, 0.5, -0.6, -0.5, -1.0) == pytest.approx(one)


def test_shapes_broadcast():
    xy = np.full((3, 2), 0.5)
    assert partial_correlation(xy, np.full((3, 1), 0.2), np.full((1, 2), 0.1)).shape == (3, 2)
