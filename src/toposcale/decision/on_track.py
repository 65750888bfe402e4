"""Test whether the loss of a run agrees with its forecast by finished runs of its family."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toposcale.laws.joint import Joint
from toposcale.laws.prediction import NORMAL
from toposcale.runs.series import noise_of
from toposcale.runs.training_run import TrainingRun

FEWEST_SIZES = 3
"""Fewest finished sizes of a family."""


class Track(NamedTuple):
    """The present loss of a run, and its forecast by the family.

    Parameters
    ----------
    step : int
        Step of the comparison.
    loss, expected, low, high : float
        Loss, its forecast and the 95% interval of the forecast, nats per token.
    z : float
        Standardized difference of loss and forecast; positive if the loss is too high.
    since : int or None
        Step since which the loss has been outside the interval; None if it is inside now.
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
        """Return whether the present loss lies inside the interval."""
        return self.since is None


def on_track(run: TrainingRun, family: Sequence[TrainingRun]) -> Track | None:
    """Compare the losses of a run with a law that is fitted only to finished runs of its family.

    Parameters
    ----------
    run : TrainingRun
        An unfinished run.
    family : sequence of TrainingRun
        Runs of the same data and tokenizer; unfinished ones are ignored.

    Returns
    -------
    Track or None
        None with fewer than `FEWEST_SIZES` finished sizes, without a loss, or without a known learning-rate schedule.

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.forecasting import LearningRateSchedule, RunMetadata, TrainingRun, on_track
    >>> schedule, steps = LearningRateSchedule(4000, np.full(4001, 1e-3)), np.arange(100, 4001, 100)
    >>> *family, run = (
    ...     TrainingRun(RunMetadata("", n, 500_000.0), schedule, checkpoint_steps=steps, checkpoint_losses=losses)
    ...     for n in (10**7, 2 * 10**7, 4 * 10**7, 3 * 10**7)
    ...     for losses in [1.7 + 400 * n**-0.34 + 20 * steps**-0.5]
    ... )
    >>> on_track(run.first(0.5), family).is_on_track
    True
    """
    finished = [other for other in family if other.is_finished and other.rates_known]
    steps, losses = run.loss_curve
    if len({other.n_parameters for other in finished}) < FEWEST_SIZES or not len(steps) or not run.rates_known:
        return None
    unseen = run.unstarted("")
    expected, covariance = Joint().fit(finished).predict([unseen.target(int(step)) for step in steps])
    deviation = np.hypot(np.sqrt(np.diag(covariance)), noise_of(np.log(losses)) * losses)
    z = (losses - expected) / deviation
    inside = np.flatnonzero(np.abs(z) <= NORMAL)
    first_outside = inside[-1] + 1 if len(inside) else 0
    since = int(steps[first_outside]) if first_outside < len(steps) else None
    half = NORMAL * deviation[-1]
    values = losses[-1], expected[-1], expected[-1] - half, expected[-1] + half, z[-1]
    return Track._make([int(steps[-1]), *map(float, values), since])
