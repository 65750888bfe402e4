"""What no law has: a smooth misfit of every curve, and the fit of a law beside it (kriging with a curved trend).

A law of loss curves is right in the long run and wrong early on, so old losses say less of the end than new ones. The
misfit is a Gaussian process over the training time and the model size (Kennedy and O'Hagan 2001): neighbouring points
share it, models of similar size share it, and it grows towards the past. How large it is, the curve itself tells.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from toposcale.laws.map_estimate import mode

GROWTH = 1.0
"""The misfit at a share s of the training time so far is s^-GROWTH of what it is now; in the time to come it shrinks so."""

REACH, SIZE_REACH = 1.5, 3.0
"""Logarithms of the training time, and of the size, over which the misfits of two points agree."""

OF_ALL_RUNS = 0.8
"""The correlation of the misfits of two runs of one size at one training time; the rest belongs to one run alone."""

RUN_SCATTER = 0.009
"""Nats by which a run lies off its law for good: its seed and its data."""

ROUNDING = 0.003
"""The least noise of a point, nats."""

_FURTHEST = (-6.0, 3.0)  # logarithms of the training time beyond which the misfit neither grows nor shrinks


class Points(NamedTuple):
    """Where losses were seen, or are forecast: three arrays (points,).

    time: log of the training time, 0 at the last loss of the run that is decided on. size: log of the number of parameters,
    0 at the size of that run. run: an integer for each run.
    """

    time: np.ndarray
    size: np.ndarray
    run: np.ndarray


def covariance(one: Points, other: Points, now: float) -> np.ndarray:
    """(points of one, points of other) covariance of the misfits, nats squared.

    now: the standard deviation of the misfit at the last loss that was seen, nats.
    """
    gap = np.sqrt(3.0) * np.abs(one.time[:, None] - other.time) / REACH
    same_run = one.run[:, None] == other.run
    shared = (1 + gap) * np.exp(-gap - np.abs(one.size[:, None] - other.size) / SIZE_REACH)
    shared *= np.where(same_run, 1.0, OF_ALL_RUNS)
    return np.asarray(_amplitude(one, now)[:, None] * _amplitude(other, now) * shared + RUN_SCATTER**2 * same_run)


def _amplitude(points: Points, now: float) -> np.ndarray:
    return np.asarray(now * np.exp(-GROWTH * np.clip(points.time, *_FURTHEST)))


Law = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Parameters (k,) -> losses (points,) and their gradient (points, k)."""


class Fit(NamedTuple):
    """The parameters with the largest posterior density, and what a forecast needs.

    x (k,) and its covariance (k, k), by Laplace's approximation; evidence: log of the marginal likelihood. root: the
    Cholesky factor of the covariance of the points; residuals and slopes: what the law leaves, and its gradient, both
    divided by the root.
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
        """Losses (t,) and their covariance (t, t) with the misfit carried on.

        losses, gradient: the law at the targets. to_seen (t, points), among (t, t): covariances of the misfits.
        """
        weights = solve_triangular(self.root, to_seen.T, lower=True)
        slopes = gradient - np.einsum("pt,pk->tk", weights, self.slopes)
        spread = np.einsum("tk,kl,ul->tu", slopes, self.covariance, slopes)
        return (
            losses + np.einsum("pt,p->t", weights, self.residuals),
            spread + among - np.einsum("pt,pu->tu", weights, weights),
        )


def fit(
    law: Law,
    seen: np.ndarray,
    points: Points,
    noise: np.ndarray,
    prior: tuple[np.ndarray, np.ndarray],
    log_now: tuple[float, float],
) -> tuple[Fit, float]:
    """The law fitted to losses `seen` (points,), and the size of the misfit now, nats, that these make most likely.

    noise (points,): standard deviations. prior: centres and widths (k,) of the parameters, Gaussian. log_now: centre and
    width of what is believed of the logarithm of the misfit's size, which is found in steps of a factor of 2.
    """
    fits: dict[int, tuple[Fit, float]] = {}
    centre, width = log_now

    def tried(power: int) -> tuple[Fit, float]:
        if power not in fits:
            near = next((fit.x for fit, _ in fits.values()), prior[0])
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


def _at(law: Law, seen: np.ndarray, matrix: np.ndarray, prior: tuple[np.ndarray, np.ndarray], start: np.ndarray) -> Fit:
    """Least squares of the whitened residuals and of the prior."""
    centre, width = prior
    root = np.linalg.cholesky(matrix)

    def whitened(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        losses, gradient = law(x)
        both = solve_triangular(root, np.column_stack([seen - losses, gradient]), lower=True, check_finite=False)
        return both[:, 0], both[:, 1:]

    def terms(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residuals, slopes = whitened(x)
        return np.concatenate([residuals, (x - centre) / width]), np.vstack([-slopes, np.diag(1 / width)])

    x = mode(terms, start)
    residuals, slopes = whitened(x)
    covariance_of_x = np.linalg.inv(np.einsum("pk,pl->kl", slopes, slopes) + np.diag(width**-2.0))
    evidence = (
        -0.5 * float(residuals @ residuals + np.sum(((x - centre) / width) ** 2))
        - float(np.sum(np.log(np.diag(root))))
        + 0.5 * float(np.linalg.slogdet(covariance_of_x)[1])
        - float(np.sum(np.log(width)))
    )
    return Fit(x, covariance_of_x, evidence, root, residuals, slopes)
