"""Test whether the loss of a run agrees with finished runs of its family, and with published runs of its size."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.laws.chinchilla import published_tokens
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.prediction import NORMAL
from toposcale.forecasting.laws.published_law import PublishedLaw, has_published_level
from toposcale.forecasting.runs.series import noise_of
from toposcale.forecasting.runs.training_run import TrainingRun

FEWEST_SIZES = 3
"""Fewest finished sizes of a family."""


class Reference(StrEnum):
    """Runs with which a loss is compared."""

    FAMILY = "family"
    PUBLISHED = "published"


class Track(NamedTuple):
    """The present loss of a run, and its forecast by other runs.

    Parameters
    ----------
    reference : Reference
        Runs that make the forecast.
    step : int
        Step of the comparison.
    loss, expected, low, high : float
        Loss, its forecast and the 95% interval of the forecast, nats per token.
    z : float
        Standardized difference of loss and forecast; positive if the loss is too high.
    since : int or None
        Step since which the loss has been outside the interval; None if it is inside now.
    tokens_factor : float or None
        Factor on the tokens per step with which published runs have this loss; None inside the interval, where no number
        of tokens gives it, and of a family.
    """

    reference: Reference
    step: int
    loss: float
    expected: float
    low: float
    high: float
    z: float
    since: int | None
    tokens_factor: float | None

    @property
    def is_on_track(self) -> bool:
        """Return whether the present loss lies inside the interval."""
        return self.since is None


def on_track(run: TrainingRun, family: Sequence[TrainingRun] = ()) -> Track | None:
    """Compare the losses of a run with finished runs of its family, or, with too few of them, with published runs.

    Parameters
    ----------
    run : TrainingRun
        An unfinished run.
    family : sequence of TrainingRun, optional
        Runs of the same data and tokenizer; unfinished ones are ignored.

    Returns
    -------
    Track or None
        By the family from `FEWEST_SIZES` finished sizes on, if the learning-rate schedule is known; else by published runs:
        a published scaling law with their scatter. None without a loss, and by published runs below 25M parameters or
        without the tokens of a step.

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
    >>> print(on_track(run.first(0.5)).reference)
    published
    """
    return next(iter(tracks_of(run, family)), None)


def tracks_of(run: TrainingRun, family: Sequence[TrainingRun] = ()) -> tuple[Track, ...]:
    """Return every comparison of a run that can be made: by its family, then by published runs."""
    tracks = []
    if not len(run.loss_curve.steps):
        return ()
    finished = [other for other in family if other.is_finished and other.rates_known]
    if len({other.n_parameters for other in finished}) >= FEWEST_SIZES and run.rates_known:
        tracks.append(_compared(run, Joint().fit(finished), Reference.FAMILY))
    if has_published_level(run):
        track = _compared(run, PublishedLaw(), Reference.PUBLISHED)
        factor = published_tokens(run.n_parameters, track.loss) / (track.step * run.tokens_per_step)
        fits = not track.is_on_track and np.isfinite(factor)
        tracks.append(track._replace(tokens_factor=factor if fits else None))
    return tuple(tracks)


def _compared(run: TrainingRun, law: Joint, reference: Reference) -> Track:
    """Return the comparison of a run with the forecasts of a law that did not read it."""
    steps, losses = run.loss_curve
    unseen = run.unstarted("")
    expected, covariance = law.predict([unseen.target(int(step)) for step in steps])
    deviation = np.hypot(np.sqrt(np.diag(covariance)), noise_of(np.log(losses)) * losses)
    z = (losses - expected) / deviation
    inside = np.flatnonzero(np.abs(z) <= NORMAL)
    first_outside = inside[-1] + 1 if len(inside) else 0
    since = int(steps[first_outside]) if first_outside < len(steps) else None
    half = NORMAL * deviation[-1]
    values = losses[-1], expected[-1], expected[-1] - half, expected[-1] + half, z[-1]
    return Track._make([reference, int(steps[-1]), *map(float, values), since, None])
