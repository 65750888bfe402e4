"""Checks on a loss curve: each raises NoForecast with the reason why no forecast is made from it."""

import re
from dataclasses import replace

import numpy as np

from toposcale.forecasting.runs.curves import binned, is_outlier, is_spike, rise
from toposcale.forecasting.runs.facts import Provenance
from toposcale.forecasting.runs.series import noise_of
from toposcale.forecasting.runs.training_run import MINIMUM_POINTS, TrainingRun
from toposcale.io.errors import NoForecast, did_you_mean

MAX_SPIKES = 0.2
"""Largest share of the logged losses that may be spikes."""

MIN_WARMUPS = 1.25
"""Warm-ups that must have passed for a forecast."""

USUAL_WARMUPS = 2
"""Warm-ups before which intervals are 1.5 times as wide and the law is not checked on the curve."""

CHECKABLE_POINTS = 8
"""Fewest points of a curve whose first half can forecast the second."""

MIN_DECREASE = 0.04
"""Least decrease of the loss for each tenfold of steps, as a share of it. Of 528 published runs 525 decrease by at least
0.088, at any share of their steps."""

DECREASE_IN_ERRORS = 3.0
"""Least decrease of the loss for each tenfold of steps in standard errors."""

HIGHEST_LOSS = 14.0
"""Nats per token: a uniform guess among a million tokens costs 13.8."""

NEXT_TOKEN = frozenset(("nexttoken", "nexttokenprediction", "causal", "causallm", "clm", "autoregressive"))
"""Names of the objective that the law was learnt from, in letters."""

METRIC_WINDOW = 3
"""Measurements of a metric whose median is its level now, and over which it is smoothed."""

FIRST_STEPS = 50
"""Steps during which a bad initialisation may have a loss far above a uniform guess."""


def refuse_curve(run: TrainingRun) -> None:
    """Raise NoForecast where the losses end in NaN, rise, are mostly spikes, or cannot be nats per token."""
    if (lowest := run.lowest_loss) <= 0:
        raise NoForecast(f"a loss of {lowest:.4g} is in other units: one in nats per token is above 0")
    if len(broken := broken_steps(run)):
        raise NoForecast(
            f"the last {len(broken)} logged losses are not numbers, since step {int(broken[0]):,}; "
            "the training has failed, or its log has"
        )
    # Also the rows as they were logged: a loss that runs away looks like spikes to the curve, which leaves them out.
    for losses, window in ((run.logged, 5), (run.loss_curve.losses, 3)):
        if risen := rise(losses, window):
            raise NoForecast(f"the loss is rising: it is {risen.now:.4g} now and was {risen.lowest:.4g}")
    spikes = float(np.mean(is_spike(run.logged))) if len(run.logged) else 0.0
    if spikes > MAX_SPIKES:
        raise NoForecast(f"{spikes:.0%} of the logged losses are spikes")
    warm_up = run.losses[np.isfinite(run.losses) & (run.steps >= FIRST_STEPS)][:3]
    highest = max(warm_up.max(initial=0.0), run.loss_curve.losses.max(initial=0.0))
    if highest > HIGHEST_LOSS:
        raise NoForecast(
            f"a loss of {highest:.4g} is above the {HIGHEST_LOSS:g} nats of a uniform guess among a million tokens: is it "
            "a sum over the batches of a step (gradient accumulation), or a perplexity? Give the mean, or its logarithm"
        )


MAX_EPOCHS = 8.0
"""Epochs of the whole run above which a decay to come is not forecast: of 12 forecasts of runs of 12 to 25 epochs a third
were inside their intervals, and .24 nats too high."""


def refuse_objective(run: TrainingRun) -> None:
    """Raise NoForecast where the stated objective is not the prediction of the next token."""
    objective = run.facts.objective
    if run.facts.provenance("objective") is Provenance.LOGGED:
        raise NoForecast(
            f"its log has accuracies, and its losses are like those of a {objective}; if it predicts the next token, say "
            "so with objective (--objective) next-token"
        )
    if objective and re.sub(r"[^a-z]", "", objective.lower()) not in NEXT_TOKEN:
        meant = did_you_mean(objective.lower(), ("next-token",)).removeprefix("; ")
        raise NoForecast(
            f"its objective (--objective) is {objective}; the law was learnt from next-token prediction"
            + (f" ({meant})" if meant else "")
        )


def metric_rises(run: TrainingRun) -> bool:
    """Return whether a loss of a fixed text has risen since its lowest value, by more than noise."""
    return not run.forecasts_training_loss and rise(run.metric_curve.losses, METRIC_WINDOW) is not None


def rise_since_best(run: TrainingRun) -> str:
    """Return how the measured loss has risen since its lowest value, and whether that is overfitting, a clause."""
    best = run.best
    text = f"{run.progress.loss:.4g} now; its lowest was {best.loss:.4g} at step {best.step:,}"
    steps, losses = binned(run.steps, run.losses, run.schedule)
    if len(steps) < MINIMUM_POINTS or losses[-1] >= np.interp(best.step, steps, losses):
        return text
    return f"{text}, and the training loss has fallen since: overfitting"


