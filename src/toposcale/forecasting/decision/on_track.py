"""Test whether the loss of a run agrees with finished runs of its family, and with published runs of its size."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.laws.joint import Joint, largest_run
from toposcale.forecasting.laws.law import Law
from toposcale.forecasting.laws.prediction import NORMAL
from toposcale.forecasting.laws.published_law import PublishedLaw, has_published_level, published_tokens
from toposcale.forecasting.runs.series import noise_of
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.files import finite_or_none

MIN_SIZES = 3
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


def _track(law: Law, run: TrainingRun) -> Track:
    """Compare the losses of a run, at least one, with the forecasts of a law that did not read it."""
    steps, losses = run.loss_curve
    unseen = run.unstarted(model="")
    expected, covariance = law.predict_jointly([unseen.target(int(step)) for step in steps])
    deviation = np.hypot(np.sqrt(np.diag(covariance)), noise_of(np.log(losses)) * losses)
    z = (losses - expected) / deviation
    inside = np.flatnonzero(np.abs(z) <= NORMAL)
    first_outside = inside[-1] + 1 if len(inside) else 0
    since = int(steps[first_outside]) if first_outside < len(steps) else None
    half_width, step = NORMAL * float(deviation[-1]), int(steps[-1])
    is_published, tokens_factor = isinstance(law, PublishedLaw), np.nan
    if is_published and since is not None:
        tokens_factor = float(published_tokens(run.n_parameters, float(losses[-1])) / run.cost.tokens(step))
    return Track(
        Reference.PUBLISHED if is_published else Reference.FAMILY,
        step=step,
        loss=float(losses[-1]),
        expected=float(expected[-1]),
        low=float(expected[-1]) - half_width,
        high=float(expected[-1]) + half_width,
        z=float(z[-1]),
        since=since,
        tokens_factor=finite_or_none(tokens_factor),
    )


def tracks_of(run: TrainingRun, family: Sequence[TrainingRun] = ()) -> tuple[Track, ...]:
    """Compare the losses of a run with finished runs of its family, and with published runs.

    By the family from `MIN_SIZES` finished sizes on, if the learning-rate schedule is known; then by the published law.
    Empty without a loss above 0; no published law below 25M parameters or without the tokens of a step.
    """
    if run.loss_curve.is_empty or run.lowest_loss <= 0:
        return ()
    laws: list[Law] = []
    finished = [other for other in family if other.is_finished and other.has_known_rates]
    if len({other.n_parameters for other in finished}) >= MIN_SIZES and run.has_known_rates:
        laws.append(Joint(check=False).fit(largest_run(finished), finished))
    if has_published_level(run):
        laws.append(PublishedLaw())
    return tuple(_track(law, run) for law in laws)
