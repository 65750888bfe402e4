"""The model discrepancy: for a law that is linear, everything is a Gaussian and is known exactly."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from toposcale.forecasting.laws import priors
from toposcale.forecasting.laws.discrepancy import Points, covariance, fit
from toposcale.forecasting.laws.priors import Gaussian

NOW = 0.005
LOG_SIZE = Gaussian(float(np.log(NOW)), 1.0)
PRIOR = Gaussian(CENTRE := np.array([1.0, 0.2]), WIDTH := np.array([0.3, 0.5]))


def points(time, size=0.0, run=0):
    time = np.asarray(time, dtype=float)
    return Points(time, np.full(len(time), size), np.full(len(time), run))


def line(at):
    """L = x0 + x1 t, which is linear in its parameters."""
    design = np.column_stack([np.ones(len(at)), at])
    return lambda x: (design @ x, design)


SEEN = points(np.linspace(-3, 0, 9))
NOISE = np.full(9, 0.002)


def planted(seed=0):
    rng = np.random.default_rng(seed)
    matrix = covariance(SEEN, SEEN, NOW) + np.diag(NOISE**2)
    return line(SEEN.time)(np.array([1.1, 0.1]))[0] + rng.multivariate_normal(np.zeros(9), matrix)


def test_a_forecast_is_that_of_exact_gaussian_conditioning():
    seen, ahead = planted(), points([0.7, 1.5])
    found, now = fit(line(SEEN.time), seen, SEEN, NOISE, PRIOR, LOG_SIZE)
    losses, spread = found.forecast(
        *line(ahead.time)(found.x), covariance(ahead, SEEN, now), covariance(ahead, ahead, now)
    )
    both = Points(*(np.concatenate(pair) for pair in zip(SEEN, ahead, strict=True)))
    design = line(both.time)(CENTRE)[1]
    joint = design @ np.diag(WIDTH**2) @ design.T + covariance(both, both, now)
    joint[:9, :9] += np.diag(NOISE**2)
    weights = np.linalg.solve(joint[:9, :9], joint[:9, 9:]).T
    expected = (design @ CENTRE)[9:] + weights @ (seen - (design @ CENTRE)[:9])
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    np.testing.assert_allclose(spread, joint[9:, 9:] - weights @ joint[:9, 9:], rtol=1e-7, atol=1e-12)


def test_the_evidence_is_the_marginal_likelihood():
    seen = planted()
    found, now = fit(line(SEEN.time), seen, SEEN, NOISE, PRIOR, LOG_SIZE)
    design = line(SEEN.time)(CENTRE)[1]
    marginal = design @ np.diag(WIDTH**2) @ design.T + covariance(SEEN, SEEN, now) + np.diag(NOISE**2)
    exact = multivariate_normal(design @ CENTRE, marginal).logpdf(seen)
    # But for the constant of the density.
    assert found.evidence == pytest.approx(exact + 0.5 * 9 * np.log(2 * np.pi), rel=1e-9)


@pytest.mark.parametrize(("planted_scale", "at_least", "at_most"), [(0.1, 0.0, 0.5), (1, 0.25, 4), (20, 4, 64)])
def test_the_curve_tells_the_size_of_its_discrepancy(planted_scale, at_least, at_most):
    at = points(np.linspace(-3, 0, 20))
    noise = np.full(20, 1e-4)
    scales = []
    for seed in range(10):
        matrix = covariance(at, at, planted_scale * NOW) + np.diag(noise**2)
        seen = line(at.time)(CENTRE)[0] + np.random.default_rng(seed).multivariate_normal(np.zeros(20), matrix)
        scales.append(fit(line(at.time), seen, at, noise, PRIOR, LOG_SIZE)[1])
    assert at_least <= np.median(scales) / NOW <= at_most


def test_the_discrepancy_grows_towards_the_past_and_is_shared_by_near_points_sizes_and_runs():
    deviations = np.sqrt(np.diag(covariance(points([-2, -1, 0, 1]), points([-2, -1, 0, 1]), NOW)))
    assert (np.diff(deviations) < 0).all()
    here, run, size = points([0.0]), points([0.0], run=1), points([0.0], size=1.0, run=1)
    of_one = covariance(here, here, NOW)[0, 0]
    assert of_one == pytest.approx(NOW**2)
    # A part of the discrepancy is a run's own: it may differ early on from another run of its size.
    of_two = covariance(here, run, NOW)[0, 0]
    assert of_two == pytest.approx(priors.SAME_SIZE_CORR * of_one)
    assert covariance(here, size, NOW)[0, 0] == pytest.approx(of_two * np.exp(-1 / priors.SIZE_CORR_LENGTH))
    assert covariance(here, points([9.0]), NOW)[0, 0] < 0.1 * of_one


def test_old_points_count_less_than_new_ones():
    """The same error in the first and in the last point moves the forecast far less in the first."""
    law, ahead = line(SEEN.time), points([0.5])
    clean, ends = line(SEEN.time)(np.array([1.1, 0.1]))[0], []
    for place in (None, 0, 8):
        seen = clean.copy()
        if place is not None:
            seen[place] += 0.02
        found, _ = fit(law, seen, SEEN, NOISE, PRIOR, LOG_SIZE)
        losses, _ = found.forecast(
            *line(ahead.time)(found.x), covariance(ahead, SEEN, NOW), covariance(ahead, ahead, NOW)
        )
        ends.append(losses[0])
    assert abs(ends[1] - ends[0]) < 0.2 * abs(ends[2] - ends[0])
