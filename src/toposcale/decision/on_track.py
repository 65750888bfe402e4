"""Whether the loss of a run is where finished runs of its family say it should be."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toposcale.laws.intervals import NORMAL
from toposcale.laws.joint import Joint
from toposcale.runs.smoothing import noise_of
from toposcale.runs.training_run import TrainingRun

FEWEST_SIZES = 3
"""Finished sizes that a family needs."""


class Track(NamedTuple):
    """The present loss of a run beside the one that its family forecasts.

    Parameters
    ----------
    step : int
        Step of the comparison.
    loss, expected, low, high : float
        Loss, and the forecast of it with its 95% interval, nats per token.
    z : float
        Difference in standard deviations; positive where the loss is too high.
    since : int or None
        First step from which on the loss lies outside the interval; None where it lies inside now.
    """

    step: int
    loss: float
    expected: float
    low: float
    high: float
    z: float
    since: int | None

    @property
    def is_on_track(self) -> bool:
        """Whether the present loss lies inside the interval."""
        return self.since is None


def on_track(run: TrainingRun, family: Sequence[TrainingRun]) -> Track | None:
    """Compare the losses of a run with the law of the finished runs of its family, which does not read them.

    Parameters
    ----------
    run : TrainingRun
        A run under way.
    family : sequence of TrainingRun
        Runs of the same data and tokenizer; those that are not finished are not read.

    Returns
    -------
    Track or None
        None with fewer than `FEWEST_SIZES` finished sizes, without a loss, or without a known learning-rate schedule.
    """
    finished = [other for other in family if other.is_finished and other.rates_known]
    steps, losses = run.loss_curve
    if len({other.n_parameters for other in finished}) < FEWEST_SIZES or not len(steps) or not run.rates_known:
        return None
    targets = [run.unstarted().target(int(step))._replace(model="") for step in steps]
    expected, covariance = Joint().fit(finished).predict(targets)
    deviation = np.hypot(np.sqrt(np.diag(covariance)), noise_of(np.log(losses)) * losses)
    z = (losses - expected) / deviation
    inside = np.flatnonzero(np.abs(z) <= NORMAL)
    first_outside = inside[-1] + 1 if len(inside) else 0
    since = int(steps[first_outside]) if first_outside < len(steps) else None
    half = NORMAL * deviation[-1]
    return Track(
        int(steps[-1]),
        float(losses[-1]),
        float(expected[-1]),
        float(expected[-1] - half),
        float(expected[-1] + half),
        float(z[-1]),
        since,
    )
