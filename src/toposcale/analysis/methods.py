"""Registry of the forecasting methods: the name of each, what it reads, and how it is made.

Every method is an estimator: `make(name, family).fit(run).predict(step)`. A new method is one entry of `METHODS`.
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
from toposcale.forecasting.laws.multi_power_law import DISCREPANCY, TIGHTNESS, MultiPowerLaw
from toposcale.forecasting.laws.power_law import PowerLaw
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.runs.checks import refuse_curve, refuse_forecast
from toposcale.forecasting.runs.training_run import MINIMUM_POINTS, TrainingRun
from toposcale.io.errors import NoForecast


class Forecaster(Protocol):
    """Protocol of the forecasting methods: estimators with `fit` and `predict`.

    Examples
    --------
    >>> from toposcale.analysis.methods import METHODS, make
    >>> all(hasattr(make(name), "predict") for name in METHODS)
    True
    """

    def fit(self, training: TrainingRun) -> Self:
        """Fit the method to a run as it stands, or raise NoForecast."""

    def predict(self, step: float) -> Prediction:
        """Return the forecast of the loss at a step, or raise NoForecast."""


class MultiPowerLawForecaster:
    """Forecaster `multi_power_law`: the law on the run's own curve and its whole learning-rate schedule."""

    def __init__(self, tightness: float = TIGHTNESS, discrepancy: float = DISCREPANCY) -> None:
        self.law = MultiPowerLaw(tightness, discrepancy)

    def fit(self, training: TrainingRun) -> Self:
        """Fit the law to `training.loss_curve`."""
        self._rates = _known_rates(training)
        steps, losses = training.loss_curve
        inside = steps < len(self._rates)
        try:
            self.law.fit([(self._rates, np.rint(steps[inside]).astype(np.int64), losses[inside])])
        except ValueError as error:
            raise NoForecast(str(error)) from error
        return self

    def predict(self, step: float) -> Prediction:
        """Return the loss at a step that the schedule reaches (its last rate also serves the step after it)."""
        where = min(round(step), len(self._rates) - 1) if step <= len(self._rates) else round(step)
        if where >= len(self._rates):
            raise NoForecast(f"the schedule ends before step {where}")
        value = float(self.law.predict(self._rates, np.array([where]))[0])
        if not value > 0:
            raise NoForecast("the law gives no positive loss")
        return Prediction(value, *self.law.interval(self._rates, where))


class JointForecaster:
    """Forecaster `joint`: the law of the run's family, as far as each of its runs has come."""

    def __init__(self, family: Sequence[TrainingRun]) -> None:
        self.family = list(family)

    def fit(self, training: TrainingRun) -> Self:
        """Fit to the run and to the others of its family."""
        _known_rates(training)
        self.training = training
        same = [known for known in self.family if known.family == training.family]
        self.law = Joint(check=False).fit(training, same)
        return self

    def predict(self, step: float) -> Prediction:
        """Return the loss of the fitted run at a step."""
        return self.law.forecast(self.training, round(step))


class ChinchillaForecaster:
    """Forecaster `chinchilla`: one L(N, D) for the first k% of every run of the family."""

    def __init__(self, family: Sequence[TrainingRun], seed: int = 0) -> None:
        self.family, self.seed = list(family), seed
        self._laws: dict[str, Chinchilla] = {}

    def fit(self, training: TrainingRun) -> Self:
        """Fit to the curves of the family and of the run; one fit serves all members of the family."""
        self.training = training
        same = [known for known in self.family if known.family == training.family]
        if not any(known is training for known in same):
            others = [known for known in same if known.model != training.model]
            self.law = self._fitted([*others, training])
            return self
        if training.family not in self._laws:
            self._laws[training.family] = self._fitted(same)
        self.law = self._laws[training.family]
        return self

    def _fitted(self, family: Sequence[TrainingRun]) -> Chinchilla:
        return Chinchilla().fit(*points_of(family)).bootstrap(np.random.default_rng(self.seed))

    def predict(self, step: float) -> Prediction:
        """Return the loss of the fitted run at a step."""
        size, tokens = float(self.training.n_parameters), step * float(self.training.tokens_per_step)
        return Prediction(float(self.law.predict(size, tokens)), *self.law.interval(size, tokens))


def points_of(family: Sequence[TrainingRun]) -> np.ndarray:
    """Return sizes, tokens and losses (3, points) of the curves of a family; NoForecast: fewer than three sizes."""
    triples = [
        np.stack([np.full(len(steps), member.n_parameters), steps * member.tokens_per_step, losses])
        for member in sorted(family, key=lambda member: member.model)
        for steps, losses in [member.loss_curve]
        if len(steps) >= MINIMUM_POINTS
    ]
    points = np.concatenate(triples, axis=1) if triples else np.empty((3, 0))
    points = points[:, np.all(np.isfinite(points) & (points > 0), axis=0)]
    if len(np.unique(points[0])) < 3:
        raise NoForecast("fewer than 3 sizes with a loss curve")
    return points


