"""The surrogate test: sign-flip p-values by counting, size on memory and drift, power, and what it
refuses."""

import itertools

import numpy as np
import pytest
import scipy.stats

from toposcale.statistics.prewhitening import MIN_FOR_TEST, prewhiten, residual_test, sign_flip_p_value, with_squares

REPETITIONS = 1000
# Three standard errors above 5% at 1,000 pairs is 7.07%; the promise is 8%.
PROMISE = 0.08


def autoregression(rng, n, memory):
    noise = rng.standard_normal((REPETITIONS, n + 30))
    for t in range(1, n + 30):
        noise[:, t] += memory * noise[:, t - 1]
    return noise[:, 30:]


def drifts(rng, n, kind):
    time = np.linspace(0, 1, n)
    noise = rng.standard_normal((REPETITIONS, n))
    size = np.exp(rng.uniform(np.log(0.003), np.log(0.3), (REPETITIONS, 1)))
    sign = rng.choice([-1.0, 1.0], (REPETITIONS, 1))
    rate = np.exp(rng.uniform(np.log(0.05), 0, (REPETITIONS, 1)))
    match kind:
        case "trend":
            return sign * time + size * noise
        case "random_walk":
            return np.cumsum(noise + sign * rng.uniform(0, 1, (REPETITIONS, 1)), axis=1)
        case "exponential":
            return sign * np.exp(-time / rate) + size * noise
        case "power_law":
            return sign * (np.arange(n) + 10 * rate) ** -0.5 + size * noise
        case "fading_noise":
            return sign * np.exp(-time / rate) + size * np.cos(1.5 * time) * noise


def rejected(x, y, controls=None):
    """Share of pairs (x_i, y_i) with p <= 0.05."""
    p_values = []
    for start in range(0, len(x), 20):
        rows = slice(start, start + 20)
        given = None if controls is None else controls
        p_values.append(np.diagonal(residual_test(x[rows], y[rows], given).p))
    return float((np.concatenate(p_values) <= 0.05).mean())


@pytest.mark.parametrize("n", [20, 51])
@pytest.mark.parametrize("memory", [0.0, 0.8, 0.95])
def test_unrelated_autoregressions_are_seldom_rejected(n, memory):
    rng = np.random.default_rng(1)
    assert rejected(autoregression(rng, n, memory), autoregression(rng, n, memory)) <= PROMISE


@pytest.mark.parametrize("n", [20, 51])
@pytest.mark.parametrize("kind", ["trend", "random_walk", "exponential", "power_law", "fading_noise"])
def test_independent_drifts_are_seldom_rejected(n, kind):
    rng = np.random.default_rng(2)
    x, y = drifts(rng, n, kind), drifts(rng, n, kind)
    assert rejected(x, y) <= PROMISE


def test_the_naive_test_does_reject_what_the_surrogates_do_not():
    rng = np.random.default_rng(3)
    x, y = drifts(rng, 51, "trend"), drifts(rng, 51, "trend")
    naive = [scipy.stats.spearmanr(a, b)[1] < 0.05 for a, b in zip(x[:100], y[:100], strict=True)]
    assert np.mean(naive) > 0.9


@pytest.mark.parametrize(("n", "least"), [(20, 0.6), (51, 0.95)])
def test_shared_fluctuations_are_found_under_opposite_drifts(n, least):
    rng = np.random.default_rng(4)
    shared = rng.standard_normal((REPETITIONS, n))
    # Correlation 0.8 of the fluctuations; the drifts are 30 times as large.
    x = 30 * np.linspace(0, 1, n) + shared + 0.5 * rng.standard_normal(shared.shape)
    y = -30 * np.sqrt(np.linspace(0, 1, n)) + shared + 0.5 * rng.standard_normal(shared.shape)
    assert rejected(x, y) >= least


def test_a_common_cause_vanishes_once_it_is_given():
    rng = np.random.default_rng(5)
    cause = np.cumsum(rng.standard_normal(51))
    x = cause + 0.5 * autoregression(rng, 51, 0.5)
    y = -2 * cause + 0.5 * autoregression(rng, 51, 0.5)
    assert rejected(x, y) > 0.9
    assert rejected(x, y, cause[None]) <= PROMISE
    beyond = 0.7 * rng.standard_normal((REPETITIONS, 51))
    assert rejected(x + beyond, y + beyond, cause[None]) > 0.5


