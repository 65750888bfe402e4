"""Interface of the laws that decisions use: joint forecasts for any size under any schedule."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.runs.training_run import Target, TrainingRun

FORECAST_POINTS = 48
"""Most points of a forecast curve."""


class JointForecast(NamedTuple):
    """Losses of several targets and the covariance of their errors.

    Parameters
    ----------
    losses : ndarray of shape (n_targets,)
        Nats per token.
    covariance : ndarray of shape (n_targets, n_targets)
        Nats squared.
    """

    losses: np.ndarray
    covariance: np.ndarray

    def prediction(self, index: int) -> Prediction:
        """Return one loss with its interval; NoForecast: it is not positive."""
        return Prediction.of(float(self.losses[index]), float(np.sqrt(self.covariance[index, index])))


class ForecastCurve(NamedTuple):
    """Ascending steps, the losses forecast there, and the ends of their 95% intervals, nats per token, (steps,) each."""

    step: list[int]
    loss: list[float]
    low: list[float]
    high: list[float]


class Estimator(Protocol):
    """Protocol of the laws that are judged, and of the forecasting methods of a run of the workflow.

    A law may also have `learn(runs, left_out)`, which is called first with the finished runs of all other sources and the
    name of the source that is left out.
    """

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Any:
        """Fit the law to a run as it stands and to finished runs of its family, or raise NoForecast."""

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return the forecasts of losses, or raise NoForecast, such as for a target of another size."""


class Law(ABC):
    """A law of the loss of a family of runs, for any number of parameters and any learning-rate schedule.

    Attributes
    ----------
    runs_ : sequence of TrainingRun
        Runs that were read; none by a published law.
    """

    runs_: Sequence[TrainingRun] = ()

    @property
    def n_sizes(self) -> int:
        """Number of sizes whose losses were read."""
        return len({run.n_parameters for run in self.runs_})

    @abstractmethod
    def predict_jointly(self, targets: Sequence[Target]) -> JointForecast:
        """Predict losses with the covariance of their errors, so that shared errors cancel in differences."""

    def compare(self, targets: Sequence[Target], reference: int) -> JointForecast:
        """Predict losses of which only the differences are used; the loss of index `reference` is that of `predict`."""
        return self.predict_jointly(targets)

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Predict losses.

        Parameters
        ----------
        targets : sequence of Target
            Size, schedule and step of each loss, as of `TrainingRun.target`.

        Returns
        -------
        list of Prediction
            Losses in nats per token with their 95% intervals.

        Raises
        ------
        NoForecast
            If the law gives no positive loss.
        """
        joint = self.predict_jointly(targets)
        return [joint.prediction(index) for index in range(len(targets))]

    def forecast(self, run: TrainingRun, step: int | None = None) -> Prediction:
        """Forecast the loss of a run of the family, which may not have started, at the end of its schedule or at a step."""
        return self.predict([run.target(step)])[0]

    def forecast_curve(self, run: TrainingRun) -> ForecastCurve:
        """Forecast the losses of a run from its next step to the end, at up to `FORECAST_POINTS` steps."""
        spaced = np.geomspace(run.progress.step + 1, run.final_step, FORECAST_POINTS)
        steps = np.unique(np.rint(spaced)).astype(int).tolist()
        ends = [self.forecast(run, step) for step in steps]
        return ForecastCurve(steps, [end.value for end in ends], [end.low for end in ends], [end.high for end in ends])
