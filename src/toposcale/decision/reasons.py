"""Reasons why an answer is refused, or given with low confidence."""

from toposcale.decision.expected_regret import Decision, Option
from toposcale.io.errors import NoForecast
from toposcale.laws.intervals import NORMAL
from toposcale.laws.joint import Joint
from toposcale.laws.priors import SIZES_KNOWN, decades_away
from toposcale.runs.checks import LOWEST_LOSS, is_checkable
from toposcale.runs.training_run import TrainingRun

LARGEST_MISFIT = 0.08
"""Model discrepancy at the last loss, nats, above which confidence is low: beyond it the mean error of the forecasts of
published runs was .05 nats, below it .02."""

DOUBTFUL_OFF = 3.0
"""Standard deviations that the forecast of the present, from half of what was seen, may be off in a confident answer."""

FURTHEST_SIZE, FEWEST_SIZES = 1.0, 3
"""Decades outside the published sizes beyond which a choice needs so many sizes of the family. In the project's own
decisions (3K to 46K parameters) fewer sizes had a mean regret of .1 nats, continuing .02; with three sizes, 0."""

SURE = 0.9
"""Probability of being the best from which an answer is confident. Chosen after the results of six published sources were
seen: at least 95% of the answers above it are right in each; of those above .8 it was 93% in one."""


def refuse_choice(training: TrainingRun, law: Joint) -> None:
    """NoForecast: of this size no published training tells how the loss falls with size, nor does the family."""
    if law.n_sizes < FEWEST_SIZES and decades_away(training.n_parameters) > FURTHEST_SIZE:
        least, most = SIZES_KNOWN
        raise NoForecast(
            f"{training.n_parameters:,} parameters are far outside the sizes of published trainings, {least:.2g} to "
            f"{most:.2g}, so nothing tells how the loss falls with size here; give finished runs of two more sizes "
            "(--known; in a run under models)"
        )


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
