"""The multi-power law of Luo et al. 2025 (arXiv 2503.12811): a loss curve from its learning-rate schedule."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from toposcale.forecasting.laws.annealing import CENTRES, MAX_CHANGES, NAMES, Prepared, law, prepare
from toposcale.forecasting.laws.discrepancy import map_estimate
from toposcale.forecasting.laws.prediction import NORMAL, Prediction
from toposcale.forecasting.runs.curves import bin_medians
from toposcale.forecasting.runs.series import noise_of
from toposcale.forecasting.runs.training_run import Target, TrainingRun
from toposcale.io.errors import NoForecast

WIDTHS = np.array([0.12, 0.8, 0.25, 0.5, 1.0, 0.5, 0.3])
"""Standard deviations of the prior around `CENTRES`."""

TIGHTNESS = 0.25
"""The widths of all but l0, A and B are multiplied with it: 1 leaves more to the curve, 0 nothing. Before the decay B is
unidentifiable, and from 25M to 100M parameters it grows by a third."""

DISCREPANCY = 0.002
"""Standard deviation of the model discrepancy, as a share of the loss."""

HUBER = 2.0
"""Residuals of more standard deviations than this count linearly."""

MIN_POINTS = 6


class Curve(NamedTuple):
    """One training run: `learning_rates` (one a step, from step 0), and `losses` observed at `steps`."""

    learning_rates: np.ndarray
    steps: np.ndarray
    losses: np.ndarray


def solve(
    curves: Sequence[Prepared], log_losses: Sequence[np.ndarray], deviation: float, width: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the MAP estimate and its covariance (Laplace's approximation).

    It is that of the Huber loss of the log losses of each curve, and of a Gaussian prior around `CENTRES`, where the search
    starts.
    """
    observed = np.concatenate(log_losses)

    def terms(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        losses, gradient = (np.concatenate(parts) for parts in zip(*(law(x, curve) for curve in curves), strict=True))
        # A large decay of the rate can make the law negative on the way to the optimum.
        positive = np.maximum(losses, 1e-3)
        residuals = (np.log(positive) - observed) / deviation
        slopes = np.where(losses > 1e-3, 1.0, 0.0)[:, None] * gradient / positive[:, None]
        size = np.abs(residuals)
        root = np.where(size <= HUBER, size, np.sqrt(np.maximum(2 * HUBER * size - HUBER**2, 0)))
        bent = np.where(size <= HUBER, 1.0, HUBER / np.maximum(root, HUBER)) / deviation
        return (
            np.concatenate([np.sign(residuals) * root, (x - CENTRES) / width]),
            np.vstack([slopes * bent[:, None], np.diag(1 / width)]),
        )

    x = map_estimate(terms, CENTRES)
    jacobian = terms(x)[1]
    return x, np.linalg.inv(np.einsum("pi,pj->ij", jacobian, jacobian))


@dataclass(frozen=True)
class MultiPowerLawFit:
    """Multi-power law that was fitted to curves.

    x (7,) and its covariance: of the parameters `NAMES`. rate_unit, time_unit, loss_unit: peak rate, longest sum of
    rates in units of the peak, and loss, in which x is. noise: standard deviation of a log loss.
    """

    x: np.ndarray
    covariance: np.ndarray
    rate_unit: float
    time_unit: float
    loss_unit: float
    noise: float

    @property
    def constants(self) -> dict[str, float]:
        """L0, A, alpha, B, C, beta and gamma: losses in nats per token, rates in the unit of the given ones."""
        l0, log_a, log_alpha, log_b, log_c, log_beta, gamma = self.x.tolist()
        alpha, beta = float(np.exp(log_alpha)), float(np.exp(log_beta))
        a = float(np.exp(log_a)) * self.loss_unit * (self.time_unit * self.rate_unit) ** alpha
        b = float(np.exp(log_b)) * self.loss_unit / self.rate_unit
        c = float(np.exp(log_c)) * self.rate_unit ** (gamma - 1)
        return {"L0": l0 * self.loss_unit, "A": a, "alpha": alpha, "B": b, "C": c, "beta": beta, "gamma": gamma}

    def __call__(self, learning_rates: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return the losses at steps of a schedule of one rate a step, nats; infinite where no rate was spent yet."""
        rates, losses = learning_rates / self.rate_unit, np.empty(len(steps))
        for part in np.array_split(np.arange(len(losses)), max(1, len(losses) // 64)):
            prepared = prepare(rates, steps[part], self.time_unit, MAX_CHANGES)
            losses[part] = np.where(np.isfinite(prepared.log_time), law(self.x, prepared)[0], np.inf)
        return losses * self.loss_unit

    def interval(self, learning_rates: np.ndarray, step: int) -> tuple[float, float]:
        """Return the 95% interval of one observed loss: the posterior variance (Laplace's approximation) and its noise."""
        rates = np.asarray(learning_rates, dtype=np.float64) / self.rate_unit
        loss, gradient = law(self.x, prepare(rates, np.array([step]), self.time_unit, MAX_CHANGES))
        direction = gradient[0] / max(loss[0], 1e-3)
        variance = float(direction @ self.covariance @ direction) + self.noise**2
        factor = float(np.exp(np.clip(NORMAL * np.sqrt(variance), 0, 50)))
        value = float(loss[0]) * self.loss_unit
        return value / factor, value * factor


def fit_multi_power_law(
    curves: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    tightness: float = TIGHTNESS,
    discrepancy: float = DISCREPANCY,
) -> MultiPowerLawFit:
    """Fit one law to several curves by the Huber loss of the log loss and a Gaussian prior; the fit is deterministic.

    curves: each learning_rates (n_steps,), one a step from step 0; steps and losses in nats per token, (n_points,).
    Points whose loss is not finite and positive, or before any rate was spent, are left out. `ValueError`: there are fewer
    than 6 points in all.
    """
    checked = [curve for curve in (_usable(Curve(*one)) for one in curves) if len(curve.steps)]
    if sum(len(curve.steps) for curve in checked) < MIN_POINTS:
        raise ValueError(f"curves: at least {MIN_POINTS} finite, positive losses are needed in all")
    rate_unit = max(float(curve.learning_rates.max()) for curve in checked)
    sums = [np.cumsum(curve.learning_rates / rate_unit)[curve.steps] for curve in checked]
    time_unit = max(float(total.max()) for total in sums)
    loss_unit = float(np.mean([np.median(curve.losses[-3:]) for curve in checked]))
    logs = [np.log(curve.losses / loss_unit) for curve in checked]
    noise = float(np.median([noise_of(log_losses) for log_losses in logs]))
    prepared = [prepare(c.learning_rates / rate_unit, c.steps, time_unit) for c in checked]
    width = np.where(np.isin(NAMES, ("l0", "log_a", "log_b")), WIDTHS, WIDTHS * tightness)
    x, covariance = solve(prepared, logs, float(np.hypot(noise, discrepancy)), width)
    return MultiPowerLawFit(x, covariance, rate_unit, time_unit, loss_unit, noise)


class MultiPowerLaw:
    """Multi-power law of a run's loss curve and its whole learning-rate schedule, fitted by MAP estimation.

    L(s) = L0 + A S_s^-alpha + B sum_k (eta_k - eta_{k-1}) [1 - (1 + C eta_k^-gamma (S_s - S_{k-1}))^-beta], in nats per
    token. eta_k is the learning rate of step k, and S_s the sum of the rates up to and including step s; the sum over k is
    from 1 to s, so a warm-up is a rate that rises.

    Parameters
    ----------
    tightness : float, default=0.25
        Factor on the standard deviations of the prior, but for those of L0, A and B.
    discrepancy : float, default=0.002
        Standard deviation of the model discrepancy, as a share of the loss.

    Attributes
    ----------
    law_ : MultiPowerLawFit
        Fitted law of arrays; its `constants` are L0, A, alpha, B, C, beta and gamma.

    References
    ----------
    Luo et al. 2025, arXiv 2503.12811.

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.forecasting import LearningRateSchedule, MultiPowerLaw, RunFacts, TrainingRun
    >>> steps = np.arange(100, 2001, 100)
    >>> schedule = LearningRateSchedule(4000, np.full(4001, 1e-3))
    >>> run = TrainingRun(RunFacts("25M", 25_000_000), schedule, steps=steps, losses=2.5 + 20 * steps**-0.5)
    >>> [end] = MultiPowerLaw().fit(run).predict([run.target()])
    >>> end.low < end.value < end.high
    True
    """

    def __init__(self, tightness: float = TIGHTNESS, discrepancy: float = DISCREPANCY) -> None:
        self.tightness, self.discrepancy = tightness, discrepancy

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Fit the law to the loss curve of a run; the others are not read.

        NoForecast: the learning rates are not known to the end, or there are fewer than 6 points.
        """
        refuse_unknown_schedule(run)
        rates, (steps, losses) = run.schedule.rates, run.loss_curve
        inside = steps < len(rates)
        curve = rates, np.rint(steps[inside]).astype(np.int64), losses[inside]
        try:
            self.law_ = fit_multi_power_law([curve], self.tightness, self.discrepancy)
        except ValueError as error:
            raise NoForecast(str(error)) from error
        return self

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return losses, in nats per token, with their 95% intervals; NoForecast: one is not positive."""
        values = [float(self.law_(target.learning_rates, np.array([target.step]))[0]) for target in targets]
        if not min(values, default=1.0) > 0:
            raise NoForecast("the law gives no positive loss")
        intervals = [self.law_.interval(target.learning_rates, target.step) for target in targets]
        return [Prediction(value, *interval) for value, interval in zip(values, intervals, strict=True)]


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


def refuse_unknown_schedule(run: TrainingRun) -> None:
    """Raise NoForecast where the learning rates are not known to the end."""
    if not run.schedule.is_known:
        raise NoForecast(run.schedule.unknown_because)
