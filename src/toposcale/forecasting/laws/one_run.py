"""A law of one run as the program asks it: not about a curve that cannot be forecast, nor about another size."""

from collections.abc import Sequence
from typing import Any, Self

from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.runs.checks import refuse_curve, refuse_forecast
from toposcale.forecasting.runs.training_run import Target, TrainingRun
from toposcale.io.errors import NoForecast


class OneRun:
    """Law that forecasts the run that it is fitted to, with the checks of the program before and after.

    Parameters
    ----------
    law : estimator
        Law with `fit` and `predict`, and perhaps `learn`.
    """

    def __init__(self, law: Any) -> None:
        self.law = law

    def learn(self, runs: Sequence[TrainingRun], left_out: str) -> Self:
        """Let the law learn from other sources, if it does."""
        if hasattr(self.law, "learn"):
            self.law.learn(runs, left_out)
        return self

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Fit the law; NoForecast: the curve is in a spike, rises, or has no losses in nats."""
        refuse_curve(run)
        self._run = run
        self.law.fit(run, others)
        return self

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return the forecasts; NoForecast: of another size, or above the present loss under a decaying rate."""
        if any(target.model != self._run.model for target in targets):
            raise NoForecast("this law forecasts the run that it was fitted to, and no other size")
        forecasts: list[Prediction] = self.law.predict(targets)
        for forecast in forecasts:
            refuse_forecast(self._run, forecast.value)
        return forecasts
