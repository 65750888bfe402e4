"""Terms of the multi-power law of Luo et al. 2025 (arXiv 2503.12811): losses from a learning-rate schedule."""

from dataclasses import dataclass

import numpy as np

NAMES = ("l0", "log_a", "log_alpha", "log_b", "log_c", "log_beta", "gamma")
# Losses are in units of the last one seen, rates of the peak, A of the loss at the last point seen, C of steps at the
# peak rate. One curve says little of B, C, beta and gamma before its rate falls, so what is plausible is a Gaussian
# around the order that Luo et al. publish. Its width and the model discrepancy are chosen on other curves than
# those that they are judged on: `python -m studies.published_curves FOLDER --prior` leaves one size and one schedule out.
CENTRES = np.array([0.85, np.log(0.1), np.log(0.5), np.log(0.04), np.log(0.1), np.log(0.45), 0.5])

FIT_CHANGES, MOST_CHANGES = 200, 2000
"""Changes of the learning rate that are told apart while fitting, and in a forecast; neighbours beyond are merged."""


@dataclass(frozen=True)
class Prepared:
    """Terms of the law for one curve: rates in units of the peak, their sums in steps at the peak."""

    time: np.ndarray  # (points,) S1 over the longest sum
    elapsed: np.ndarray  # (points, changes) sum since each change; 0 before it
    log_rate: np.ndarray  # (changes,) log of the rate after the change
    change: np.ndarray  # (changes,)


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
    return Prepared(time / longest, np.maximum(time[:, None] - before[None, :], 0.0), log_rate, change)


def law(parameters: np.ndarray, curve: Prepared) -> tuple[np.ndarray, np.ndarray]:
    """Compute losses (points,) and their gradient (points, 7) by the parameters `NAMES`."""
    l0, log_a, log_alpha, log_b, log_c, log_beta, gamma = parameters
    alpha, b, beta = np.exp(np.clip([log_alpha, log_b, log_beta], -30, 30))
    with np.errstate(divide="ignore"):
        log_time = np.log(curve.time)
    decay = np.exp(np.clip(log_a - alpha * log_time, -700, 700))
    argument = curve.elapsed * np.exp(np.clip(log_c - gamma * curve.log_rate, -60, 60))
    log_argument = np.log1p(argument)
    power = np.exp(-beta * log_argument)
    annealed = b * _times(1.0 - power, curve.change)
    by_log_c = beta * power * argument / (1.0 + argument)
    gradient = np.column_stack(
        [
            np.ones_like(decay),
            decay,
            -alpha * log_time * decay,
            annealed,
            b * _times(by_log_c, curve.change),
            b * beta * _times(power * log_argument, curve.change),
            -b * _times(by_log_c, curve.change * curve.log_rate),
        ]
    )
    return l0 + decay + annealed, gradient


def _times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Compute matrix @ vector without BLAS, whose order of summation depends on the number of threads."""
    return np.asarray(np.einsum("ij,j->i", matrix, vector))
