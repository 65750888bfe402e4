"""Gaussian-process model discrepancy (Kennedy and O'Hagan 2001), and the MAP fit of a law with it.

A law of loss curves is right in the long run and wrong early on, so old losses say less of the end than new ones. The
discrepancy is a Gaussian process over the logarithms of intrinsic training time and size. Its standard deviation grows
towards the past, from a value at the last loss that is estimated by the marginal likelihood of the curves.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import least_squares

from toposcale.forecasting.laws import priors
from toposcale.forecasting.laws.priors import Gaussian

_FURTHEST = (-6.0, 3.0)  # logs of the intrinsic training time beyond which the standard deviation is constant

MAX_EVALUATIONS, TOLERANCE = 400, 1e-6
"""With a tolerance of 1e-8 forecasts move by at most 0.0002 nats."""


def map_estimate(terms: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], start: np.ndarray) -> np.ndarray:
    """Return the parameters (k,) of the least sum of squared residuals, by Levenberg and Marquardt's method.

    terms: parameters (k,) -> residuals (n,), those of the prior among them, and their Jacobian (n, k), both finite
    everywhere, n at least k.
    """

    @lru_cache(maxsize=1)
    def evaluated(key: bytes) -> tuple[np.ndarray, np.ndarray]:
        return terms(np.frombuffer(key))  # `least_squares` asks for both of a point, one after the other

    limits = dict.fromkeys(("ftol", "xtol", "gtol"), TOLERANCE) | {"max_nfev": MAX_EVALUATIONS, "method": "lm"}
    solution = least_squares(lambda x: evaluated(x.tobytes())[0], start, lambda x: evaluated(x.tobytes())[1], **limits)
    return np.asarray(solution.x)


class Points(NamedTuple):
    """Points at which losses were observed, or are forecast: three arrays (points,).

    time: log of the intrinsic training time, 0 at the last loss of the run that is decided on. size: log of the number of
    parameters, 0 at the size of that run. run: an integer for each run.
    """

    time: np.ndarray
    size: np.ndarray
    run: np.ndarray


def covariance(first: Points, second: Points, last_sd: float) -> np.ndarray:
    """Return the covariance (points of first, points of second) of the discrepancies, nats squared.

    last_sd: standard deviation of the discrepancy at the last observed loss, nats.
    """
    distance = np.sqrt(3.0) * np.abs(first.time[:, None] - second.time) / priors.TIME_CORR_LENGTH
    shared = (1 + distance) * np.exp(-distance - np.abs(first.size[:, None] - second.size) / priors.SIZE_CORR_LENGTH)
    shared *= np.where(first.run[:, None] == second.run, 1.0, priors.SAME_SIZE_CORR)
    return np.asarray(_amplitude(first, last_sd)[:, None] * _amplitude(second, last_sd) * shared)


def _amplitude(points: Points, last_sd: float) -> np.ndarray:
    """Return the standard deviation of the discrepancy at each point, nats."""
    return np.asarray(last_sd * np.exp(-priors.DISCREPANCY_GROWTH * np.clip(points.time, *_FURTHEST)))


Law = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Parameters (k,) -> losses (points,) and their gradient (points, k)."""


class Fit(NamedTuple):
    """MAP estimate of the parameters, with the arrays that a forecast needs.

    x (k,) and its covariance (k, k), by Laplace's approximation; evidence: log of the marginal likelihood. root: Cholesky
    factor of the covariance of the points; residuals and slopes: residuals of the law and its gradient, both whitened.
    """

    x: np.ndarray
    covariance: np.ndarray
    evidence: float
    root: np.ndarray
    residuals: np.ndarray
    slopes: np.ndarray

    def forecast(
        self, losses: np.ndarray, gradient: np.ndarray, cross_covariance: np.ndarray, target_covariance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the losses (t,) and their covariance (t, t), discrepancy included.

        losses, gradient: the law at the targets. cross_covariance (t, points), target_covariance (t, t): of discrepancies.
        """
        weights = solve_triangular(self.root, cross_covariance.T, lower=True)
        slopes = gradient - np.einsum("pt,pk->tk", weights, self.slopes)
        spread = np.einsum("tk,kl,ul->tu", slopes, self.covariance, slopes)
        return (
            losses + np.einsum("pt,p->t", weights, self.residuals),
            spread + target_covariance - np.einsum("pt,pu->tu", weights, weights),
        )


def fit(
    law: Law, observed: np.ndarray, points: Points, noise: np.ndarray, prior: Gaussian, log_last_sd: Gaussian
) -> tuple[Fit, float]:
    """Fit the law to losses `observed` (points,); return the fit and the MAP estimate of `last_sd`, nats.

    last_sd: standard deviation of the discrepancy at the last observed loss, which is searched in steps of a factor of 2.
    log_last_sd: prior of its logarithm. noise (points,): standard deviations. prior: of the parameters (k,).
    """
    fits: dict[int, tuple[Fit, float]] = {}
    centre, width = log_last_sd

    def fit_at(power: int) -> tuple[Fit, float]:
        if power not in fits:
            start = next((fit.x for fit, _ in fits.values()), prior.mean)
            last_sd = float(np.exp(centre)) * 2.0**power
            fit = _fit_given(law, observed, covariance(points, points, last_sd) + np.diag(noise**2), prior, start)
            fits[power] = fit, fit.evidence - 0.5 * (power * np.log(2.0) / width) ** 2
        return fits[power]

    best = 0
    while fit_at(best + 1)[1] > fit_at(best)[1] and best < 6:
        best += 1
    while best <= 0 and fit_at(best - 1)[1] > fit_at(best)[1] and best > -6:
        best -= 1
    return fits[best][0], float(np.exp(centre)) * 2.0**best


def _fit_given(law: Law, observed: np.ndarray, matrix: np.ndarray, prior: Gaussian, start: np.ndarray) -> Fit:
    """Fit by least squares of the whitened residuals and of the prior, for one covariance of the observed losses."""
    centre, width = prior
    root = np.linalg.cholesky(matrix)

    def whitened(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        losses, gradient = law(x)
        columns = solve_triangular(root, np.column_stack([observed - losses, gradient]), lower=True, check_finite=False)
        return columns[:, 0], columns[:, 1:]

    def terms(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residuals, slopes = whitened(x)
        return np.concatenate([residuals, (x - centre) / width]), np.vstack([-slopes, np.diag(1 / width)])

    x = map_estimate(terms, start)
    residuals, slopes = whitened(x)
    covariance_of_x = np.linalg.inv(np.einsum("pk,pl->kl", slopes, slopes) + np.diag(width**-2.0))
    evidence = (
        -0.5 * float(residuals @ residuals + np.sum(((x - centre) / width) ** 2))
        - float(np.sum(np.log(np.diag(root))))
        + 0.5 * float(np.linalg.slogdet(covariance_of_x)[1])
        - float(np.sum(np.log(width)))
    )
    return Fit(x, covariance_of_x, evidence, root, residuals, slopes)
