"""Gaussian-process model discrepancy (Kennedy and O'Hagan 2001), and the MAP fit of a law beside it.

A law of loss curves is right in the long run and wrong early on, so old losses say less of the end than new ones. The
discrepancy is a Gaussian process over log training time and log size, whose amplitude grows towards the past; its size is
chosen by the marginal likelihood of the curve.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import least_squares

from toposcale.forecasting.laws import priors
from toposcale.forecasting.laws.priors import Gaussian

_FURTHEST = (-6.0, 3.0)  # log training times beyond which the amplitude is constant


MOST_EVALUATIONS, TOLERANCE = 400, 1e-6
"""With a tolerance of 1e-8 forecasts move by at most 0.0002 nats."""


def map_estimate(terms: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], start: np.ndarray) -> np.ndarray:
    """Return the parameters (k,) of the least sum of squared residuals, by Levenberg and Marquardt's method.

    terms: parameters (k,) -> residuals (n,), those of the prior among them, and their Jacobian (n, k), both finite
    everywhere, n at least k.
    """

    @lru_cache(maxsize=1)
    def at(key: bytes) -> tuple[np.ndarray, np.ndarray]:
        return terms(np.frombuffer(key))  # residuals and slopes of one point are asked for one after the other

    limits = dict.fromkeys(("ftol", "xtol", "gtol"), TOLERANCE) | {"max_nfev": MOST_EVALUATIONS}
    solution = least_squares(lambda x: at(x.tobytes())[0], start, lambda x: at(x.tobytes())[1], method="lm", **limits)
    return np.asarray(solution.x)


class Points(NamedTuple):
    """Points at which losses were seen, or are forecast: three arrays (points,).

    time: log of the training time, 0 at the last loss of the run that is decided on. size: log of the number of parameters,
    0 at the size of that run. run: an integer for each run.
    """

    time: np.ndarray
    size: np.ndarray
    run: np.ndarray


def covariance(one: Points, other: Points, now: float) -> np.ndarray:
    """Return the covariance (points of one, points of other) of the discrepancies, nats squared.

    now: standard deviation of the discrepancy at the last loss that was seen, nats.
    """
    distance = np.sqrt(3.0) * np.abs(one.time[:, None] - other.time) / priors.TIME_CORR_LENGTH
    shared = (1 + distance) * np.exp(-distance - np.abs(one.size[:, None] - other.size) / priors.SIZE_CORR_LENGTH)
    shared *= np.where(one.run[:, None] == other.run, 1.0, priors.SAME_SIZE_CORR)
    return np.asarray(_amplitude(one, now)[:, None] * _amplitude(other, now) * shared)


def _amplitude(points: Points, now: float) -> np.ndarray:
    """Return the standard deviation of the discrepancy at each point, nats."""
    return np.asarray(now * np.exp(-priors.DISCREPANCY_GROWTH * np.clip(points.time, *_FURTHEST)))


Law = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Parameters (k,) -> losses (points,) and their gradient (points, k)."""


class Fit(NamedTuple):
    """MAP estimate of the parameters, and what a forecast needs.

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
        self, losses: np.ndarray, gradient: np.ndarray, to_seen: np.ndarray, among: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the losses (t,) and their covariance (t, t), discrepancy included.

        losses, gradient: the law at the targets. to_seen (t, points), among (t, t): covariances of the discrepancies.
        """
        weights = solve_triangular(self.root, to_seen.T, lower=True)
        slopes = gradient - np.einsum("pt,pk->tk", weights, self.slopes)
        spread = np.einsum("tk,kl,ul->tu", slopes, self.covariance, slopes)
        return (
            losses + np.einsum("pt,p->t", weights, self.residuals),
            spread + among - np.einsum("pt,pu->tu", weights, weights),
        )


def fit(
    law: Law, seen: np.ndarray, points: Points, noise: np.ndarray, prior: Gaussian, log_now: Gaussian
) -> tuple[Fit, float]:
    """Fit the law to losses `seen` (points,); return the fit and the MAP size of the discrepancy now, nats.

    noise (points,): standard deviations. prior: of the parameters (k,). log_now: prior of the logarithm of the size of the
    discrepancy, which is searched in steps of a factor of 2.
    """
    fits: dict[int, tuple[Fit, float]] = {}
    centre, width = log_now

    def tried(power: int) -> tuple[Fit, float]:
        if power not in fits:
            near = next((fit.x for fit, _ in fits.values()), prior.mean)
            now = float(np.exp(centre)) * 2.0**power
            fit = _at(law, seen, covariance(points, points, now) + np.diag(noise**2), prior, near)
            fits[power] = fit, fit.evidence - 0.5 * (power * np.log(2.0) / width) ** 2
        return fits[power]

    best = 0
    while tried(best + 1)[1] > tried(best)[1] and best < 6:
        best += 1
    while best <= 0 and tried(best - 1)[1] > tried(best)[1] and best > -6:
        best -= 1
    return fits[best][0], float(np.exp(centre)) * 2.0**best


def _at(law: Law, seen: np.ndarray, matrix: np.ndarray, prior: Gaussian, start: np.ndarray) -> Fit:
    """Fit by least squares of the whitened residuals and of the prior, for one covariance of the points."""
    centre, width = prior
    root = np.linalg.cholesky(matrix)

    def whitened(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        losses, gradient = law(x)
        columns = solve_triangular(root, np.column_stack([seen - losses, gradient]), lower=True, check_finite=False)
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