@pytest.mark.parametrize(("n_terms", "quantiles"), [(14, (0.3, 0.8, 0.95, 0.99)), (18, (0.95, 0.99, 0.9995))])
def test_p_values_are_those_of_counting_all_sign_flips(n_terms, quantiles):
    rng = np.random.default_rng(6)
    # One sign is fixed: the other half of the surrogates has the same absolute sums.
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=n_terms - 1)))
    for _ in range(8):
        ranks = np.arange(n_terms) - (n_terms - 1) / 2
        weights = rng.permutation(ranks) * rng.permutation(ranks)
        sums = np.abs(weights[0] + signs @ weights[1:])
        for quantile in quantiles:
            statistic = np.quantile(sums, quantile)
            counted = (sums >= statistic - 1e-9).mean()
            # 20% is what the docstring promises.
            assert sign_flip_p_value(statistic, weights) == pytest.approx(counted, rel=0.2)


def test_a_weight_that_is_rounding_noise_is_none():
    """Products of several models may cancel at a checkpoint, and leave 1e-18 of a zero."""
    weights = np.array([4.0, 1.0, -29.0, 16.0, 25.5, 34.0, -14.0, 12.5, 30.0, -15.0, 7.0, 4.0])
    alone = sign_flip_p_value(weights.sum(), weights)
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=len(weights))))
    assert alone == pytest.approx((np.abs(signs @ weights) >= weights.sum() - 1e-9).mean(), rel=0.2)
    assert sign_flip_p_value(weights.sum(), np.append(weights, -3e-18)) == pytest.approx(alone)


def test_p_values_fall_from_one_to_the_smallest_possible():
    weights = np.ones(20)
    p_values = sign_flip_p_value(np.linspace(0, 20, 41), np.tile(weights, (41, 1)))
    assert p_values[0] == pytest.approx(1.0)
    assert (np.diff(p_values) <= 1e-9).all()
    assert p_values[-1] == 2.0**-19
    assert np.isnan(sign_flip_p_value(np.nan, weights))


def test_residuals_of_an_exact_recursion_are_nothing():
    exponential = 3.0 + 0.8 ** np.arange(40)
    line = np.linspace(2, 5, 40)
    found = prewhiten(np.vstack([exponential, line, np.full(40, 0.1)]))
    assert np.isnan(found.values).all()


def test_a_copy_of_the_control_says_nothing_beyond_it():
    rng = np.random.default_rng(7)
    control = np.cumsum(rng.standard_normal(40))
    result = residual_test(2 * control + 1, rng.standard_normal(40), control)
    assert np.isnan(result.p[0, 0])


def test_residual_test_given_a_norm_and_its_square():
    """A feature that is norm^1.3 but for a thousandth of noise, where the norm tells of the loss."""
    rng = np.random.default_rng(10)
    found = {"norm": 0, "norm and square": 0}
    for _ in range(200):
        norm = 10 + np.cumsum(0.5 + 0.5 * rng.standard_normal(41))
        loss = (0.02 * norm**2 + 0.2 * rng.standard_normal(41))[None]
        feature = (norm**1.3 * (1 + 0.001 * rng.standard_normal(41)))[None]
        found["norm"] += residual_test(feature, loss, norm[None]).p[0, 0] <= 0.05
        found["norm and square"] += residual_test(feature, loss, with_squares(norm[None])).p[0, 0] <= 0.05
    assert found["norm"] > 30
    assert found["norm and square"] <= 0.08 * 200


def test_prewhiten_recovers_the_noise_of_an_autoregression():
    rng = np.random.default_rng(8)
    n = 400
    noise = rng.standard_normal(n)
    series = np.zeros(n)
    for t in range(n):
        series[t] = 0.7 * series[t - 1] + noise[t] if t else noise[t]
    found = prewhiten(series + 0.05 * np.arange(n))
    # Estimating half a dozen coefficients from 400 points costs about 6 / 400 of the variance.
    assert np.corrcoef(found.values[0], noise[found.start :])[0, 1] > 0.98


def test_products_add_up_and_scale_does_not_matter():
    rng = np.random.default_rng(9)
    x, y = rng.standard_normal((3, 30)), rng.standard_normal((2, 30))
    result = residual_test(x, y)
    np.testing.assert_allclose(result.products.sum(axis=2), result.correlation, atol=1e-12)
    assert (np.abs(result.statistic) < np.abs(result.correlation)).all()
    again = residual_test(1e6 * x - 5, -y)
    np.testing.assert_allclose(again.correlation, -result.correlation, atol=1e-9)
    np.testing.assert_allclose(again.p, result.p, rtol=1e-6)


def test_too_few_points_are_an_error():
    with pytest.raises(ValueError, match="at least"):
        residual_test(np.zeros(MIN_FOR_TEST - 1), np.zeros(MIN_FOR_TEST - 1))


def test_series_of_other_lengths_are_an_error():
    series = np.random.default_rng(0).standard_normal(12)
    with pytest.raises(ValueError, match=r"^y: 10 points, but x has 12$"):
        residual_test(series, series[:10])
    # Three controls of 8 points have as many values as two of 12.
    with pytest.raises(ValueError, match=r"^controls: 8 points, but the series have 12$"):
        residual_test(series, series, np.ones((3, 8)))
