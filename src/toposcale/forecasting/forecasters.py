"""Every forecasting method by its name: `make_forecaster(name, ...).fit(history).predict(step)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from toposcale.features.registry import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.forecasting.chinchilla import Chinchilla
from toposcale.forecasting.history import MINIMUM_POINTS, History, Prediction, no_prediction
from toposcale.forecasting.joint import JointForecaster
from toposcale.forecasting.multi_power_law import MISFIT, TIGHTNESS, MultiPowerLaw
from toposcale.forecasting.power_law import PowerLaw
from toposcale.forecasting.rate import GRADIENT_NORM, RateForecaster
from toposcale.forecasting.ridge import RIDGES, Ridge


class Forecaster(Protocol):
    """What every method does."""

    def fit(self, history: History) -> Forecaster:
        """Learn from a history, which holds only what has been seen."""

    def predict(self, step: float) -> Prediction:
        """The loss at `step` with its 95% interval, or NaN with a reason."""


class MultiPowerLawForecaster:
    """Forecaster `multi_power_law`: the law on the run's own curve and its whole learning-rate schedule."""

    def __init__(self, tightness: float = TIGHTNESS, misfit: float = MISFIT) -> None:
        self.law = MultiPowerLaw(tightness, misfit)

    def fit(self, history: History) -> MultiPowerLawForecaster:
        """Fit the law to `history.loss_curve`."""
        self.reason = ""
        self._rates = history.learning_rates
        steps, losses = history.loss_curve
        if not history.plan_known:
            self.reason = history.plan or "the learning-rate schedule is not known"
            return self
        inside = steps < len(self._rates)
        try:
            self.law.fit([(self._rates, np.rint(steps[inside]).astype(np.int64), losses[inside])])
        except ValueError as error:
            self.reason = str(error)
        return self

    def predict(self, step: float) -> Prediction:
        """Loss at `step`, which the schedule must reach (its last rate also serves the step after it)."""
        if self.reason:
            return no_prediction(self.reason)
        where = min(round(step), len(self._rates) - 1) if step <= len(self._rates) else round(step)
        if where >= len(self._rates):
            return no_prediction(f"the schedule ends before step {where}")
        value = float(self.law.predict(self._rates, np.array([where]))[0])
        if not value > 0:
            return no_prediction("the law gives no positive loss")
        return Prediction(value, *self.law.interval(self._rates, where))


class ChinchillaForecaster:
    """Forecaster `chinchilla`: one L(N, D) for the first k% of every model of the history's family."""

    def __init__(self, family: Sequence[History], seed: int = 0) -> None:
        self.family, self.seed = list(family), seed
        self._holds: str | None = None

    def fit(self, history: History) -> ChinchillaForecaster:
        """Fit to the family's curves and `history`'s; one fit serves all members of the family."""
        self.history = history
        same = [known for known in self.family if known.family == history.family]
        member = any(known is history for known in same)
        if not member:
            self._fit([*(known for known in same if known.model != history.model), history])
        elif self._holds != history.family:
            self._fit(same)
        self._holds = history.family if member else None
        return self

    def _fit(self, family: Sequence[History]) -> None:
        self.reason, self.law = "", Chinchilla()
        triples = [
            np.column_stack(
                [np.full(len(steps), member.n_parameters), steps * member.tokens_per_step, losses]
            )
            for member in sorted(family, key=lambda member: member.model)
            for steps, losses in [member.loss_curve]
            if len(steps) >= MINIMUM_POINTS
        ]
        points = np.concatenate(triples) if triples else np.empty((0, 3))
        points = points[np.all(np.isfinite(points) & (points > 0), axis=1)]
        if len(np.unique(points[:, 0])) < 3:
            self.reason = "fewer than 3 sizes with a loss curve"
            return
        self.law.fit(*points.T).bootstrap(np.random.default_rng(self.seed))

    def predict(self, step: float) -> Prediction:
        """Loss of the fitted history's model after `step` steps."""
        if self.reason:
            return no_prediction(self.reason)
        size, tokens = float(self.history.n_parameters), step * float(self.history.tokens_per_step)
        return Prediction(float(self.law.predict(size, tokens)), *self.law.interval(size, tokens))


