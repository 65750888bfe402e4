"""Reasons for low confidence in a choice."""

from collections.abc import Iterator, Sequence

import numpy as np

from toposcale.forecasting.amounts import amount
from toposcale.forecasting.decision.candidates import Decision
from toposcale.forecasting.decision.on_track import Reference, Track
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.prediction import NORMAL
from toposcale.forecasting.laws.priors import OPTIMIZER_OFFSETS, SIZES_KNOWN, decades_away
from toposcale.forecasting.laws.record import MIN_FORECASTS, record_of
from toposcale.forecasting.runs.checks import CHECKABLE_POINTS, USUAL_WARMUPS, in_early_steps, is_checkable
from toposcale.forecasting.runs.curves import after_warmup, binned, is_moving_average
from toposcale.forecasting.runs.facts import USUAL_ASPECT_RATIOS, is_usual_aspect_ratio
from toposcale.forecasting.runs.series import difference_autocorrelation
from toposcale.forecasting.runs.training_run import TrainingRun

CONFIDENT = 0.9
"""Probability of being the best from which an answer is confident. Chosen after the results of six published sources were
seen: at least 95% of the answers above it are right in each; of those above .8 it was 93% in one."""

MAX_DISCREPANCY = 0.08
"""Model discrepancy at the last loss, nats, above which confidence is low: beyond it the mean error of the forecasts of
published runs was .05 nats, below it .02."""

MAX_CONFIDENT_ERROR = 3.0
"""Standard deviations that the forecast of the present, from half of what was seen, may be off in a confident answer."""

UNMEASURED_SIZES = 3.01e5, 1e7
"""Range of the numbers of parameters in which no run was at hand to measure the coverage on."""

LARGEST_DEPARTURE = 0.03
"""Largest increase of validation minus training loss, nats, from the middle half of a curve to its last quarter."""

LOWEST_LOSS = 0.1
"""Nats per token: a loss near zero means memorisation."""

MIN_NOISY_ROWS = 40
"""Rows from which their noise tells whether they are smoothed."""

CRITICAL_DEVIATION = 2.33
"""One-sided 1% quantile of a standard normal."""

NO_CHOICE = "there is nothing to choose between"
NOT_STARTED = (
    "the run has not started: a published scaling law, which knows neither data nor schedule, is the only source"
)

ADAPTER = "the weights there are an adapter, and the law is for pretraining from scratch"
SMOOTHED = "the log moves like a moving average: give the losses as they were measured"
_NOT_SMOOTHED = "the losses are as they were measured, not a moving average, which could not be checked"

PUBLISHED_RANGE = " to ".join(map(amount, SIZES_KNOWN))


def coverage_remarks(run: TrainingRun) -> Iterator[str]:
    """Yield that the coverage of intervals was not measured at the size of a run, where it was not."""
    if UNMEASURED_SIZES[0] < run.n_parameters < UNMEASURED_SIZES[1]:
        yield f"the coverage of the intervals was never measured near {run.n_parameters:,} parameters"


def low_confidence_reasons(
    run: TrainingRun, law: Joint, decision: Decision, tracks: Sequence[Track]
) -> tuple[str, ...]:
    """Return every reason for low confidence; an answer without one is confident.

    tracks: the comparisons of the run with other runs.
    """
    off_track = (_off_track(track) for track in tracks if not track.is_on_track)
    return (*_reasons(run, law, decision), *off_track)


def _off_track(track: Track) -> str:
    """Return why a loss outside the interval of a comparison is a reason for low confidence."""
    side = "above" if track.z > 0 else "below"
    if track.reference is Reference.FAMILY:
        return f"since step {track.since:,} the loss is {side} the 95% interval of its forecast by the family"
    return f"the loss is {side} the 95% interval of published runs: {to_check(track)}"


def to_check(track: Track) -> str:
    """Return what to check where a loss is outside the interval of a comparison."""
    if track.reference is Reference.FAMILY:
        return "check warm-up, learning rate, batch and data"
    fitting = ""
    if factor := track.tokens_factor:  # one or two digits, without an exponent
        rounded = f"{factor:.2g}" if factor < 10 else f"{float(f'{factor:.2g}'):,.0f}"
        fitting = f" (about x {rounded} would fit)"
    return f"check tokens per step{fitting}, or the text or tokenizer is an unusual one"


