"""The joint law of a run whose forecasts passed every check."""

from collections.abc import Sequence

import numpy as np

from toposcale.io.errors import NoForecast
from toposcale.laws.chinchilla import published_surface
from toposcale.laws.joint import Joint
from toposcale.laws.prediction import NORMAL
from toposcale.laws.priors import PUBLISHED, SIZES_KNOWN, Prior
from toposcale.runs.checks import first_half, in_early_steps, is_checkable, refuse_curve, refuse_decision_point
from toposcale.runs.training_run import MINIMUM_POINTS, TrainingRun

EARLY = 1.5
"""Factor on the standard deviations before `USUAL_WARM_UPS`."""

LEVELS = (0.5, 1.45)
"""Losses over that of the published surface at so many parameters and tokens, beyond which a curve is no pretraining of a
language model from scratch. Of 684 published runs all next-token losses lie from .56 (code) to 1.40, past the warm-up."""

UNIFORM = 11.0
"""Nats per token of a uniform guess among 60,000 tokens, with which a training from scratch begins."""

FURTHEST_OFF = 6.0
"""Standard deviations that the forecast of the present, from half of what was seen, may be off."""


def checked_law(run: TrainingRun, others: Sequence[TrainingRun], prior: Prior = PUBLISHED) -> Joint:
    """Fit the joint law to a run under way and its family; raise NoForecast where its forecasts fail a check.

    others: finished runs, runs under way and sizes that have not started.
    """
    refuse_curve(run)
    refuse_now(run)
    law = Joint(prior).fit(others, run)
    try:
        law.inflation = _inflation(law, run, others)
    except NoForecast as error:
        if run.schedule.is_known:
            raise
        unknown = run.schedule.unknown_because or "give its schedule"
        raise NoForecast(
            f"{error}; the reason may be its learning-rate schedule, which is unknown: {unknown}"
        ) from error
    end = law.forecast(run)
    refuse_value(run, end.value)
    if not end.is_plausible(run.present_loss):
        raise NoForecast(f"the forecast of its end, {end.value:.4g}, is not plausible")
    return law


def refuse_now(run: TrainingRun) -> None:
    """Raise NoForecast where a sound curve has too few losses, comes too early, or is not that of a pretraining."""
    if len(run.loss_curve.steps) < MINIMUM_POINTS:
        raise NoForecast(f"it has fewer than {MINIMUM_POINTS} losses after the warm-up")
    refuse_decision_point(run)
    refuse_level(run)


def refuse_level(run: TrainingRun) -> None:
    """Raise NoForecast where the loss, at first or now, is none that so many parameters and tokens give from scratch."""
    # The published surface holds beyond the largest published run, but models that are much smaller may read letters.
    if run.n_parameters < SIZES_KNOWN[0] or not np.isfinite(run.tokens_per_step):
        return
    logged = np.isfinite(run.losses) & (run.steps > 0)
    # A loss in the warm-up has no upper bound, so only the lower bound applies at first.
    points = [(float(run.last_step), run.present_loss, LEVELS[1])]
    if logged.any():
        points.insert(0, (float(np.median(run.steps[logged][:3])), float(np.median(run.losses[logged][:3])), np.inf))
    for step, loss, highest in points:
        tokens = step * run.tokens_per_step
        usual = min(published_surface(run.n_parameters, tokens), UNIFORM)
        if not LEVELS[0] * usual <= loss <= highest * usual:
            raise NoForecast(
                f"{run.n_parameters:,} parameters reach a loss of about {usual:.3g} nats per token after {tokens:.2g} "
                f"tokens from scratch, and this run has {loss:.4g}: the law is for the pretraining of language models on "
                "the next token, not for fine-tuning, continued pretraining or other losses"
            )


def refuse_value(run: TrainingRun, value: float) -> None:
    """Raise NoForecast where the forecast of the end lies above the present loss although the rate decays."""
    if run.rate_decays and value > run.present_loss:
        raise NoForecast(f"it would be {value:.4g}, above the present {run.present_loss:.4g} under a decaying rate")


def _inflation(law: Joint, run: TrainingRun, others: Sequence[TrainingRun]) -> float:
    """Return the factor on the standard deviations of a law that makes its forecast of the present hold.

    The forecast is from half of what was seen; at least 1, and 1 with too few points. NoForecast: the curve does not
    follow the law.
    """
    if not is_checkable(run):
        return EARLY if in_early_steps(run) else 1.0
    steps, losses = run.loss_curve
    then = Joint(law.prior).fit(others, first_half(run)).forecast(run, round(steps[-1]))
    off = float(abs(np.log(losses[-1] / then.value)) / (np.log(then.high / then.value) / NORMAL))
    if off > FURTHEST_OFF:
        raise NoForecast(
            "this curve does not follow the law so far: from its first half the law forecasts the present "
            f"{off:.1f} standard deviations off"
        )
    return max(1.0, off / NORMAL)
