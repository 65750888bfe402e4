"""The fourth study looked at afterwards: mixtures, modes, pooling, equivalence and surrogates with row norms, planted."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from studies.study4.afterwards import FINAL_LOSS, mode_table, pooled, two_gaussians
from studies.study4.power import Effects, simulated
from studies.study4.questions import BEYOND_NUCLEAR, LOW_RATE
from studies.study4.row_norms import score, surrogate_with_row_norms
from toposcale import homology


def test_two_planted_modes_are_found():
    rng = np.random.default_rng(1)
    mixture = two_gaussians(np.concatenate([rng.normal(2.97, 0.02, 400), rng.normal(2.87, 0.01, 600)]))
    assert mixture.is_bimodal
    # Standard errors of the means are .001 and .0004, of the deviations .0007 and .0003, of a weight .015.
    assert mixture.means == pytest.approx([2.87, 2.97], abs=0.004)
    assert mixture.deviations == pytest.approx([0.01, 0.02], abs=0.003)
    assert mixture.weights == pytest.approx([0.6, 0.4], abs=0.06)
    assert (mixture.high[:400] > 0.5).mean() > 0.99
    assert (mixture.high[400:] < 0.5).mean() > 0.99


def test_the_mixture_is_a_maximum_of_the_likelihood():
    values = np.concatenate([np.random.default_rng(2).normal(0, 1, 80), np.random.default_rng(3).normal(3, 0.5, 40)])
    mixture = two_gaussians(values)

    def negative(theta):
        weight = 1 / (1 + np.exp(-theta[0]))
        parts = [norm.pdf(values, theta[1 + i], np.exp(theta[3 + i])) for i in range(2)]
        return -np.log((1 - weight) * parts[0] + weight * parts[1]).sum()

    odds = np.log(mixture.weights[1] / mixture.weights[0])
    best = minimize(negative, [odds, *mixture.means, *np.log(mixture.deviations)])
    single = norm.logpdf(values, values.mean(), values.std()).sum()
    assert mixture.bic_difference == pytest.approx(2 * (-best.fun - single) - 3 * np.log(120), abs=1e-3)


def test_one_gaussian_and_a_skewed_distribution_are_not_called_bimodal():
    rng = np.random.default_rng(4)
    assert two_gaussians(rng.normal(size=1000)).bic_difference < 0
    skewed = two_gaussians(rng.gumbel(size=1000))
    assert skewed.bic_difference > 10
    assert not skewed.is_bimodal


def test_a_feature_that_goes_with_the_mode_alone_has_no_correlation_within_the_modes():
    models = simulated({LOW_RATE: Effects()}, np.random.default_rng(5), runs=1000)
    models = models[models["configuration"] == models["configuration"].iloc[0]].copy()
    rng = np.random.default_rng(6)
    high = rng.random(1000) < 0.4
    models[FINAL_LOSS] = np.where(high, 2.97, 2.87) + rng.normal(0, 0.01, 1000)
    models["h0_mean"] += np.where(high, 0.5, 0.0)
    table = mode_table(models, [BEYOND_NUCLEAR]).set_index("mode")
    assert table.loc["which mode", "low"] > 0.1
    for mode, runs in (("low", (~high).sum()), ("high", high.sum())):
        assert table.loc[mode, "low"] < 0 < table.loc[mode, "high"]
        assert table.loc[mode, "n_models"] == runs


def test_equal_correlations_have_no_heterogeneity():
    row = pooled([0.1, 0.1, 0.1, 0.1], [100, 200, 100, 300], margin=0.2)
    assert row["q"] == pytest.approx(0, abs=1e-20)
    assert row["tau"] == 0
    assert row["estimate"] == pytest.approx(0.1)
    assert row["p_equivalent"] == pytest.approx(norm.sf((np.arctanh(0.2) - np.arctanh(0.1)) * np.sqrt(700)))
    assert row["low"] < 0.1 < row["high"]


def test_pooling_by_hand():
    z = np.array([-0.2, 0.2])
    row = pooled(np.tanh(z), [100, 100], margin=0.1)
    # Q = 100 (.04 + .04) = 8; tau^2 = (8 - 1) / (200 - 100) = .07; variance of the mean (.01 + .07) / 2.
    assert row["q"] == pytest.approx(8)
    assert row["tau"] ** 2 == pytest.approx(0.07)
    assert row["high"] == pytest.approx(np.tanh(12.7062 * 0.2), rel=1e-4)
    # One correlation for both would be equivalent to 0, which two that differ so much are not.
    assert row["p_equivalent"] == pytest.approx(norm.sf(np.arctanh(0.1) * np.sqrt(200)))
    assert row["p_equivalent_random"] > 0.3


def uneven_rows(seed, shape=(100, 8)):
    """Return normal rows, some of which are much longer than others."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) * np.exp(0.4 * rng.normal(size=(shape[0], 1)))


@pytest.mark.parametrize("shape", [(60, 8), (8, 8), (8, 30)])
def test_a_surrogate_keeps_spectrum_right_vectors_and_row_norms(shape):
    weight = uneven_rows(7, shape)
    one, other = (surrogate_with_row_norms(weight, seed=(seed,)) for seed in (1, 2))
    np.testing.assert_allclose(one.T @ one, weight.T @ weight, atol=1e-10 * np.square(weight).sum())
    lengths = np.linalg.norm(weight, axis=1)
    np.testing.assert_allclose(np.linalg.norm(one, axis=1), lengths, rtol=1e-10)
    for different in (weight, other):
        assert np.abs(one - different).max() > 0.1
    np.testing.assert_array_equal(one, surrogate_with_row_norms(weight, seed=(1,)))


def test_uneven_row_norms_alone_look_like_topology_to_surrogates_of_the_spectrum():
    weights = [uneven_rows(seed) for seed in range(8)]
    of_spectrum, of_norms = (
        np.array([score(weight, surrogate, seed=(1,)) for weight in weights])
        for surrogate in (homology.spectrum_surrogate, surrogate_with_row_norms)
    )
    assert of_spectrum.mean() < -2
    # Rows in random directions have the distribution of these surrogates: a mean of 8 scores has a standard error of .37.
    assert abs(of_norms.mean()) < 1.2


def test_clusters_of_rows_of_one_length_are_seen_by_both_surrogates():
    rng = np.random.default_rng(9)
    clusters = np.repeat(rng.normal(size=(12, 8)), 5, axis=0) + 0.05 * rng.normal(size=(60, 8))
    clusters /= np.linalg.norm(clusters, axis=1, keepdims=True)
    for surrogate in (homology.spectrum_surrogate, surrogate_with_row_norms):
        assert score(clusters, surrogate, seed=(1,)) < -4


def test_h0_does_not_see_right_rotations_but_sees_left_ones():
    weight = uneven_rows(10)
    right, left = (np.linalg.qr(np.random.default_rng(11).normal(size=(size, size)))[0] for size in (8, 100))
    expected = homology.h0_lifetimes(weight)
    np.testing.assert_allclose(np.sort(homology.h0_lifetimes(weight @ right)), np.sort(expected), rtol=1e-10)
    assert abs(homology.h0_lifetimes(left @ weight).sum() / expected.sum() - 1) > 0.03
