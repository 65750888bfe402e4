"""What no law has: a smooth misfit of every curve, and the fit of a law beside it (kriging with a curved trend).

A law of loss curves is right in the long run and wrong early on, so old losses say less of the end than new ones. The
misfit is a Gaussian process over the training time and the model size (Kennedy and O'Hagan 2001): neighbouring points
share it, models of similar size share it, and it grows towards the past. How large it is, the curve itself tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

NOW = 0.005
"""Standard deviation of the misfit at the last loss that was seen, as a share of the loss."""

GROWTH = 1.0
"""The misfit at a share s of the training time so far is s^-GROWTH of what it is now; in the time to come it shrinks so."""

REACH, SIZE_REACH = 1.5, 3.0
"""Logarithms of the training time, and of the size, over which the misfits of two points agree."""

OF_ALL_RUNS = 0.8
"""The correlation of the misfits of two runs of one size at one training time; the rest belongs to one run alone."""

RUN_SCATTER = 0.003
"""By how much of the loss a run lies off its law for good: its seed and its data."""

ROUNDING = 0.001
"""The least noise of a point, as a share of the loss."""

SCALE_WIDTH = 1.0
"""Families differ in how well the law describes them: the standard deviation of the logarithm of their misfit."""

_FURTHEST = (-6.0, 3.0)  # logarithms of the training time beyond which the misfit neither grows nor shrinks
_STEPS = 100  # of the optimiser


class Points(NamedTuple):
    """Where losses were seen, or are forecast: three arrays (points,).

    time: log of the training time, 0 at the last loss of the run that is decided on. size: log of the number of parameters,
    0 at the size of that run. run: an integer for each run.
    """

    time: np.ndarray
    size: np.ndarray
    run: np.ndarray


def covariance(one: Points, other: Points, scale: float) -> np.ndarray:
    """(points of one, points of other) covariance of the misfits, in units of the loss; scale: how large they are."""
    gap = np.sqrt(3.0) * np.abs(one.time[:, None] - other.time) / REACH
    same_run = one.run[:, None] == other.run
    shared = (1 + gap) * np.exp(-gap - np.abs(one.size[:, None] - other.size) / SIZE_REACH)
    shared *= np.where(same_run, 1.0, OF_ALL_RUNS)
    return np.asarray(
        _amplitude(one, scale)[:, None] * _amplitude(other, scale) * shared + RUN_SCATTER**2 * same_run
    )


def _amplitude(points: Points, scale: float) -> np.ndarray:
    return np.asarray(scale * NOW * np.exp(-GROWTH * np.clip(points.time, *_FURTHEST)))


Law = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Parameters (k,) -> losses (points,) and their gradient (points, k)."""


@dataclass(frozen=True)
class Fit:
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
) -> tuple[Fit, float]:
    """The law fitted to losses `seen` (points,), and the scale of the misfit that these losses make most likely.

    noise (points,): standard deviations. prior: centres and widths (k,) of the parameters, Gaussian. The scale is found in
    steps of a factor of 2; its logarithm has a Gaussian prior of the width `SCALE_WIDTH` around 0.
    """
    found: dict[int, tuple[Fit, float]] = {}

    def tried(power: int) -> tuple[Fit, float]:
        if power not in found:
            near = next((one.x for one, _ in found.values()), prior[0])
            matrix = covariance(points, points, 2.0**power) + np.diag(noise**2)
            one = _at(law, seen, matrix, prior, near)
            found[power] = one, one.evidence - 0.5 * (power * np.log(2.0) / SCALE_WIDTH) ** 2
        return found[power]

    best = 0
    while tried(best + 1)[1] > tried(best)[1] and best < 6:
        best += 1
    while best <= 0 and tried(best - 1)[1] > tried(best)[1] and best > -6:
        best -= 1
    return found[best][0], 2.0**best


def _at(
    law: Law, seen: np.ndarray, matrix: np.ndarray, prior: tuple[np.ndarray, np.ndarray], start: np.ndarray
) -> Fit:
    """Levenberg and Marquardt's least squares of the whitened residuals and of the prior."""
    centre, width = prior
    root = np.linalg.cholesky(matrix)

    def at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        with np.errstate(over="ignore", invalid="ignore"):  # a step too far is not taken
            losses, gradient = law(x)
            both = solve_triangular(
                root, np.column_stack([seen - losses, gradient]), lower=True, check_finite=False
            )
            cost = float(both[:, 0] @ both[:, 0] + np.sum(((x - centre) / width) ** 2))
        return both[:, 0], both[:, 1:], cost

    x, damping = start.copy(), 1e-3
    residuals, slopes, cost = at(x)
    precision = np.diag(width**-2.0)
    for _ in range(_STEPS):
        curvature = np.einsum("pk,pl->kl", slopes, slopes) + precision
        downhill = np.einsum("pk,p->k", slopes, residuals) - (x - centre) / width**2
        step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), downhill)
        tried = at(x + step)
        if tried[2] < cost:  # never so for a NaN
            done = cost - tried[2] < 1e-7 * (1 + cost)
            x, (residuals, slopes, cost) = x + step, tried
            damping = max(damping / 5, 1e-9)
            if done:
                break
        else:
            damping *= 10
            if damping > 1e9:
                break
    covariance_of_x = np.linalg.inv(np.einsum("pk,pl->kl", slopes, slopes) + precision)
    evidence = (
        -0.5 * cost
        - float(np.sum(np.log(np.diag(root))))
        + 0.5 * float(np.linalg.slogdet(covariance_of_x)[1])
        - float(np.sum(np.log(width)))
    )
    return Fit(x, covariance_of_x, evidence, root, residuals, slopes)
