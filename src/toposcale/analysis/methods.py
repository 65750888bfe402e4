"""Registry of the forecasting methods: the name of each, what it reads, and how it is made.

Every method is an estimator: `make(name, family).fit(run, others).predict(targets)`. A new method is one entry of
`METHODS`.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Self

import numpy as np

from toposcale.analysis.ridge import Ridge
from toposcale.analysis.training_runs import features_of
from toposcale.features.feature import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.forecasting.laws.chinchilla import Chinchilla
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.law import Estimator
from toposcale.forecasting.laws.multi_power_law import MultiPowerLaw, refuse_unknown_schedule
from toposcale.forecasting.laws.power_law import PowerLaw
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.laws.published_law import refuse_young
from toposcale.forecasting.laws.residuals import student_t
from toposcale.forecasting.runs.checks import refuse_curve, refuse_forecast
from toposcale.forecasting.runs.curves import binned
from toposcale.forecasting.runs.training_run import Target, TrainingRun
from toposcale.io.errors import NoForecast

GRADIENT_NORM = "gradients/gradient_norm"
MIN_RATE_POINTS = 4
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
        if len(steps) < MIN_RATE_POINTS:
            raise NoForecast(f"fewer than {MIN_RATE_POINTS} points of {name} with a loss after the warm-up")
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


class JointForecaster(Joint):
    """Forecaster `joint`: the law of the run's family, where the schedule is known and its intervals hold."""

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Fit to the run and to the others of its family."""
        refuse_unknown_schedule(run)
        refuse_young(run)
        return super().fit(run, others)


class Combined:
    """Forecaster `combined`: the mean of power_law and topology_rate, and the mean of the ends of their intervals.

    The ends are those of two fully dependent errors, since both read the same losses.
    """

    def __init__(self) -> None:
        self.forecasters: tuple[Estimator, ...] = (PowerLaw(), RateForecaster(NEURAL_PERSISTENCE.name))

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Fit both forecasters."""
        for forecaster in self.forecasters:
            forecaster.fit(run, others)
        return self

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return the means of both forecasts."""
        pairs = zip(*(forecaster.predict(targets) for forecaster in self.forecasters), strict=True)
        means = [np.mean([(row.value, row.low, row.high) for row in pair], axis=0) for pair in pairs]
        return [Prediction(*mean.tolist()) for mean in means]


class Family(NamedTuple):
    """Runs that a method may read besides the run itself."""

    beginnings: Sequence[TrainingRun] = ()  # the first part of every run, cut at one share of its training
    finished: Mapping[str, TrainingRun] = MappingProxyType({})  # finished runs by model, whole
    seed: int = 0  # of the methods that draw random numbers


class Method(NamedTuple):
    """A forecasting method."""

    description: str  # its name in sentences
    reads: str  # the most informative of what it reads: loss, size, norm, topology, everything
    make: Callable[[Family], Estimator]  # an estimator from the family


def _ridge(kind: str) -> Callable[[Family], Estimator]:
    return lambda family: Ridge(kind, family.beginnings, family.finished)


METHODS = {
    "power_law": Method("the power law", "loss", lambda family: PowerLaw()),
    "multi_power_law": Method("the multi-power law", "loss", lambda family: MultiPowerLaw()),
    "joint": Method("the joint law of all sizes", "loss", lambda family: JointForecaster(check=False)),
    "chinchilla": Method("the Chinchilla law", "loss", lambda family: Chinchilla(seed=family.seed)),
    "gradient_norm": Method("the rate of the gradient norm", "norm", lambda family: RateForecaster(GRADIENT_NORM)),
    "weight_norm": Method("the rate of the weight norm", "norm", lambda family: RateForecaster(WEIGHT_NORM.name)),
    "topology_rate": Method(
        "the rate of neural persistence", "topology", lambda family: RateForecaster(NEURAL_PERSISTENCE.name)
    ),
    "combined": Method("its mean with the power law", "topology", lambda family: Combined()),
    "ridge_topology": Method("a regression on all topology", "topology", _ridge("ridge_topology")),
    "ridge_loss": Method("a regression on the loss", "loss", _ridge("ridge_loss")),
    "ridge_size": Method("a regression on the number of parameters alone", "size", _ridge("ridge_size")),
    "ridge_all": Method("a regression on everything", "everything", _ridge("ridge_all")),
}
"""Forecasting methods by their name in the tables."""


NO_FAMILY = Family()
"""No other runs."""


def make(method: str, family: Family = NO_FAMILY) -> Estimator:
    """Make the forecaster of this name in `METHODS`, not fitted."""
    if method not in METHODS:
        raise ValueError(f"method: one of {', '.join(METHODS)}, got {method!r}")
    return METHODS[method].make(family)


JOINT = "joint"
POWER_LAW = "power_law"
DEFAULTS = (JOINT, POWER_LAW)
"""Joint law of the family, where the learning-rate schedule is known; else the power law."""


def default_method(training: TrainingRun) -> str:
    """Return the name of the first method of `DEFAULTS` that can forecast a run."""
    return JOINT if training.schedule.is_known else POWER_LAW


def forecast(forecaster: Estimator, training: TrainingRun, others: Sequence[TrainingRun] = ()) -> Prediction:
    """Forecast the final loss of a run; a prediction with only a reason where there is none, or an implausible one.

    others: runs as they stand; those of other families are not read.
    """
    try:
        refuse_curve(training)
        family = [other for other in others if other.family == training.family]
        [prediction] = forecaster.fit(training, family).predict([training.target()])
        refuse_forecast(training, prediction.value)
    except NoForecast as error:
        return Prediction.none(str(error))
    return prediction
