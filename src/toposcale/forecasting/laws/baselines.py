"""Laws to compare others with: the last loss, a power law without an offset, and a Chinchilla law of other sources."""

from collections.abc import Sequence
from typing import Self

import numpy as np

from toposcale.forecasting.laws.chinchilla import fit_chinchilla
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.laws.residuals import student_t, variance_inflation
from toposcale.forecasting.runs.published_run import CONSTANT, PublishedRun
from toposcale.forecasting.runs.training_run import MINIMUM_POINTS, Target, TrainingRun
from toposcale.io.errors import NoForecast


class LastValue:
    """The loss stays as it is. Its interval reaches as far as the loss moved over the last stretch that is as long.

    Lengths are ratios of steps: from a fifth of a run to its end the loss may move as it did over the last factor of five.
    """

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Read the curve; NoForecast: it is empty."""
        if run.loss_curve.is_empty:
            raise NoForecast("it has no loss after the warm-up")
        self._curve, self._step = run.loss_curve, run.progress.step
        return self

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return the last loss for each target."""
        steps, losses = self._curve
        earlier = [np.log(self._step**2 / max(target.step, self._step)) for target in targets]
        moved = [abs(float(np.interp(step, np.log(steps), losses)) - self._curve.level) for step in earlier]
        return [Prediction.of(self._curve.level, max(by, 1e-3) / 2) for by in moved]


class PurePowerLaw:
    """Power law L = a t^-b of the steps, without an offset: a line in logarithms, with its prediction interval.

    References
    ----------
    Kaplan et al. 2020, arXiv 2001.08361 (losses as pure power laws).
    """

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Fit the line to the loss curve; NoForecast: it has too few points."""
        steps, losses = run.loss_curve
        if len(steps) < MINIMUM_POINTS or losses.min() <= 0:
            raise NoForecast(f"fewer than {MINIMUM_POINTS} positive losses after the warm-up")
        self._x = np.log(steps)
        slope, self._mean = np.polyfit(self._x - self._x.mean(), np.log(losses), 1)
        self.exponent_ = -float(slope)
        residuals = np.log(losses) - self._mean - slope * (self._x - self._x.mean())
        degrees_of_freedom = len(steps) - 2
        self._noise = float(np.sum(residuals**2)) / degrees_of_freedom
        self._inflation, self._quantile = variance_inflation(residuals, parameters=2), student_t(degrees_of_freedom)
        return self

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return the values of the line with their 95% intervals."""
        away = np.log([target.step for target in targets]) - self._x.mean()
        spread = self._inflation * (1 / len(self._x) + away**2 / np.sum((self._x - self._x.mean()) ** 2)) + 1
        half = self._quantile * np.sqrt(self._noise * spread)
        values = np.exp(self._mean - self.exponent_ * away)
        return [
            Prediction(float(value), float(value * np.exp(-width)), float(value * np.exp(width)))
            for value, width in zip(values, half, strict=True)
        ]


class SourcesChinchilla:
    """Scaling law in N and D that is fitted to the ends of the runs of other sources. It reads no curve.

    References
    ----------
    Hoffmann et al. 2022, arXiv 2203.15556, approach 3.
    """

    def learn(self, runs: Sequence[PublishedRun], left_out: str) -> Self:
        """Fit the law to the ends of runs of pretraining whose rate decays."""
        kept = [run for run in runs if not run.kind and run.shape != CONSTANT and run.losses[-1] > 0]
        points = [np.array([run.n_parameters, run.tokens, run.losses[-1]]) for run in kept]
        sizes, tokens, losses = np.array(points).T
        self.law_ = fit_chinchilla(sizes, tokens, losses)
        self.deviation_ = float(np.std(np.log(losses / self.law_(sizes, tokens))))
        return self

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Read nothing of the run."""
        return self

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return the losses of the law; NoForecast: the tokens of a step are not known."""
        tokens = [target.cost.tokens(target.step) for target in targets]
        if not np.all(np.isfinite(tokens)):
            raise NoForecast("the tokens of a step are not known")
        values = [float(self.law_(target.n_parameters, read)) for target, read in zip(targets, tokens, strict=True)]
        return [Prediction.of(value, value * self.deviation_) for value in values]
