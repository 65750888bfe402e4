"""Laws of a loss curve that are a power law of the summed rates and one term of the schedule.

L(s) = L0 + A S1(s)^-alpha + C g(s), where S1 is the sum of the rates up to step s and g depends on the schedule only. For
each exponent the law is linear, so that its posterior is a mixture of Gaussians over a grid of exponents. One curve says
little of C before its rate decays: the prior of alpha and C is learnt from finished runs of other sources.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from scipy.special import softmax

from toposcale.forecasting.laws.multi_power_law import DISCREPANCY, refuse_unknown_schedule
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.laws.priors import Gaussian
from toposcale.forecasting.laws.residuals import variance_inflation
from toposcale.forecasting.runs.published_run import CONSTANT, PublishedRun
from toposcale.forecasting.runs.training_run import MINIMUM_POINTS, Target, TrainingRun
from toposcale.io.errors import NoForecast

EXPONENTS = np.geomspace(0.05, 2.0, 48)
"""Grid of alpha."""

MAX_CHANGES = 400
"""Changes of the rate that are told apart."""

PER_SOURCE = 3
"""Finished runs of each source from which the prior is learnt."""

MIN_SPREADS = (0.1, 0.005)
"""Standard deviations that are left to log alpha and C however well the other sources agree: they are few."""

WIDE = Gaussian(0.0, 1e3)
"""Prior of C, in units of the last loss, where nothing was learnt."""


class Posterior(NamedTuple):
    """Weights of the exponents (n,); means (n, 3) and covariances (n, 3, 3) of L0, A and C in units of the last loss."""

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


class ScheduleLaw(ABC):
    """Law of one run whose learning-rate schedule is known, fitted by Bayesian linear regression on a grid of exponents.

    Attributes
    ----------
    log_alpha_, c_ : Gaussian
        Prior of the logarithm of alpha and of C, in units of the last loss.
    """

    log_alpha_: Gaussian = Gaussian(np.log(0.5), 0.5)
    c_: Gaussian = WIDE

    @abstractmethod
    def term(self, rates: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return g (n_points,) at steps; it falls with the rate. rates: one a step, in units of the peak, (n_steps,)."""

    def learn(self, runs: Sequence[PublishedRun], left_out: str) -> Self:
        """Learn the prior of alpha and C from finished runs of pretraining whose rate decays."""
        whole: dict[str, list[PublishedRun]] = {}
        for run in runs:
            if not run.kind and run.shape != CONSTANT and len(run.loss_curve.steps) >= 2 * MINIMUM_POINTS:
                whole.setdefault(run.source, []).append(run)
        self.log_alpha_, self.c_ = Gaussian(np.log(0.5), 0.5), WIDE
        constants = []
        for members in whole.values():
            for run in members[:: -(-len(members) // PER_SOURCE)]:
                posterior = self._posterior(run)
                best = int(np.argmax(posterior.weights))
                constants.append((np.log(EXPONENTS[best]), posterior.means[best, 2]))
        if len(constants) >= MINIMUM_POINTS:
            middle = np.median(constants, axis=0)
            spread = np.hypot(1.4826 * np.median(np.abs(np.array(constants) - middle), axis=0), MIN_SPREADS)
            self.log_alpha_, self.c_ = (Gaussian(float(m), float(s)) for m, s in zip(middle, spread, strict=True))
        return self

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Fit the law to the loss curve; NoForecast: its schedule is not known, or it has too few points."""
        refuse_unknown_schedule(run)
        if len(run.loss_curve.steps) < MINIMUM_POINTS:
            raise NoForecast(f"fewer than {MINIMUM_POINTS} losses after the warm-up")
        self._posterior_ = self._posterior(run)
        return self

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return losses with their 95% intervals; NoForecast: one is not positive, or not plausible."""
        forecasts = []
        for target in targets:
            design = self._design(target.learning_rates, np.array([target.step]))[:, 0]
            values = np.sum(design * self._posterior_.means, axis=1)
            variances = np.einsum("ai,aij,aj->a", design, self._posterior_.covariances, design)
            value = float(self._posterior_.weights @ values)
            variance = float(self._posterior_.weights @ (variances + (values - value) ** 2))
            forecast = Prediction.of(value * self._unit, self._unit * np.sqrt(variance + DISCREPANCY**2))
            if not forecast.is_plausible(self._unit):
                raise NoForecast(f"its forecast, {forecast:.4g}, is not plausible")
            forecasts.append(forecast)
        return forecasts

    def _design(self, learning_rates: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return the columns of L0, A and C for each exponent, (n_exponents, n_points, 3)."""
        rates = learning_rates / self._peak
        warmup = int(np.argmax(rates >= 1 - 1e-9))
        rates = np.concatenate([np.ones(warmup), rates[warmup:]])  # the warm-up counts as at the peak, as in the papers
        total = np.cumsum(rates)[steps] / self._time
        columns = np.ones((len(EXPONENTS), len(steps), 3))
        columns[..., 1] = total[None, :] ** -EXPONENTS[:, None]
        columns[..., 2] = self.term(rates, steps)
        return columns

    def _posterior(self, run: TrainingRun) -> Posterior:
        """Return the posterior of a run's curve."""
        steps, losses = run.loss_curve
        steps = np.rint(steps).astype(np.int64)
        self._unit, self._peak = float(losses[-1]), float(run.schedule.rates.max())
        self._time = float(steps[-1])
        design, y = self._design(run.schedule.rates_to(int(steps[-1])), steps), losses / self._unit
        noise = DISCREPANCY**2
        for _ in range(3):  # the noise is that of the residuals of the best exponent, which are not independent
            precision = np.einsum("api,apj->aij", design, design) / noise + np.diag([1e-6, 1e-6, self.c_.sd**-2])
            right = np.einsum("api,p->ai", design, y) / noise + np.array([0.0, 0.0, self.c_.mean / self.c_.sd**2])
            covariances = np.linalg.inv(precision)
            means = np.einsum("aij,aj->ai", covariances, right)
            residuals = y - np.einsum("api,ai->ap", design, means)
            costs = np.sum(residuals**2, axis=1) / noise + ((means[:, 2] - self.c_.mean) / self.c_.sd) ** 2
            costs += np.linalg.slogdet(precision)[1]
            costs += ((np.log(EXPONENTS) - self.log_alpha_.mean) / self.log_alpha_.sd) ** 2
            best = residuals[int(np.argmin(costs))]
            noise = max(float(np.mean(best**2)) * variance_inflation(best, parameters=4), (DISCREPANCY / 4) ** 2)
        return Posterior(softmax(-costs / 2), means, covariances)


class RateChanges(NamedTuple):
    """Changes of a schedule: the step of each, and its size in units of the peak, (n_changes,)."""

    steps: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, rates: np.ndarray) -> Self:
        """Return the changes of the rates (n_steps,); of more than `MAX_CHANGES` neighbours are merged."""
        sizes = np.diff(rates)
        pieces = [piece for piece in np.array_split(np.flatnonzero(sizes), MAX_CHANGES) if len(piece)]
        middle = np.array([piece[(len(piece) - 1) // 2] + 1 for piece in pieces], dtype=np.int64)
        return cls(middle, np.array([sizes[piece].sum() for piece in pieces]))