def refuse_rising_metric(run: TrainingRun) -> None:
    """Raise NoForecast where the validation loss has risen since its lowest value."""
    if metric_rises(run):
        raise NoForecast(f"the {run.metric} is rising: it is {rise_since_best(run)}")


def refuse_repetition(run: TrainingRun) -> None:
    """Raise NoForecast where a text is repeated so often that a decay to come cannot be forecast."""
    epochs = run.cost.tokens(run.final_step) / run.facts.unique_tokens
    if epochs > MAX_EPOCHS and run.schedule.decays_after(run.progress.step):
        raise NoForecast(
            f"it reads its text {epochs:.3g} times, and what a decay gains is not known above {MAX_EPOCHS:g} epochs; ask "
            "again when the learning rate has decayed"
        )


def refuse_decision_point(run: TrainingRun) -> None:
    """Raise NoForecast where it is too early to decide: inside the warm-up, in a spike, or before the loss decreases."""
    warmup = run.schedule.warmup_steps
    if run.progress.step < MIN_WARMUPS * warmup and run.has_steps_left:
        verb = "rose" if run.progress.step >= warmup else "still rises,"
        raise NoForecast(
            f"the learning rate {verb} until step {warmup:,}: ask again from step {round(MIN_WARMUPS * warmup):,} on"
        )
    # Whether the loss comes back from spikes at the end is not known.
    if ending := int(np.argmin(is_spike(run.logged)[::-1])) if len(run.logged) else 0:
        highest = run.logged[-ending:].max()
        raise NoForecast(
            f"the log ends in a spike of {ending} row{'s' if ending > 1 else ''}, up to {highest:.4g}; ask again when the "
            "loss has come back"
        )
    decrease, error = _decrease(run)
    if run.has_steps_left and decrease < max(MIN_DECREASE, DECREASE_IN_ERRORS * error):
        raise NoForecast(
            f"the loss does not decrease as in published runs: by {decrease:.1%} +- {error:.1%} for each tenfold "
            "of steps, where theirs decreases by 9% and more; ask again when it does"
        )


def refuse_forecast(run: TrainingRun, value: float) -> None:
    """Raise NoForecast where the forecast of the end lies above the present loss although the rate decays."""
    if run.schedule.decays_after(run.progress.step) and value > run.loss_curve.level:
        raise NoForecast(f"it would be {value:.4g}, above the present {run.loss_curve.level:.4g} under a decaying rate")


def _decrease(run: TrainingRun) -> tuple[float, float]:
    """Return the decrease of a curve for each tenfold of steps, as a share of the loss, and its standard error.

    By a line through log loss over log step; infinite and 0 with fewer than three points.
    """
    steps, losses = run.loss_curve
    if len(steps) < 3:
        return np.inf, 0.0
    x, y = np.log10(steps), np.log(np.maximum(losses, 1e-12))
    x = x - x.mean()
    power = float(x @ x)
    # Of the distance to the line only what jumps from point to point is noise; the rest is the shape of the curve.
    return -float(x @ y) / power, noise_of(y) / float(np.sqrt(power))


def broken_steps(run: TrainingRun) -> np.ndarray:
    """Return the last steps of the log whose loss is NaN, infinite or missing: pandas writes NaN as an empty field."""
    finite = np.flatnonzero(np.isfinite(run.losses))
    rows_after_last = np.arange(finite[-1] + 1 if len(finite) else 0, len(run.losses))
    empty = rows_after_last[np.isnan(run.losses[rows_after_last])]
    usual = int(np.diff(finite).max(initial=1))  # rows from one loss to the next
    # Rows without a loss may be a schedule that goes on to its end.
    lost = len(finite) > 1 and len(empty) > usual and run.steps[empty[-1]] < 0.99 * run.final_step
    return run.steps[rows_after_last if lost else rows_after_last[~np.isnan(run.losses[rows_after_last])]]


def is_checkable(run: TrainingRun) -> bool:
    """Return whether a curve has enough points after the warm-up for its first half to forecast the second."""
    points = len(run.loss_curve.steps)
    return (
        not in_early_steps(run)
        and points >= CHECKABLE_POINTS
        and len(first_half(run).loss_curve.steps) >= CHECKABLE_POINTS // 2
    )


def in_early_steps(run: TrainingRun) -> bool:
    """Return whether fewer than `USUAL_WARMUPS` warm-ups have passed."""
    return run.progress.step < USUAL_WARMUPS * run.schedule.warmup_steps and run.has_steps_left


def first_half(run: TrainingRun) -> TrainingRun:
    """Return the run as it stood at half of the observed steps, without the outliers of the whole curve."""
    losses = np.where(is_outlier(run.steps, run.losses, run.schedule), np.nan, run.losses)
    return replace(run, losses=losses).first(0.5 * run.loss_curve.steps[-1] / run.final_step)
