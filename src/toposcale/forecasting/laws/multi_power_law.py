"""The multi-power law of Luo et al. 2025 (arXiv 2503.12811): a loss curve from its learning-rate schedule."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from toposcale.forecasting.laws.map_estimate import mode
from toposcale.forecasting.laws.prediction import NORMAL
from toposcale.forecasting.runs.series import bin_medians, noise_of

NAMES = ("l0", "log_a", "log_alpha", "log_b", "log_c", "log_beta", "gamma")
# Losses are in units of the last one seen, rates of the peak, A of the loss at the last point seen, C of steps at the
# peak rate. One curve says little of B, C, beta and gamma before its rate falls, so what is plausible is a Gaussian
# around the order that Luo et al. publish. Its width and the model discrepancy are chosen on other curves than
# those that they are judged on: `python -m studies.published_curves FOLDER --prior` leaves one size and one schedule out.
CENTRES = np.array([0.85, np.log(0.1), np.log(0.5), np.log(0.04), np.log(0.1), np.log(0.45), 0.5])
WIDTHS = np.array([0.12, 0.8, 0.25, 0.5, 1.0, 0.5, 0.3])
TIGHTNESS = 0.25
"""The widths of all but l0, A and B are multiplied with it: 1 leaves more to the curve, 0 nothing. Before the decay B is
unidentifiable, and from 25M to 100M parameters it grows by a third."""

DISCREPANCY = 0.002
"""Standard deviation of the model discrepancy, as a share of the loss."""

HUBER = 2.0
"""Residuals of more standard deviations than this count linearly."""

FEWEST_POINTS = 6
FIT_CHANGES = 200
MOST_CHANGES = 2000
"""Changes of the learning rate that are told apart while fitting, and in a forecast; neighbours beyond are merged."""


class Curve(NamedTuple):
    """One training run: `learning_rates` (one a step, from step 0), and `losses` seen at `steps`."""

    learning_rates: np.ndarray
    steps: np.ndarray
    losses: np.ndarray


@dataclass(frozen=True)
class Prepared:
    """Terms of the law for one curve: rates in units of the peak, their sums in steps at the peak."""

    time: np.ndarray  # (points,) S1 over the longest sum
    gap: np.ndarray  # (points, changes) sum since each change; 0 before it
    log_rate: np.ndarray  # (changes,) log of the rate after the change
    change: np.ndarray  # (changes,)


def prepare(
    rates: np.ndarray, steps: np.ndarray, longest: float, most: int = FIT_CHANGES, power: float = 1.0
) -> Prepared:
    """Compute the terms of the law from rates (n_steps,) in units of the peak, at steps (n_points,).

    longest: sum of rates that is the unit of time. power: a change of the rate counts as that of the rate to this power.
    """
    total, counted = np.cumsum(rates), rates**power
    changed = np.flatnonzero(np.diff(rates)) + 1
    change, before = counted[changed] - counted[changed - 1], total[changed - 1]
    # A rate of exactly 0 (the end of a cosine) would be 0 * infinity.
    log_rate = np.log(np.maximum(rates[changed], 1e-9))
    if len(changed) > most:
        # Neighbours are merged so that every piece holds about as much of the change, and as many changes.
        size = np.abs(change)
        share = np.cumsum(size / size.sum() + 1 / len(size))
        piece = np.minimum((share / share[-1] * most * (1 - 1e-12)).astype(int), most - 1)
        first = np.flatnonzero(np.diff(piece, prepend=-1))
        weight = np.add.reduceat(size, first)
        log_rate = np.add.reduceat(size * log_rate, first) / weight
        before = np.add.reduceat(size * before, first) / weight
        change = np.add.reduceat(change, first)
    at = total[steps]
    return Prepared(at / longest, np.maximum(at[:, None] - before[None, :], 0.0), log_rate, change)


def law(parameters: np.ndarray, curve: Prepared) -> tuple[np.ndarray, np.ndarray]:
    """Compute losses (points,) and their gradient (points, 7) by the parameters `NAMES`."""
    l0, log_a, log_alpha, log_b, log_c, log_beta, gamma = parameters
    alpha, b, beta = np.exp(np.clip([log_alpha, log_b, log_beta], -30, 30))
    with np.errstate(divide="ignore"):
        log_time = np.log(curve.time)
    decay = np.exp(np.clip(log_a - alpha * log_time, -700, 700))
    argument = curve.gap * np.exp(np.clip(log_c - gamma * curve.log_rate, -60, 60))
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


def solve(
    curves: Sequence[Prepared], log_losses: Sequence[np.ndarray], deviation: float, width: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the MAP estimate and its covariance (Laplace's approximation).

    It is that of the Huber loss of the log losses of each curve, and of a Gaussian prior around `CENTRES`, where the search
    starts.
    """
    seen = np.concatenate(log_losses)

    def terms(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        losses, gradient = (np.concatenate(parts) for parts in zip(*(law(x, curve) for curve in curves), strict=True))
        # A large fall of the rate can make the law negative on the way to the optimum.
        positive = np.maximum(losses, 1e-3)
        residuals = (np.log(positive) - seen) / deviation
        slopes = np.where(losses > 1e-3, 1.0, 0.0)[:, None] * gradient / positive[:, None]
        size = np.abs(residuals)
        root = np.where(size <= HUBER, size, np.sqrt(np.maximum(2 * HUBER * size - HUBER**2, 0)))
        bent = np.where(size <= HUBER, 1.0, HUBER / np.maximum(root, HUBER)) / deviation
        return (
            np.concatenate([np.sign(residuals) * root, (x - CENTRES) / width]),
            np.vstack([slopes * bent[:, None], np.diag(1 / width)]),
        )

    x = mode(terms, CENTRES)
    jacobian = terms(x)[1]
    return x, np.linalg.inv(np.einsum("pi,pj->ij", jacobian, jacobian))


class MultiPowerLaw:
    """Multi-power law of a loss curve and its learning-rate schedule, fitted by MAP estimation.

    L(s) = L0 + A S_s^-alpha + B sum_k (eta_k - eta_{k-1}) [1 - (1 + C eta_k^-gamma (S_s - S_{k-1}))^-beta], in nats per
    token. eta_k is the learning rate of step k, and S_s the sum of the rates up to and including step s; the sum over k is
    from 1 to s, so a warm-up is a rate that rises. The fit is deterministic.

    Parameters
    ----------
    tightness : float, default=0.25
        Factor on the standard deviations of the prior, but for those of L0, A and B.
    discrepancy : float, default=0.002
        Standard deviation of the model discrepancy, as a share of the loss.

    Attributes
    ----------
    L0, A, alpha, B, C, beta, gamma : float
        Constants after `fit`: losses in nats per token, rates in the unit of the given ones.

    References
    ----------
    Luo et al. 2025, arXiv 2503.12811.

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.forecasting import MultiPowerLaw
    >>> rates = np.full(4001, 1e-3)
    >>> steps = np.arange(100, 2001, 100)
    >>> law = MultiPowerLaw().fit([(rates, steps, 2.5 + 20 * steps**-0.5)])
    >>> low, high = law.interval(rates, 4000)
    >>> bool(low < law.predict(rates, [4000])[0] < high)
    True
    """

    def __init__(self, tightness: float = TIGHTNESS, discrepancy: float = DISCREPANCY) -> None:
        self.tightness, self.discrepancy = tightness, discrepancy

    def fit(self, curves: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Self:
        """Fit the law to one or several curves by the Huber loss of the log loss and a Gaussian prior.

        Points whose loss is not finite and positive, or before any learning rate was spent, are left out.

        Parameters
        ----------
        curves : sequence of tuple
            Each (learning_rates, steps, losses): one rate a step from step 0, of shape (n_steps,); steps and losses in nats
            per token, of shape (n_points,).

        Returns
        -------
        MultiPowerLaw
            Itself.

        Raises
        ------
        ValueError
            If a curve is malformed, or if there are fewer than 6 points in all.
        """
        checked = [_usable(_checked(number, *curve)) for number, curve in enumerate(curves)]
        checked = [curve for curve in checked if len(curve.steps)]
        if sum(len(curve.steps) for curve in checked) < FEWEST_POINTS:
            raise ValueError(f"curves: at least {FEWEST_POINTS} finite, positive losses are needed in all")
        self._rate = max(float(curve.learning_rates.max()) for curve in checked)
        sums = [np.cumsum(curve.learning_rates / self._rate)[curve.steps] for curve in checked]
        self._longest = max(float(total.max()) for total in sums)
        self._loss = float(np.mean([np.median(curve.losses[-3:]) for curve in checked]))
        logs = [np.log(curve.losses / self._loss) for curve in checked]
        self._noise = float(np.median([noise_of(own) for own in logs]))
        prepared = [prepare(c.learning_rates / self._rate, c.steps, self._longest) for c in checked]
        deviation = float(np.hypot(self._noise, self.discrepancy))
        width = np.where(np.isin(NAMES, ("l0", "log_a", "log_b")), WIDTHS, WIDTHS * self.tightness)
        self._x, self._covariance = solve(prepared, logs, deviation, width)
        l0, log_a, log_alpha, log_b, log_c, log_beta, gamma = self._x.tolist()
        self.alpha, self.beta, self.gamma = float(np.exp(log_alpha)), float(np.exp(log_beta)), gamma
        self.L0 = l0 * self._loss
        self.A = float(np.exp(log_a)) * self._loss * (self._longest * self._rate) ** self.alpha
        self.B = float(np.exp(log_b)) * self._loss / self._rate
        self.C = float(np.exp(log_c)) * self._rate ** (gamma - 1)
        return self

    def predict(self, learning_rates: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return the losses at some steps of a schedule.

        Parameters
        ----------
        learning_rates : ndarray of shape (n_steps,)
            One rate a step, from step 0.
        steps : ndarray of shape (n_points,)
            Steps below `n_steps`.

        Returns
        -------
        ndarray of shape (n_points,)
            Losses in nats per token; infinite where no rate was spent yet.
        """
        curve = _checked(0, learning_rates, steps, np.ones(np.shape(steps)))
        rates, losses = curve.learning_rates / self._rate, np.empty(len(curve.steps))
        for part in np.array_split(np.arange(len(losses)), max(1, len(losses) // 64)):
            prepared = prepare(rates, curve.steps[part], self._longest, MOST_CHANGES)
            losses[part] = np.where(prepared.time > 0, law(self._x, prepared)[0], np.inf)
        return losses * self._loss

    def interval(self, learning_rates: np.ndarray, step: int) -> tuple[float, float]:
        """Return the 95% interval of one observed loss: the posterior variance (Laplace's approximation) and its noise.

        Parameters
        ----------
        learning_rates : ndarray of shape (n_steps,)
            One rate a step, from step 0.
        step : int
            Step below `n_steps`.

        Returns
        -------
        tuple of float
            Lower and upper end in nats per token.
        """
        rates = np.asarray(learning_rates, dtype=np.float64) / self._rate
        loss, gradient = law(self._x, prepare(rates, np.array([step]), self._longest, MOST_CHANGES))
        direction = gradient[0] / max(loss[0], 1e-3)
        variance = float(direction @ self._covariance @ direction) + self._noise**2
        factor = float(np.exp(np.clip(NORMAL * np.sqrt(variance), 0, 50)))
        value = float(loss[0]) * self._loss
        return value / factor, value * factor


def _checked(number: int, learning_rates: np.ndarray, steps: np.ndarray, losses: np.ndarray) -> Curve:
    rates = np.asarray(learning_rates, dtype=np.float64)
    where = np.asarray(steps)
    values = np.asarray(losses, dtype=np.float64)
    if rates.ndim != 1 or not len(rates) or not np.all(np.isfinite(rates)) or rates.min() < 0 or rates.max() <= 0:
        raise ValueError(f"learning_rates of curve {number}: one finite rate >= 0 for each step from 0, not all 0")
    if where.ndim != 1 or where.shape != values.shape:
        raise ValueError(f"steps and losses of curve {number}: two arrays of one length")
    if not np.array_equal(where, where.astype(np.int64)):
        raise ValueError(f"steps of curve {number}: whole numbers")
    where = where.astype(np.int64)
    if len(where) and (where.min() < 0 or where.max() >= len(rates)):
        raise ValueError(f"steps of curve {number}: below the {len(rates)} learning rates there are, got {where.max()}")
    return Curve(rates, where, values)


POINTS_PER_CURVE = 64
"""Geometric bins of a curve, whose medians are fitted: a long flat tail does not outvote the bend, nor a spike the rest."""


def _usable(curve: Curve) -> Curve:
    spent = np.cumsum(curve.learning_rates)[curve.steps] > 0
    keep = np.isfinite(curve.losses) & (curve.losses > 0) & spent
    order = np.argsort(curve.steps[keep], kind="stable")
    steps, losses = curve.steps[keep][order], curve.losses[keep][order]
    if len(steps) > POINTS_PER_CURVE:
        medians, losses = bin_medians(steps.astype(np.float64), losses, POINTS_PER_CURVE)
        steps = medians.astype(np.int64)
    return Curve(curve.learning_rates, steps, losses)


def _times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Compute matrix @ vector without BLAS, whose order of summation depends on the number of threads."""
    return np.asarray(np.einsum("ij,j->i", matrix, vector))