class Combined:
    """Forecaster `combined`: the mean of power_law and topology_rate, and the mean of the ends of their intervals.

    The ends are those of two fully dependent errors, since both read the same losses.
    """

    def __init__(self) -> None:
        self.parts: tuple[Forecaster, ...] = (PowerLaw(), RateForecaster(NEURAL_PERSISTENCE.name))

    def fit(self, training: TrainingRun) -> Self:
        """Fit both parts."""
        for part in self.parts:
            part.fit(training)
        return self

    def predict(self, step: float) -> Prediction:
        """Return the mean of both forecasts."""
        predictions = [part.predict(step) for part in self.parts]
        value, low, high = np.mean([(one.value, one.low, one.high) for one in predictions], axis=0)
        return Prediction(float(value), float(low), float(high))


def _known_rates(training: TrainingRun) -> np.ndarray:
    """Return the learning rates to the end; NoForecast: they are not known."""
    if not training.schedule.is_known:
        raise NoForecast(training.schedule.unknown_because or "the learning-rate schedule is not known")
    return training.schedule.rates


class Family(NamedTuple):
    """Runs that a method may read beside the run itself.

    Parameters
    ----------
    cut : sequence of TrainingRun
        Runs of all families as they stood at one share of their training.
    finished : mapping of str to TrainingRun
        Finished runs by name, whole.
    seed : int
        Seed of the methods that draw random numbers.
    """

    cut: Sequence[TrainingRun] = ()
    finished: Mapping[str, TrainingRun] = MappingProxyType({})
    seed: int = 0


class Method(NamedTuple):
    """A forecasting method.

    words: its name in sentences. reads: the most informative of what it reads beside schedule and steps: loss, size, norm,
    topology, or everything. make: an estimator from the family.
    """

    words: str
    reads: str
    make: Callable[[Family], Forecaster]


def _ridge(kind: str) -> Callable[[Family], Forecaster]:
    return lambda family: Ridge(kind, family.cut, family.finished)


METHODS = {
    "power_law": Method("the power law", "loss", lambda family: PowerLaw()),
    "multi_power_law": Method("the multi-power law", "loss", lambda family: MultiPowerLawForecaster()),
    "joint": Method("the joint law of all sizes", "loss", lambda family: JointForecaster(family.cut)),
    "chinchilla": Method("the Chinchilla law", "loss", lambda family: ChinchillaForecaster(family.cut, family.seed)),
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
"""Nothing beside the run itself."""


def make(method: str, family: Family = ALONE) -> Forecaster:
    """Make a forecaster by its name.

    Parameters
    ----------
    method : str
        Name in `METHODS`.
    family : Family, optional
        Other runs that the method may read; none by default.

    Returns
    -------
    Forecaster
        Estimator that has not been fitted.

    Raises
    ------
    ValueError
        If there is no such method.

    Examples
    --------
    >>> from toposcale.analysis.methods import make
    >>> type(make("multi_power_law")).__name__
    'MultiPowerLawForecaster'
    """
    if method not in METHODS:
        raise ValueError(f"method: one of {', '.join(METHODS)}, got {method!r}")
    return METHODS[method].make(family)


DEFAULTS = ("joint", "power_law")
"""Joint law of the family, where the learning-rate schedule is known; else the power law."""


def default_method(training: TrainingRun) -> str:
    """Return the first of `DEFAULTS` that can forecast a run."""
    return DEFAULTS[0] if training.schedule.is_known else DEFAULTS[1]


def forecast(forecaster: Forecaster, training: TrainingRun) -> Prediction:
    """Forecast the final loss of a run.

    Parameters
    ----------
    forecaster : Forecaster
        Estimator, as of `make`.
    training : TrainingRun
        The run as it stands.

    Returns
    -------
    Prediction
        Final loss in nats per token with its 95% interval; without numbers, with the reason, where there is no forecast or
        an implausible one.

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.analysis.methods import forecast, make
    >>> from toposcale.forecasting import LearningRateSchedule, RunMetadata, TrainingRun
    >>> steps = np.arange(100, 2001, 100)
    >>> schedule = LearningRateSchedule(4000, np.full(4001, 1e-3))
    >>> run = TrainingRun(RunMetadata("25M", 25_000_000), schedule, steps=steps, losses=2.5 + 20 * steps**-0.5)
    >>> round(forecast(make("power_law"), run).value, 2)
    2.82
    >>> forecast(make("chinchilla"), run).reason
    'fewer than 3 sizes with a loss curve'
    """
    try:
        refuse_curve(training)
        prediction = forecaster.fit(training).predict(training.final_step)
        refuse_forecast(training, prediction.value)
    except NoForecast as error:
        return Prediction.none(str(error))
    return prediction