class Combined:
    """Forecaster `combined`: the mean of power_law and topology_rate, and the mean of their intervals' ends.

    (The ends are those of two fully dependent errors: both read the same losses.)
    """

    def __init__(self) -> None:
        self.parts: tuple[Forecaster, ...] = (PowerLaw(), RateForecaster(NEURAL_PERSISTENCE.name))

    def fit(self, history: History) -> Combined:
        """Fit both parts."""
        for part in self.parts:
            part.fit(history)
        return self

    def predict(self, step: float) -> Prediction:
        """Mean of both; NaN if either is."""
        predictions = [part.predict(step) for part in self.parts]
        reasons = "; ".join(prediction.reason for prediction in predictions if prediction.reason)
        if reasons:
            return no_prediction(reasons)
        value, low, high = np.mean([(p.value, p.low, p.high) for p in predictions], axis=0).tolist()
        return Prediction(value, low, high)


_CURVES: dict[str, Callable[[Sequence[History], int], Forecaster]] = {
    "power_law": lambda family, seed: PowerLaw(),
    "multi_power_law": lambda family, seed: MultiPowerLawForecaster(),
    "joint": lambda family, seed: JointForecaster(family),
    "chinchilla": ChinchillaForecaster,
    "gradient_norm": lambda family, seed: RateForecaster(GRADIENT_NORM),
    "weight_norm": lambda family, seed: RateForecaster(WEIGHT_NORM.name),
    "topology_rate": lambda family, seed: RateForecaster(NEURAL_PERSISTENCE.name),
    "combined": lambda family, seed: Combined(),
}
CURVE_METHODS = tuple(_CURVES)
"""Those that forecast the loss at any step, and so where two curves cross; ridge knows the end only."""

METHODS = (*CURVE_METHODS, *RIDGES)


def make_forecaster(
    method: str,
    family: Sequence[History] = (),
    finals: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Forecaster:
    """A forecaster by its name in `METHODS`.

    `family` (histories cut at the same share) is read by joint, chinchilla and ridge, `finals` (final loss of
    finished models by name) by ridge. `ValueError` for an unknown name.
    """
    if method not in METHODS:
        raise ValueError(f"method: one of {', '.join(METHODS)}, got {method!r}")
    return _CURVES[method](family, seed) if method in _CURVES else Ridge(method, family, finals or {})


def default_method(history: History) -> str:
    """The method of the advice: the law of all runs of the family where the plan is known, else the power law."""
    return "joint" if history.plan_known else "power_law"


MOST_SPIKES = 0.2


def forecast(forecaster: Forecaster, history: History) -> Prediction:
    """The final loss of a history, or why it is refused: by a fitted forecaster whose answer can be believed at all.

    See `refusal`.
    """
    if reason := refusal(history):
        return no_prediction(reason)
    prediction = forecaster.fit(history).predict(history.final_step)
    reason = refusal(history, prediction.value)
    return no_prediction(reason) if reason else prediction


def refusal(history: History, forecast: float = np.nan) -> str:
    """Why a forecast of the final loss cannot be believed, else "".

    Refused are points of which more than `MOST_SPIKES` are spikes, and a forecast above the present loss under a plan
    whose rate falls.
    """
    if history.spikes > MOST_SPIKES:
        return f"{history.spikes:.0%} of the logged losses are spikes"
    losses = history.loss_curve[1]
    if len(losses) and history.plan_falls and forecast > (now := float(np.median(losses[-3:]))):
        return f"it would be {forecast:.4g}, above the present {now:.4g} under a falling rate"
    return ""
