"""Spectral numbers on matrices whose spectrum is known, and the power-law fit against a plain loop."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toposcale.features import spectra
from toposcale.features.registry import weight_spectra
from toposcale.features.spectra import (
    MIN_EIGENVALUES,
    effective_rank,
    eigenspectrum_decay,
    nuclear_norm,
    participation_ratio,
    weight_eigenvalues,
)


def stable_rank(weight):
    return spectra.stable_rank(weight_eigenvalues(weight).values)


def powerlaw_alpha(weight):
    return spectra.powerlaw_alpha(weight_eigenvalues(weight).values)


def centred_cloud(singular_values, n_points=60, seed=0):
    """A matrix (n_points, d) with these singular values once its column means are taken off."""
    rng = np.random.default_rng(seed)
    n_values = len(singular_values)
    left = rng.standard_normal((n_points, n_values))
    left = np.linalg.qr(left - left.mean(axis=0))[0]
    right = np.linalg.qr(rng.standard_normal((n_values, n_values)))[0]
    return left * singular_values @ right.T + rng.standard_normal(n_values)


def test_effective_rank_equal_singular_values():
    cloud = centred_cloud(np.full(17, 2.5))
    assert effective_rank(cloud) == pytest.approx(17.0, rel=1e-12)
    assert participation_ratio(cloud) == pytest.approx(17.0, rel=1e-12)
    assert eigenspectrum_decay(cloud) == pytest.approx(0.0, abs=1e-12)


def test_effective_rank_known_spectrum_by_formula():
    values = np.array([5.0, 3.0, 1.0, 0.5])
    cloud = centred_cloud(values)
    shares = values / values.sum()
    assert effective_rank(cloud) == pytest.approx(math.exp(-np.sum(shares * np.log(shares))), rel=1e-12)
    assert participation_ratio(cloud) == pytest.approx((values**2).sum() ** 2 / (values**4).sum(), rel=1e-12)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.3])
def test_eigenspectrum_decay_decay_of_an_exact_power_law(alpha):
    eigenvalues = np.arange(1, 21) ** -alpha
    assert eigenspectrum_decay(centred_cloud(np.sqrt(eigenvalues))) == pytest.approx(alpha, rel=1e-9)


@pytest.mark.parametrize("function", [effective_rank, participation_ratio, eigenspectrum_decay])
def test_effective_rank_ignores_shift_scale_rotation_and_order(function):
    rng = np.random.default_rng(1)
    cloud = rng.standard_normal((40, 20)) * np.linspace(1, 3, 20)
    rotation = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    moved = 17.0 * cloud[rng.permutation(40)] @ rotation + 5.0
    assert function(moved) == pytest.approx(function(cloud), rel=1e-9)


def test_participation_ratio_of_deficient_rank():
    # Three points in general position span two directions after centring; the rest is rounding and must not
    # count.
    cloud = np.random.default_rng(2).standard_normal((3, 50))
    values = np.linalg.svd(cloud - cloud.mean(axis=0), compute_uv=False)[:2]
    assert participation_ratio(cloud) == pytest.approx((values**2).sum() ** 2 / (values**4).sum(), rel=1e-12)
    assert effective_rank(np.outer(np.arange(5.0), np.ones(4))) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("function", [effective_rank, participation_ratio, eigenspectrum_decay])
def test_effective_rank_identical_points_are_nan_with_a_warning(function):
    with pytest.warns(RuntimeWarning):
        assert math.isnan(function(np.full((10, 4), 0.1)))


def behind_a_layer_norm(dtype, n_points=100, width=24, seed=0, decay=1.5):
    """Points of float64 whose entries, divided by their gains, have the mean 0; and the same points stored in `dtype`."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n_points, width)) * np.arange(1, width + 1) ** -decay
    points = (points - points.mean(axis=1, keepdims=True)) / points.std(axis=1, keepdims=True)
    gains = rng.uniform(0.5, 2.0, width)
    return gains, (points * gains + 3 * rng.standard_normal(width)).astype(dtype)


