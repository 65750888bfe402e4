"""Checks on a loss curve: each raises NoForecast with the reason why no forecast is made from it."""

import numpy as np

from toposcale.io.errors import NoForecast
from toposcale.runs.outliers import SPIKE
from toposcale.runs.smoothing import noise_of
from toposcale.runs.training_run import TrainingRun

MOST_SPIKES = 0.2
"""Largest share of the logged losses that may be spikes."""

WARM_UPS = 2
"""Warm-ups that must have passed: in the two families with long warm-ups the error of the forecast was .2 nats between 1
and 2 of them, and .02 later."""

CHECKABLE_POINTS = 8
"""Fewest points of a curve whose first half can forecast the second."""

LEAST_FALL, SURE_OF_THE_FALL = 0.04, 3.0
"""Least decrease of the loss for each tenfold of steps, as a share of it, and in standard errors. Of 528 published runs 525
decrease by at least 0.088, at any share of their steps."""

HIGHEST_LOSS, LOWEST_LOSS = 14.0, 0.1
"""Nats per token: a uniform guess among a million tokens costs 13.8; a loss near zero means memorisation."""


def refuse_curve(training: TrainingRun) -> None:
    """NoForecast: the losses end in rows that are no numbers, rise, are mostly spikes, or cannot be nats per token."""
    if len(broken := training.broken_steps):
        raise NoForecast(
            f"the last {len(broken)} logged losses are not numbers, since step {int(broken[0]):,}; "
            "the training has failed, or its log has"
        )
    # Also the rows as they were logged: a loss that runs away looks like spikes to the curve, which leaves them out.
    for losses, window in ((training.logged, 5), (training.loss_curve[1], 3)):
        if len(losses) <= window:
            continue
        medians = np.median(np.lib.stride_tricks.sliding_window_view(losses, window), axis=1)
        now, lowest = medians[-1], medians.min()
        if now > (1 + max(SPIKE, 6 * noise_of(np.log(np.maximum(losses, 1e-12))))) * lowest:
            raise NoForecast(f"the loss is rising: it is {now:.4g} now and was {lowest:.4g}")
    highest = training.loss_curve[1].max(initial=0.0)
    if highest > HIGHEST_LOSS:
        raise NoForecast(
            f"a loss of {highest:.4g} is above the {HIGHEST_LOSS:g} nats of guessing among a million tokens: is it a "
            "perplexity? Give its logarithm"
        )
    if training.spikes > MOST_SPIKES:
        raise NoForecast(f"{training.spikes:.0%} of the logged losses are spikes")


def refuse_moment(training: TrainingRun) -> None:
    """NoForecast: now is no moment to decide: inside the warm-up, in a spike, or before the loss falls."""
    warmup = training.warmup_steps
    if training.last_step < WARM_UPS * warmup and not training.is_over:
        now = f"the learning rate still rises, until step {warmup:,}"
        if training.last_step >= warmup:
            now = f"the learning rate rose until step {warmup:,}"
        raise NoForecast(f"{now}: ask again from step {WARM_UPS * warmup:,} on")
    if ending := training.spikes_at_the_end:
        highest = training.logged[-ending:].max()
        raise NoForecast(
            f"the log ends in a spike of {ending} row{'s' if ending > 1 else ''}, up to {highest:.4g}; ask again when the "
            "loss has come back"
        )
    fall, error = _fall(training)
    if not training.is_over and (fall < LEAST_FALL or fall < SURE_OF_THE_FALL * error):
        raise NoForecast(
            f"the loss does not fall as trainings do: by {fall:.1%} +- {error:.1%} for each tenfold of steps, where "
            f"published ones fall by 9% and more; ask again when it does"
        )


def _fall(training: TrainingRun) -> tuple[float, float]:
    """By how much the curve falls for each tenfold of steps, as a share of the loss, and its standard error.

    A straight line through log loss over log step. Infinite and 0 with fewer than three points.
    """
    steps, losses = training.loss_curve
    if len(steps) < 3:
        return np.inf, 0.0
    x, y = np.log10(steps), np.log(np.maximum(losses, 1e-12))
    x = x - x.mean()
    power = float(x @ x)
    # Of the distance to the line only what jumps from point to point is noise; the rest is the shape of the curve.
    return -float(x @ y) / power, noise_of(y) / float(np.sqrt(power))


def is_checkable(training: TrainingRun) -> bool:
    """Whether a curve has points enough to hold the law against it."""
    points = len(training.loss_curve[0])
    return points >= CHECKABLE_POINTS and len(first_half(training).loss_curve[0]) >= CHECKABLE_POINTS // 2


def first_half(training: TrainingRun) -> TrainingRun:
    """The training as it stood at half of the steps that were seen."""
    return training.first(0.5 * training.loss_curve[0][-1] / training.final_step)
