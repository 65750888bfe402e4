"""Correlations against scipy, p-values under independence, partial correlations against residuals, effective sizes."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from toposcale.statistics.coefficients import (
    average_ranks,
    correlation_p_value,
    orthogonal_to,
    partial_correlation,
    pearson,
    permutation_p_value,
    spearman,
)


def test_every_pair_agrees_with_scipy():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((4, 23)), rng.integers(0, 5, (3, 23)).astype(float)
    for i in range(4):
        for j in range(3):
            # 1e-12: both sum 23 float64 products, in different orders.
            assert spearman(x, y)[i, j] == pytest.approx(scipy.stats.spearmanr(x[i], y[j])[0], abs=1e-12)
            assert pearson(x, y)[i, j] == pytest.approx(scipy.stats.pearsonr(x[i], y[j])[0], abs=1e-12)


def test_naive_p_values_are_those_of_scipy():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 17))
    expected = scipy.stats.pearsonr(x, y)
    assert correlation_p_value(expected[0], 17) == pytest.approx(expected[1], rel=1e-10)
    assert correlation_p_value(1.0, 17) == pytest.approx(2 / math.factorial(17))
    assert np.isnan(correlation_p_value(0.3, 2))


def test_p_values_of_few_points_are_counted():
    """scipy counts the same permutations; four points in order have 2 / 24, and not 0."""
    assert permutation_p_value(np.arange(4.0), [1.0, 2.0, 4.0, 8.0]) < permutation_p_value(np.arange(4.0), [1, 2, 4, 3])
    assert permutation_p_value(average_ranks(np.arange(4.0)[None]), np.arange(4.0)[None])[0, 0] == pytest.approx(1 / 12)
    rng = np.random.default_rng(4)
    x, y = average_ranks(rng.integers(0, 4, (3, 6)) * 1.0), average_ranks(rng.standard_normal((2, 6)))
    found = permutation_p_value(x, y)
    for i in range(3):
        for j in range(2):
            counted = scipy.stats.permutation_test(
                (y[j],), lambda values, i=i: abs(np.corrcoef(x[i], values)[0, 1]),
                permutation_type="pairings", alternative="greater", n_resamples=10_000,
            )  # fmt: skip
            assert found[i, j] == pytest.approx(counted.pvalue)
    assert np.isnan(permutation_p_value(np.ones(5), np.arange(5.0)))


def test_ties_are_averaged():
    np.testing.assert_array_equal(average_ranks(np.array([[3.0, 1.0, 3.0, 2.0]])), [[3.5, 1.0, 3.5, 2.0]])


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e300, -1e-300])
def test_a_constant_series_has_no_correlation(constant):
    x = np.vstack([np.full(9, constant), np.arange(9.0)])
    result = pearson(x, np.arange(9.0))
    assert np.isnan(result[0, 0])
    assert result[1, 0] == pytest.approx(1.0)


@given(st.integers(0, 2**32 - 1), st.floats(1e-200, 1e200), st.floats(-3, 3))
@settings(max_examples=40)
def test_pearson_and_spearman_ignore_what_they_may(seed, scale, shift):
    x, y = np.random.default_rng(seed).standard_normal((2, 12))
    assert pearson((x + shift) * scale, y)[0, 0] == pytest.approx(pearson(x, y)[0, 0], abs=1e-9)
    assert spearman(np.exp(x), y)[0, 0] == spearman(x, y)[0, 0]


@pytest.mark.parametrize("bad", [[np.nan, 1.0, 2.0], [np.inf, 1.0, 2.0], np.zeros((2, 2, 2)), []])
def test_bad_input_names_the_argument(bad):
    with pytest.raises(ValueError, match="x:"):
        pearson(bad, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="y: 3 points"):
        pearson([1.0, 2.0], [1.0, 2.0, 3.0])


def residual(target, *controls):
    design = np.column_stack([np.ones(len(target)), *controls])
    return target - design @ np.linalg.lstsq(design, target, rcond=None)[0]


def partial(x, y, *controls):
    x, y, z = np.atleast_2d(x), np.atleast_2d(y), np.vstack(controls)
    return partial_correlation(pearson(x, y), pearson(x, z), pearson(y, z), pearson(z, z))[0, 0]


@pytest.mark.parametrize("n_controls", [1, 2, 3])
def test_partial_correlation_is_the_correlation_of_residuals(n_controls):
    rng = np.random.default_rng(0)
    z = rng.standard_normal((n_controls, 40))
    x, y = (z.sum(axis=0) + rng.standard_normal(40), z.T @ np.arange(1, n_controls + 1) + rng.standard_normal(40))
    # 1e-10: the regression solves a system of condition number about 10 in float64.
    expected = pearson(residual(x, *z), residual(y, *z))[0, 0]
    assert partial(x, y, *z) == pytest.approx(expected, abs=1e-10)


def test_textbook_value():
    value = partial_correlation(*(np.array([[r]]) for r in (0.7, 0.6, 0.5, 1.0)))
    assert value == pytest.approx(0.4 / np.sqrt(0.64 * 0.75))


def test_a_copy_of_a_control_leaves_nothing():
    rng = np.random.default_rng(1)
    z, y = rng.standard_normal((2, 20))
    assert np.isnan(partial(z, y, z))
    assert np.isnan(partial(y, -z, rng.standard_normal(20), z))


def test_partial_correlation_of_copied_controls():
    rng = np.random.default_rng(2)
    x, y, z = rng.standard_normal((3, 30))
    assert partial(x, y, z, -z) == pytest.approx(partial(x, y, z))
    assert np.isnan(partial(x, y, z, np.ones(30)))


def test_shapes_broadcast():
    rng = np.random.default_rng(3)
    x, y, z = rng.standard_normal((3, 12)), rng.standard_normal((4, 12)), rng.standard_normal((2, 12))
    parts = [pearson(x, y), pearson(x, z), pearson(y, z), pearson(z, z)]
    stacked = partial_correlation(*(np.stack([part] * 5) for part in parts))
    assert stacked.shape == (5, 3, 4)
    np.testing.assert_allclose(stacked[2], partial_correlation(*parts))


def test_what_is_left_beside_a_design_whatever_its_units():
    """A control in units a billionth of the others' is taken out too, one that the others span counts once, and a row
    that the design spans leaves exact zeros."""
    rng = np.random.default_rng(4)
    rows, design = rng.standard_normal((3, 20)), rng.standard_normal((3, 20))
    rows[2] = design[0] - 2 * design[1]
    scaled = np.vstack([design[0], 1e-12 * design[1], 1e6 * design[2], design[0] + design[2], np.zeros(20)])
    rest, rank = orthogonal_to(rows, scaled)
    expected = rows - (design.T @ np.linalg.lstsq(design.T, rows.T, rcond=None)[0]).T
    np.testing.assert_allclose(rest[:2], expected[:2], atol=1e-10)
    assert rank == 3
    assert not rest[2].any()