def without_the_dead_dimension(stored, gains):
    """Decay by an SVD in float64 of the stored points in the plane across the direction that has nothing but rounding."""
    dead = (1 / gains) / np.linalg.norm(1 / gains)
    centred = stored.astype(np.float64) - stored.astype(np.float64).mean(axis=0)
    basis = np.linalg.svd(dead[None], full_matrices=True)[2][1:]
    values = np.linalg.svd(centred @ basis.T, compute_uv=False)
    return -2 * np.polyfit(np.log(np.arange(1, len(values) + 1)), np.log(values), 1)[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_points", "width"), [(30, 18), (100, 24), (100, 48), (1000, 96)])
def test_eigenspectrum_decay_drops_the_axis_of_a_layer_norm(dtype, n_points, width):
    gains, stored = behind_a_layer_norm(dtype, n_points, width)
    assert eigenspectrum_decay(stored) == pytest.approx(without_the_dead_dimension(stored, gains), rel=1e-6)
    exact = behind_a_layer_norm(np.float64, n_points, width)[1]
    assert eigenspectrum_decay(stored) == pytest.approx(eigenspectrum_decay(exact), rel=1e-4)


def test_eigenspectrum_decay_of_points_rounded_before():
    exact = behind_a_layer_norm(np.float64, decay=0.75)[1]
    rounded = exact.astype(ml_dtypes.bfloat16).astype(np.float32)
    told = eigenspectrum_decay(rounded, precision=float(ml_dtypes.finfo(ml_dtypes.bfloat16).eps))
    assert told == pytest.approx(eigenspectrum_decay(rounded.astype(ml_dtypes.bfloat16)), rel=1e-12)
    assert abs(told - eigenspectrum_decay(exact)) < abs(eigenspectrum_decay(rounded) - eigenspectrum_decay(exact))


def test_stable_rank():
    assert stable_rank(np.eye(6)) == pytest.approx(6.0, rel=1e-14)
    assert stable_rank(np.outer([1.0, 2.0], [3.0, 4.0, 5.0])) == pytest.approx(1.0, rel=1e-14)
    weight = np.random.default_rng(3).standard_normal((40, 70))
    expected = np.linalg.norm(weight) ** 2 / np.linalg.norm(weight, 2) ** 2
    assert stable_rank(weight) == pytest.approx(expected, rel=1e-12)
    with pytest.warns(RuntimeWarning, match="all-zero"):
        assert math.isnan(stable_rank(np.zeros((2, 3))))


def test_nuclear_norm_of_exact_small_cases():
    assert nuclear_norm(np.eye(6)) == pytest.approx(6.0, rel=1e-15)
    assert nuclear_norm(np.diag([3.0, -4.0])) == pytest.approx(7.0, rel=1e-15)
    # One singular value, the product of both lengths.
    assert nuclear_norm(np.outer([3.0, 4.0], [1.0, 2.0, 2.0])) == pytest.approx(15.0, rel=1e-14)
    assert nuclear_norm(np.zeros((2, 3))) == 0.0


@pytest.mark.parametrize("block", [3, 20, 2048])
@pytest.mark.parametrize("shape", [(50, 20), (20, 50), (61, 7), (1, 9)])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float64])
def test_singular_values_equal_numpy_where_matrix_read_in_blocks(monkeypatch, block, shape, dtype):
    monkeypatch.setattr(spectra, "_BLOCK_ROWS", block)
    weight = np.random.default_rng(10).standard_normal(shape).astype(dtype)
    expected = np.linalg.svd(weight.astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(spectra.singular_values(weight), expected, rtol=1e-13)
    assert nuclear_norm(weight) == pytest.approx(np.linalg.norm(weight.astype(np.float64), "nuc"), rel=1e-14)


def test_singular_values_keep_digits_of_small_ones():
    rng = np.random.default_rng(11)
    left, right = (np.linalg.qr(rng.standard_normal((12, 12)))[0] for _ in range(2))
    values = 10.0 ** -np.arange(12)
    np.testing.assert_allclose(spectra.singular_values(left * values @ right), values, rtol=0, atol=1e-15)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.floats(0, 14), st.integers(1, 40), st.integers(0, 30))
def test_weight_spectra_nuclear_norm_of_small_singular_values(seed, decades, rank, longer):
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((n, 40)))[0] for n in (40 + longer, 40))
    weight = left * np.where(np.arange(40) < rank, 10.0 ** -(decades * rng.random(40)), 0.0) @ right
    expected = np.linalg.svd(weight, compute_uv=False).sum()
    assert weight_spectra(weight)["nuclear_norm"] == pytest.approx(expected, rel=1e-9)


def test_weight_spectra_avoid_singular_values_where_exact(monkeypatch):
    monkeypatch.setattr(spectra, "nuclear_norm", lambda weight: -1.0)
    weight = np.random.default_rng(12).standard_normal((90, 60))
    assert weight_spectra(weight)["nuclear_norm"] > 0
    for nearly_singular in (weight[:, :1] @ weight[:1] + 1e-7 * weight, weight * (np.arange(60) > 0)):
        assert weight_spectra(nearly_singular)["nuclear_norm"] == -1.0


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6))
def test_nuclear_norm_nuclear_norm_follows_scale_and_no_rotation(seed, factor):
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((9, 5))
    rotation = np.linalg.qr(rng.standard_normal((9, 9)))[0]
    assert nuclear_norm(-factor * rotation @ weight) == pytest.approx(factor * nuclear_norm(weight), rel=1e-12)
    assert nuclear_norm(weight.T) == pytest.approx(nuclear_norm(weight), rel=1e-14)
    frobenius = np.linalg.norm(weight)
    assert frobenius <= nuclear_norm(weight) <= np.sqrt(5) * frobenius


