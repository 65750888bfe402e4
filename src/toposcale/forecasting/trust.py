"""The law of a training, where its forecasts can be believed: what a curve itself says against them.

A refusal (`NoForecast`) says why there is no forecast. `doubts` leave a forecast, but no answer is sure where one holds.
"""

from collections.abc import Sequence

import numpy as np

from toposcale.forecasting.decision import Decision, Option
from toposcale.forecasting.intervals import NORMAL
from toposcale.forecasting.irregular_rows import SPIKE
from toposcale.forecasting.joint import Joint
from toposcale.forecasting.multi_power_law import noise_of
from toposcale.forecasting.prediction import NoForecast
from toposcale.forecasting.priors import PUBLISHED, SIZES_KNOWN, Prior, decades_away
from toposcale.forecasting.training_run import MINIMUM_POINTS, TrainingRun

MOST_SPIKES = 0.2
LARGEST_MISFIT = 0.08
"""Nats by which a curve lies off the law now, above which no answer is sure: beyond it the ends of published runs were
forecast .05 nats off, below it .02."""

DOUBTFUL_OFF, FURTHEST_OFF = 3.0, 6.0
"""Standard deviations by which the forecast of the present, from half of what was seen, may be off: beyond the first no
answer is sure, beyond the second there is none."""

WARM_UPS = 2
"""Warm-ups that must have passed. At 1 to 2 of them the end was forecast .2 nats off, and at more .02, in the two families
whose warm-ups are long."""

CHECKABLE_POINTS = 8
"""Points below which half of them say nothing of the other half, so that no answer is sure."""

LEAST_FALL, SURE_OF_THE_FALL = 0.04, 3.0
"""A loss falls where it does so by this share for each tenfold of steps, and by so many standard errors. Of 528 published
trainings 525 fall by at least 0.088, at any share of their steps; one that is flat for long, and then falls, does not
follow the law."""

HIGHEST_LOSS, LOWEST_LOSS = 14.0, 0.1
"""Nats per token: guessing evenly among a million tokens costs 13.8; a text that is learnt by heart is no measure."""

FURTHEST_SIZE, FEWEST_SIZES = 1.0, 3
"""Decades outside the published sizes beyond which a choice needs so many sizes of the family. Of the project's own
decisions (3K to 46K parameters) those with fewer gave up .1 nats, and always finishing .02; with as many, nothing."""

SURE = 0.9
"""Probability to be the best below which the advice leans only. At least 95% of the answers above it are right in each of
six published sources; of those above .8 it was 93% in one."""


def trusted_law(training: TrainingRun, others: Sequence[TrainingRun], prior: Prior = PUBLISHED) -> Joint:
    """The joint law of a training under way and of what is known of its family, where its forecasts can be believed.

    others: finished trainings, trainings under way and sizes that have not started. NoForecast: why they cannot.
    """
    refuse_curve(training)
    if len(training.loss_curve[0]) < MINIMUM_POINTS:
        raise NoForecast(f"it has fewer than {MINIMUM_POINTS} losses after the warm-up")
    refuse_moment(training)
    law = Joint(prior).fit(others, training)
    try:
        law.stretch = _stretch(law, training, others)
    except NoForecast as error:
        if training.plan_known:
            raise
        unknown = training.plan or "give its schedule"
        raise NoForecast(f"{error}; its learning rate is not known, which may be why: {unknown}") from error
    end = law.forecast(training)
    refuse_value(training, end.value)
    if not end.is_plausible(training.present_loss):
        raise NoForecast(f"the forecast of its end, {end.value:.4g}, is not plausible")
    return law


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


def refuse_choice(training: TrainingRun, law: Joint) -> None:
    """NoForecast: of this size no published training tells how the loss falls with size, nor does the family."""
    if law.n_sizes < FEWEST_SIZES and decades_away(training.n_parameters) > FURTHEST_SIZE:
        least, most = SIZES_KNOWN
        raise NoForecast(
            f"{training.n_parameters:,} parameters are far outside the sizes of published trainings, {least:.2g} to "
            f"{most:.2g}, so nothing tells how the loss falls with size here; give finished runs of two more sizes "
            "(--known; in a run under models)"
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


def refuse_value(training: TrainingRun, value: float) -> None:
    """NoForecast: the forecast of the end lies above the present loss under a plan whose rate falls."""
    if training.plan_falls and value > training.present_loss:
        raise NoForecast(f"it would be {value:.4g}, above the present {training.present_loss:.4g} under a falling rate")


def _stretch(law: Joint, training: TrainingRun, others: Sequence[TrainingRun]) -> float:
    """By what the law's standard deviations are multiplied: the forecast of the present from half of what was seen.

    At least 1; 1 with too few points. NoForecast: the curve does not follow the law.
    """
    if not is_checkable(training):
        return 1.0
    steps, losses = training.loss_curve
    then = Joint(law.prior).fit(others, _first_half(training)).forecast(training, round(steps[-1]))
    off = float(abs(np.log(losses[-1] / then.value)) / (np.log(then.high / then.value) / NORMAL))
    if off > FURTHEST_OFF:
        raise NoForecast(
            "this curve does not follow the law so far: from its first half the law forecasts the present "
            f"{off:.1f} standard deviations off"
        )
    return max(1.0, off / NORMAL)


def is_checkable(training: TrainingRun) -> bool:
    """Whether a curve has points enough to hold the law against it."""
    points = len(training.loss_curve[0])
    return points >= CHECKABLE_POINTS and len(_first_half(training).loss_curve[0]) >= CHECKABLE_POINTS // 2


def _first_half(training: TrainingRun) -> TrainingRun:
    """The training as it stood at half of the steps that were seen."""
    return training.first(0.5 * training.loss_curve[0][-1] / training.final_step)


def _unknown_sizes(training: TrainingRun, best: Option) -> str:
    """The size of the training, or of the start that is advised, that no published training had; "" where there is none."""
    for size in (training.n_parameters, best.candidate.target.n_parameters):
        if not SIZES_KNOWN[0] <= size <= SIZES_KNOWN[1]:
            return f"{size:,.0f} parameters"
    return ""


def doubts(training: TrainingRun, law: Joint, decision: Decision) -> tuple[str, ...]:
    """Every reason why an answer is not sure: the one rule for all doors."""
    best = decision.best
    reasons = {
        "there is nothing to choose between": not decision.is_a_choice,
        f"its probability to be the best is {best.probability:.1%}, below {SURE:.0%}": best.probability < SURE,
        f"the learning rate to come is not known: {training.plan or 'no plan'}": not training.plan_known,
        "whether the rate had a warm-up is not known": training.warmup_assumed,
        "the curve has too few points to hold the law against it": not is_checkable(training),
        f"a loss of {training.present_loss:.4g} can hardly be in nats per token": training.present_loss < LOWEST_LOSS,
        f"{_unknown_sizes(training, best)} is outside the sizes of published trainings, "
        f"{SIZES_KNOWN[0]:.2g} to {SIZES_KNOWN[1]:.2g}, and no other size is known": law.n_sizes < 2
        and bool(_unknown_sizes(training, best)),
        "from its first half the law forecasts the present "
        f"{law.stretch * NORMAL:.1f} standard deviations off": law.stretch * NORMAL > DOUBTFUL_OFF,
        f"the curve lies {law.misfit_now:.2g} nats off the law, more than published ones do": law.misfit_now
        > LARGEST_MISFIT,
        "the log moves like a moving average: give the losses as they were measured": training.looks_smoothed,
    }
    return tuple(reason for reason, holds in reasons.items() if holds)
