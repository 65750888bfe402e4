"""The joint law of a run whose forecasts passed every check."""

from collections.abc import Sequence

import numpy as np

from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.prediction import NORMAL
from toposcale.forecasting.laws.priors import PUBLISHED, Prior
from toposcale.forecasting.laws.published_law import refuse_level
from toposcale.forecasting.runs.checks import (
    first_half,
    in_early_steps,
    is_checkable,
    refuse_curve,
    refuse_decision_point,
)
from toposcale.forecasting.runs.training_run import MINIMUM_POINTS, TrainingRun
from toposcale.io.errors import NoForecast

EARLY = 1.5
"""Factor on the standard deviations before `USUAL_WARM_UPS`."""

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