@pytest.mark.parametrize("factor", [1e-300, 1e-30, 1e30, 1e300])
def test_stable_rank_weight_spectra_do_not_depend_on_scale(factor):
    weight = np.random.default_rng(4).standard_normal((20, 30))
    assert stable_rank(factor * weight) == pytest.approx(stable_rank(weight), rel=1e-12)
    assert powerlaw_alpha(factor * weight) == pytest.approx(powerlaw_alpha(weight), rel=1e-9)


@pytest.mark.parametrize("block", [1, 100, 1 << 20])
@pytest.mark.parametrize("shape", [(50, 20), (20, 50)])
def test_weight_eigenvalues_eigenvalues_squared_singular_values(monkeypatch, block, shape):
    monkeypatch.setattr(spectra, "_BLOCK_ENTRIES", block)
    weight = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    singular = np.linalg.svd(weight.astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(weight_eigenvalues(weight).values, (singular / np.abs(weight).max()) ** 2, rtol=1e-11)
    assert len(weight_eigenvalues(np.outer(weight[0], weight[:, 0])).values) == 1


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_effective_rank_arithmetic_is_float64_whatever_the_input(dtype):
    weight = (300 * np.random.default_rng(6).standard_normal((30, 20))).astype(dtype)
    for function in (effective_rank, participation_ratio, eigenspectrum_decay, stable_rank, powerlaw_alpha):
        assert function(weight) == function(weight.astype(np.float64))


def plain_fit(eigenvalues):
    """The fit of the docstring, one candidate and one eigenvalue at a time."""
    values = sorted(eigenvalues)
    best = (math.inf, math.nan)
    for x_min in sorted(set(values))[:-1]:
        tail = [value for value in values if value >= x_min]
        alpha = 1 + len(tail) / sum(math.log(value / x_min) for value in tail)
        distance = 0.0
        for index, value in enumerate(tail):
            fitted = 1 - (value / x_min) ** (1 - alpha)
            distance = max(distance, (index + 1) / len(tail) - fitted, fitted - index / len(tail))
        best = min(best, (distance, alpha))
    return best[1]


@settings(max_examples=50)
@given(st.integers(MIN_EIGENVALUES, 40), st.integers(0, 2**32 - 1))
def test_powerlaw_alpha_powerlaw_fit_equals_a_plain_loop(n_values, seed):
    eigenvalues = np.random.default_rng(seed).exponential(1.0, n_values) ** 2
    assert spectra.powerlaw_alpha(eigenvalues) == pytest.approx(plain_fit(eigenvalues), rel=1e-9)


def test_powerlaw_alpha_recovers_a_planted_exponent():
    rng = np.random.default_rng(7)
    tail = 5.0 * (1.0 - rng.random(2000)) ** (-1 / 1.5)  # density ~ x^-2.5 from 5 on
    body = rng.uniform(0.5, 5.0, 1000)
    # Standard error of the estimate: (alpha - 1) / sqrt(2000) = 0.034; four of them.
    assert spectra.powerlaw_alpha(np.concatenate([body, tail])) == pytest.approx(2.5, abs=0.135)


def test_powerlaw_alpha_powerlaw_fit_in_blocks_and_with_ties(monkeypatch):
    eigenvalues = np.random.default_rng(8).integers(1, 30, 200).astype(float)
    whole = spectra.powerlaw_alpha(eigenvalues)
    assert whole == pytest.approx(plain_fit(eigenvalues), rel=1e-9)
    monkeypatch.setattr(spectra, "_BLOCK_ENTRIES", 1)
    assert spectra.powerlaw_alpha(eigenvalues) == whole


def test_powerlaw_alpha_needs_16_eigenvalues():
    values = 2.0 ** -np.arange(MIN_EIGENVALUES)
    assert 1 < spectra.powerlaw_alpha(values) < 10
    assert eigenspectrum_decay(centred_cloud(values)) > 0
    for few in (values[:-1], values[:2], values[:0]):
        assert math.isnan(spectra.powerlaw_alpha(few))
    assert math.isnan(eigenspectrum_decay(centred_cloud(values[:-1])))


def test_powerlaw_alpha_of_equal_eigenvalues_warns():
    with pytest.warns(RuntimeWarning, match="at least two different eigenvalues") as caught:
        assert math.isnan(powerlaw_alpha(np.eye(20)))
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (effective_rank, "points"),
        (participation_ratio, "points"),
        (eigenspectrum_decay, "points"),
        (stable_rank, "weight"),
        (nuclear_norm, "weight"),
        (powerlaw_alpha, "weight"),
    ],
)
@pytest.mark.parametrize("bad", [np.ones(3), np.empty((0, 2)), [[math.nan, 1.0]], [[0.0, -math.inf]]])
def test_effective_rank_bad_input_is_refused_by_name(function, name, bad):
    with pytest.raises(ValueError, match=f"^{name} must"):
        function(bad)
