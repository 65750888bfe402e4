"""Forecasts from the rate of change of a series: the topology-only forecast of the paper, and its two baselines."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from toposcale.analysis.training_runs import features_of
from toposcale.features.feature import NEURAL_PERSISTENCE
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.laws.residuals import student_t
from toposcale.forecasting.runs.curves import binned
from toposcale.forecasting.runs.training_run import Target, TrainingRun
from toposcale.io.errors import NoForecast

GRADIENT_NORM = "gradients/gradient_norm"
FEWEST_RATE_POINTS = 4
"""Points of the series and the loss that a line is fitted to; three fit nearly any line."""


class _Line(NamedTuple):
    slope: float
    slope_error: float
    residual: float  # standard deviation of the residuals


class RateForecaster:
    """Forecasters `topology_rate`, `weight_norm` and `gradient_norm`: the series continues at its present rate.

    With u = log(step + warm-up steps), over the later half of the checkpoints seen after the warm-up (at least three, of
    four or more): L(step) = L_now + (dL / dx) (dx / du) (u(step) - u_now), both slopes by least squares. The paper states
    its TDA-only forecast in words only (rate of change of neural persistence and remaining steps); this is the form used
    here, in log steps because losses and norms move evenly in those. The same form on the weight norm and on the gradient
    norm shows what the series itself adds.
    """

    def __init__(self, series: str = NEURAL_PERSISTENCE.name) -> None:
        self.series = series

    def fit(self, training: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Fit both lines; NoForecast: too few points, or a series that does not change."""
        steps, values, losses = self._points(training)
        name = self.series.rpartition("/")[2]
        warm = steps >= max(training.schedule.warmup_steps, 1)
        steps, values, losses = steps[warm], values[warm], losses[warm]
        if len(steps) < FEWEST_RATE_POINTS:
            raise NoForecast(f"fewer than {FEWEST_RATE_POINTS} points of {name} with a loss after the warm-up")
        self._shift = float(max(training.schedule.warmup_steps, 1))
        kept = slice(-max(3, (len(steps) + 1) // 2), None)
        values, losses, times = values[kept], losses[kept], np.log(steps[kept] + self._shift)
        if np.ptp(values) <= 1e-12 * np.max(np.abs(values)):
            raise NoForecast(f"{name} does not change")
        self._loss_by_value, self._value_by_time = _line(values, losses), _line(times, values)
        self._last_time, self._last_loss = float(times[-1]), float(losses[-1])
        self._degrees_of_freedom = len(times) - 2
        return self

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return losses with their 95% intervals."""
        return [self._prediction(target.step) for target in targets]

    def _prediction(self, step: int) -> Prediction:
        """Return the loss at a step with its 95% interval."""
        ahead = np.log(step + self._shift) - self._last_time
        loss, value = self._loss_by_value, self._value_by_time
        forecast = float(self._last_loss + loss.slope * value.slope * ahead)
        variance = ahead**2 * ((loss.slope * value.slope_error) ** 2 + (value.slope * loss.slope_error) ** 2)
        if forecast <= 0:
            raise NoForecast("the loss would be negative")
        high = float(forecast + student_t(self._degrees_of_freedom) * np.sqrt(variance + loss.residual**2))
        return Prediction(float(forecast), max(2 * forecast - high, forecast**2 / high), high)

    def _points(self, training: TrainingRun) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        logged = np.isfinite(training.gradient_norms).sum() >= 3 and len(training.loss_curve.steps) >= 3
        if self.series == GRADIENT_NORM and logged:
            steps, norms = binned(training.steps, training.gradient_norms, training.schedule)
            return steps, norms, np.interp(steps, *training.loss_curve)
        values = features_of(training).get(self.series, np.full(len(training.checkpoint_steps), np.nan))
        losses = training.checkpoint_losses
        if not np.isfinite(losses).any() and len(training.loss_curve.steps):
            losses = np.interp(training.checkpoint_steps, *training.loss_curve)
        usable = np.isfinite(values) & np.isfinite(losses)
        return training.checkpoint_steps[usable], values[usable], losses[usable]


def _line(x: np.ndarray, y: np.ndarray) -> _Line:
    centred = x - x.mean()
    spread = float(centred @ centred)
    slope = float(centred @ y) / spread
    residuals = y - y.mean() - slope * centred
    residual = float(np.sqrt(residuals @ residuals / max(len(x) - 2, 1)))
    return _Line(slope, residual / float(np.sqrt(spread)), residual)