def _reasons(run: TrainingRun, law: Joint, decision: Decision) -> Iterator[str]:
    """Yield the reasons for low confidence, except those of comparisons with other runs."""
    best = decision.best
    if not decision.is_a_choice:
        yield NO_CHOICE
    if best.probability < CONFIDENT:
        yield f"its probability of being the best is {best.probability:.1%}, below {CONFIDENT:.0%}"
    sizes = (run.n_parameters, best.candidate.target.n_parameters)
    if law.n_sizes < 2 and (outside := [size for size in sizes if decades_away(size) > 0]):
        yield (
            f"{outside[0]:,.0f} parameters are outside the sizes of published runs, {PUBLISHED_RANGE}, and no other size "
            "is known"
        )
    if not (record := record_of(run)).suffices:
        yield f"fewer than {MIN_FORECASTS} forecasts of runs like this one are on record: {record}"
    ratios = [run.facts.aspect_ratio, *(row.candidate.target.aspect_ratio for row in decision.candidates)]
    if odd := [ratio for ratio in ratios if not is_usual_aspect_ratio(ratio)]:
        least, most = USUAL_ASPECT_RATIOS
        yield f"a model is {odd[0]:.3g} times as wide as it has layers; the law was learnt from {least} to {most}"
    yield from forecast_reasons(run, law)


def unit_remarks(run: TrainingRun) -> Iterator[str]:
    """Yield that the loss is far too low for text, where it is."""
    if run.loss_curve.level < LOWEST_LOSS:
        yield f"a loss of {run.loss_curve.level:.4g} can hardly be in nats per token"


def forecast_reasons(run: TrainingRun, law: Joint) -> list[str]:
    """Return the reasons for low confidence in the forecast of a run, whatever is decided by it, each once."""
    return list(dict.fromkeys(_forecast_reasons(run, law)))


def _forecast_reasons(run: TrainingRun, law: Joint) -> Iterator[str]:
    """Yield the reasons that the schedule, the curve, the law and the log give, in this order."""
    if not run.schedule.is_known:
        yield f"the learning-rate schedule to come is unknown: {run.schedule.unknown_because}"
    if run.schedule.warmup_assumed:
        yield "whether the learning rate had a warm-up is unknown"
    if not is_checkable(run):
        yield "the curve has too few points after the warm-up to check the law on it"
    yield from unit_remarks(run)
    yield from coverage_remarks(run)
    if (error := law.inflation_ * NORMAL) > MAX_CONFIDENT_ERROR:
        yield f"from its first half the law forecasts the present {error:.1f} standard deviations off"
    if law.discrepancy_ > MAX_DISCREPANCY:
        yield f"the model discrepancy is {law.discrepancy_:.2g} nats, larger than in published runs"
    yield from run.low_confidence_reasons
    if run.rests_on_shift:
        yield run.shift_remark
    if (optimizer := run.facts.optimizer.lower()) not in OPTIMIZER_OFFSETS:
        yield f"no published run that the law knows was under {optimizer}"
    if run.facts.adapter_of:
        yield ADAPTER
    if in_early_steps(run):
        yield f"fewer than {USUAL_WARMUPS} warm-ups have passed"
    if validation_departs(run):
        yield "the validation loss no longer follows the training loss"
    if looks_smoothed(run):
        yield SMOOTHED


def validation_departs(run: TrainingRun) -> bool:
    """Return whether the validation loss departs from the training loss, as when a text is repeated often."""
    steps, losses = binned(run.steps, run.losses, run.schedule)
    metric = run.metric_curve.since(run.loss_curve.steps.min(initial=1))
    if run.forecasts_training_loss or min(len(steps), len(metric.steps)) < CHECKABLE_POINTS:
        return False
    excess = metric.losses - np.interp(np.log(metric.steps), np.log(steps), losses)
    quarter = len(excess) // 4
    return bool(np.median(excess[-quarter:]) - np.median(excess[quarter:-quarter]) > LARGEST_DEPARTURE)


def looks_smoothed(run: TrainingRun) -> bool:
    """Return whether the log moves like the moving average of a tracker, not like losses of single batches."""
    # Losses of a fixed text are smooth by themselves.
    return run.forecasts_training_loss and is_moving_average(run.logged)


def smoothing_assumption(run: TrainingRun) -> str:
    """Return that the losses are taken for unsmoothed, and why that is unknown; "" if known, or if they are not forecast.

    The null hypothesis is independent noise around a smooth curve: an autocorrelation of the differences of -1/2, with a
    variance of 1 / (2 rows). Losses of a fixed text, and means of many batches, may be as smooth as an average.
    """
    losses = after_warmup(run.steps, run.losses, run.schedule)
    if losses.is_empty or not run.forecasts_training_loss or looks_smoothed(run):
        return ""
    if (n_rows := len(losses.steps)) < MIN_NOISY_ROWS:
        return f"{_NOT_SMOOTHED}: {n_rows} rows are too few to tell"
    correlation = difference_autocorrelation(*losses)
    if correlation <= -0.5 + CRITICAL_DEVIATION * np.sqrt(0.5 / n_rows):
        return ""
    return f"{_NOT_SMOOTHED}: the autocorrelation of their differences is {correlation:.2f}, that of independent noise -0.5"
