"""Collapse of loss curves: normalised by their ends, runs of two sizes follow one curve (arXiv 2507.02119, 2509.25087)."""

from collections.abc import Sequence
from typing import Self

import numpy as np

from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.runs.training_run import MINIMUM_POINTS, Target, TrainingRun
from toposcale.io.errors import NoForecast

SAME_RATIO = 2.0
"""Largest ratio between the tokens per parameter of two runs whose curves are taken to collapse."""

WINDOW = 0.5
"""Share of the observed steps, the last ones, by which the curves are aligned."""


class Collapse:
    """Forecast by the curve of a smaller, finished run, aligned with the run at equal shares of their lengths.

    The end is the loss times the ratio of the end of the smaller run to its loss at that share, as a mean over the last
    quarter of what was seen. The interval is that of the drift of this ratio: it may move as much again as it did between
    the halves of the window. Curves collapse where tokens per parameter, schedule and timescale of the optimizer are equal.

    References
    ----------
    Qiu et al. 2025, arXiv 2507.02119; Bergsma et al. 2025, arXiv 2509.25087.
    """

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Align the run with a finished smaller one; NoForecast: there is none with as many tokens per parameter."""
        finished = [other for other in others if other.is_finished and other.n_parameters < run.n_parameters]
        if not finished:
            raise NoForecast("no smaller run of its family is finished")
        smaller = max(finished, key=lambda other: other.n_parameters)
        ratio = _tokens_per_parameter(run) / _tokens_per_parameter(smaller)
        if not 1 / SAME_RATIO <= ratio <= SAME_RATIO:
            raise NoForecast("the smaller run has another number of tokens per parameter")
        steps, losses = run.loss_curve.since(WINDOW * run.progress.step)
        if len(steps) < MINIMUM_POINTS:
            raise NoForecast(f"fewer than {MINIMUM_POINTS} losses to align")
        self._run, self._smaller = run, smaller
        self._log_ratios = np.log(losses / self._loss_of_smaller(steps / run.final_step))
        return self

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return the losses; NoForecast: of another run."""
        if any(target.model != self._run.model for target in targets):
            raise NoForecast("the curves collapse for the run that was aligned, and no other size")
        half = len(self._log_ratios) // 2
        drift = abs(float(self._log_ratios[half:].mean() - self._log_ratios[:half].mean()))
        noise = float(self._log_ratios.std()) / np.sqrt(half)
        values = [
            float(self._loss_of_smaller(target.step / self._run.final_step) * np.exp(self._log_ratios[half:].mean()))
            for target in targets
        ]
        return [Prediction.of(value, value * float(np.hypot(drift, noise))) for value in values]

    def _loss_of_smaller(self, shares: np.ndarray | float) -> np.ndarray:
        """Return the losses of the smaller run at shares of its length."""
        steps, losses = self._smaller.loss_curve
        return np.interp(np.log(shares), np.log(steps / self._smaller.final_step), losses)


def _tokens_per_parameter(run: TrainingRun) -> float:
    """Return the tokens of a whole run for each of its parameters."""
    return run.cost.tokens(run.final_step) / run.n_parameters
