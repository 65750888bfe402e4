"""Terms of the multi-power law of Luo et al. 2025 (arXiv 2503.12811): losses from a learning-rate schedule."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

NAMES = ("l0", "log_a", "log_alpha", "log_b", "log_c", "log_beta", "gamma")
# Losses are in units of the last one seen, rates of the peak, A of the loss at the last point seen, C of steps at the
# peak rate. One curve says little of B, C, beta and gamma before its rate falls, so what is plausible is a Gaussian
# around the order that Luo et al. publish. Its width and the model discrepancy are chosen on other curves than
# those that they are judged on: `python -m studies.published_curves FOLDER --prior` leaves one size and one schedule out.
CENTRES = np.array([0.85, np.log(0.1), np.log(0.5), np.log(0.04), np.log(0.1), np.log(0.45), 0.5])

FIT_CHANGES, MAX_CHANGES = 200, 2000
"""Changes of the learning rate that are told apart while fitting, and in a forecast; neighbours beyond are merged."""


class Prepared(NamedTuple):
    """Terms of the law for the points of curves: rates in units of the peak, their sums in steps at the peak.

    log_time (points,): log of the sum of the rates over the longest one. Then one entry for each point and change of the
    rate before it, (pairs,): the point, the log of the sum since the change, the log of the rate after it, and the change.
    """

    log_time: np.ndarray
    point: np.ndarray
    log_elapsed: np.ndarray
    log_rate: np.ndarray
    change: np.ndarray


def prepare(
    rates: np.ndarray, steps: np.ndarray, longest: float, most: int = FIT_CHANGES, power: float = 1.0
) -> Prepared:
    """Compute the terms of the law from rates (n_steps,) in units of the peak, at steps (n_points,).

    longest: sum of rates that is the unit of time. power: a change of the rate counts as that of the rate to this power.
    """
    total, powered = np.cumsum(rates), rates**power
    changed = np.flatnonzero(np.diff(rates)) + 1
    change, before = powered[changed] - powered[changed - 1], total[changed - 1]
    # A rate of exactly 0 (the end of a cosine) would be 0 * infinity.
    log_rate = np.log(np.maximum(rates[changed], 1e-9))
    if len(changed) > most:
        # Neighbours are merged so that every piece holds about as much of the change, and as many changes.
        size = np.abs(change)
        share = np.cumsum(size / size.sum() + 1 / len(size))
        group = np.minimum((share / share[-1] * most * (1 - 1e-12)).astype(int), most - 1)
        first = np.flatnonzero(np.diff(group, prepend=-1))
        weight = np.add.reduceat(size, first)
        log_rate = np.add.reduceat(size * log_rate, first) / weight
        before = np.add.reduceat(size * before, first) / weight
        change = np.add.reduceat(change, first)
    time = total[steps]
    elapsed = time[:, None] - before
    point, pair = np.nonzero(elapsed > 0)
    with np.errstate(divide="ignore"):
        log_time = np.log(time / longest)
    return Prepared(log_time, point, np.log(elapsed[point, pair]), log_rate[pair], change[pair])


def law(parameters: Sequence[float | np.ndarray] | np.ndarray, points: Prepared) -> tuple[np.ndarray, np.ndarray]:
    """Compute losses (points,) and their gradient (points, 7) by the parameters `NAMES`.

    L0, A, alpha and B may differ between points, (points,) each.
    """
    l0, log_a, log_alpha, log_b, log_c, log_beta, gamma = parameters
    alpha, b, beta = (np.exp(np.clip(logarithm, -30, 30)) for logarithm in (log_alpha, log_b, log_beta))
    decay = np.exp(np.clip(log_a - alpha * points.log_time, -700, 700))
    argument = np.exp(np.minimum(log_c - gamma * points.log_rate + points.log_elapsed, 60))
    log_argument = np.log1p(argument)
    left = np.exp(-beta * log_argument) * points.change
    by_argument = left * argument / (1.0 + argument)

    def annealed(terms: np.ndarray) -> np.ndarray:
        return np.asarray(b * np.bincount(points.point, terms, len(points.log_time)))

    loss_of_decay = annealed(points.change - left)
    gradient = np.column_stack(
        [
            np.ones_like(decay),
            decay,
            -alpha * points.log_time * decay,
            loss_of_decay,
            beta * annealed(by_argument),
            beta * annealed(left * log_argument),
            -beta * annealed(by_argument * points.log_rate),
        ]
    )
    return l0 + decay + loss_of_decay, gradient
