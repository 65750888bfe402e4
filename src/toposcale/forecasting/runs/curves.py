"""Points of a loss curve, and the selection of those that a law is fitted to."""

from typing import NamedTuple, Self

import numpy as np

from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.outliers import is_dip, is_excursion, is_spike
from toposcale.forecasting.runs.series import bin_medians

LOG_BINS = 40
"""Geometric bins of a training log; a bin is worth the median of its rows."""


class Curve(NamedTuple):
    """Points of a loss curve: ascending steps and values, both (points,)."""

    steps: np.ndarray
    losses: np.ndarray

    @classmethod
    def finite(cls, steps: np.ndarray, values: np.ndarray) -> Self:
        """Return the finite values (rows,), each with its step."""
        usable = np.isfinite(values)
        return cls(steps[usable], values[usable])

    @property
    def is_empty(self) -> bool:
        """Return whether there is no point."""
        return not len(self.steps)

    @property
    def level(self) -> float:
        """Level at the end: the median of the last three points; NaN without a point."""
        return float(np.median(self.losses[-3:])) if len(self.losses) else np.nan

    def since(self, step: float) -> Self:
        """Return the points from a step on."""
        later = self.steps >= step
        return self._replace(steps=self.steps[later], losses=self.losses[later])


def after_warmup(steps: np.ndarray, values: np.ndarray, schedule: LearningRateSchedule) -> Curve:
    """Return the finite values (rows,) from the end of the warm-up on, spikes included."""
    return Curve.finite(steps, values).since(max(schedule.warmup_steps, 1))


def is_outlier(steps: np.ndarray, values: np.ndarray, schedule: LearningRateSchedule) -> np.ndarray:
    """Return whether each value (rows,) after the warm-up is a spike, or belongs to an excursion or a dip."""
    outliers = np.isfinite(values) & (steps >= max(schedule.warmup_steps, 1))
    outliers[outliers] = is_spike(values[outliers]) | is_excursion(values[outliers]) | is_dip(values[outliers])
    return outliers


def binned(steps: np.ndarray, values: np.ndarray, schedule: LearningRateSchedule) -> Curve:
    """Return medians of values (rows,) after the warm-up, in `LOG_BINS` geometric bins and more in a decay."""
    steps, values = after_warmup(steps, np.where(is_outlier(steps, values, schedule), np.nan, values), schedule)
    return Curve(*bin_medians(steps, values, LOG_BINS, schedule.rates))
