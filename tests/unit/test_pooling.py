"""Random effects by hand, with equal studies, and by their coverage."""

import numpy as np
import pytest
import scipy.stats

from toposcale.statistics.pooling import pooled_correlation, random_effects


def test_by_hand():
    # Weights 1, 1, 1: mean 2, Q = 2, C = 3 - 1 = 2, tau^2 = (2 - 2) / 2 = 0; standard error 1 / sqrt 3, not
    # inflated.
    pooled = random_effects([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    half = scipy.stats.t.ppf(0.975, 2) / np.sqrt(3)
    assert (pooled.estimate, pooled.low, pooled.high) == pytest.approx((2.0, 2 - half, 2 + half))
    assert pooled.i_squared == 0.0
    # Spread to 0, 2, 4: Q = 8, tau^2 = 3, variances 4 each; I^2 = 1 - 2 / 8.
    pooled = random_effects([0.0, 2.0, 4.0], [1.0, 1.0, 1.0])
    half = scipy.stats.t.ppf(0.975, 2) * np.sqrt(4 / 3)
    assert (pooled.estimate, pooled.low, pooled.high) == pytest.approx((2.0, 2 - half, 2 + half))
    assert pooled.i_squared == pytest.approx(0.75)
    assert pooled.p_value == pytest.approx(2 * scipy.stats.t.sf(2 / np.sqrt(4 / 3), 2))


def test_missing_studies_are_counted_and_nothing_gives_nothing():
    pooled = random_effects([[1.0, np.nan], [np.nan, np.nan]], np.ones((2, 2)))
    np.testing.assert_array_equal(pooled.n_studies, [1, 0])
    assert (pooled.low[0], pooled.high[0]) == pytest.approx((1 - 1.959964, 1 + 1.959964), abs=1e-5)
    assert np.isnan(pooled.i_squared[0])
    assert np.isnan(pooled.estimate[1])
    assert np.isnan(pooled.p_value[1])
    with pytest.raises(ValueError, match="variances"):
        random_effects([1.0, 2.0], [1.0, 0.0])


def test_correlations_go_through_fishers_z():
    pooled = pooled_correlation([0.5, 0.5, 0.5], [23.0, 23.0, 23.0])
    half = scipy.stats.t.ppf(0.975, 2) / np.sqrt(60)
    assert pooled.estimate == pytest.approx(0.5)
    assert pooled.low == pytest.approx(np.tanh(np.arctanh(0.5) - half))
    assert np.isfinite(pooled_correlation([1.0, 1.0], [50.0, 50.0]).low)


@pytest.mark.parametrize("between", [0.0, 0.3])
def test_intervals_cover_the_mean_at_the_stated_rate(between):
    rng = np.random.default_rng(0)
    draws = 2000
    variances = rng.uniform(0.02, 0.1, (draws, 5))
    truth = 0.4 + between * rng.standard_normal((draws, 5))
    pooled = random_effects(truth + np.sqrt(variances) * rng.standard_normal((draws, 5)), variances)
    covered = ((pooled.low <= 0.4) & (pooled.high >= 0.4)).mean()
    # At least 95% less three binomial standard errors (1.5%); wider is the price of the floor without
    # heterogeneity.
    assert covered >= 0.935
