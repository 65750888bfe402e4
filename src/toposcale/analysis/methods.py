"""Registry of the forecasting methods: the name of each, what it reads, and how it is made.

Every method is an estimator: `make(name, family).fit(run, others).predict(targets)`. A new method is one entry of
`METHODS`.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol, Self

import numpy as np

from toposcale.analysis.rate import GRADIENT_NORM, RateForecaster
from toposcale.analysis.ridge import Ridge
from toposcale.features.feature import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.forecasting.laws.chinchilla import Chinchilla
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.multi_power_law import MultiPowerLaw, refuse_unknown_schedule
from toposcale.forecasting.laws.power_law import PowerLaw
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.laws.published_law import refuse_young
from toposcale.forecasting.runs.checks import refuse_curve, refuse_forecast
from toposcale.forecasting.runs.training_run import Target, TrainingRun
from toposcale.io.errors import NoForecast


class Forecaster(Protocol):
    """Protocol of the forecasting methods: estimators with `fit` and `predict`."""

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Fit the method to a run and others of its family, each as it stands, or raise NoForecast."""

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return the forecasts of losses, or raise NoForecast."""


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
        self.forecasters: tuple[Forecaster, ...] = (PowerLaw(), RateForecaster(NEURAL_PERSISTENCE.name))

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Fit both forecasters."""
        for forecaster in self.forecasters:
            forecaster.fit(run, others)
        return self

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return the means of both forecasts."""
        pairs = zip(*(forecaster.predict(targets) for forecaster in self.forecasters), strict=True)
        means = [np.mean([(one.value, one.low, one.high) for one in pair], axis=0) for pair in pairs]
        return [Prediction(*mean.tolist()) for mean in means]


class Family(NamedTuple):
    """Runs that a method may read beside the run itself: the beginnings of all, and the finished ones by model, whole.

    beginnings: the first part of every run, cut at one share of its training.

    seed: of the methods that draw random numbers.
    """

    beginnings: Sequence[TrainingRun] = ()
    finished: Mapping[str, TrainingRun] = MappingProxyType({})
    seed: int = 0


class Method(NamedTuple):
    """A forecasting method.

    description: its name in sentences. reads: the most informative of what it reads beside schedule and steps: loss, size,
    norm, topology, or everything. make: an estimator from the family.
    """

    description: str
    reads: str
    make: Callable[[Family], Forecaster]


def _ridge(kind: str) -> Callable[[Family], Forecaster]:
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


ALONE = Family()
"""No runs beside the run itself."""


def make(method: str, family: Family = ALONE) -> Forecaster:
    """Make the forecaster of this name in `METHODS`, not fitted."""
    if method not in METHODS:
        raise ValueError(f"method: one of {', '.join(METHODS)}, got {method!r}")
    return METHODS[method].make(family)


JOINT, POWER_LAW = "joint", "power_law"
DEFAULTS = JOINT, POWER_LAW
"""Joint law of the family, where the learning-rate schedule is known; else the power law."""


def default_method(training: TrainingRun) -> str:
    """Return the name of the first method of `DEFAULTS` that can forecast a run."""
    return JOINT if training.schedule.is_known else POWER_LAW


def forecast(forecaster: Forecaster, training: TrainingRun, others: Sequence[TrainingRun] = ()) -> Prediction:
    """Forecast the final loss of a run; a prediction with a reason alone where there is none, or an implausible one.

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
