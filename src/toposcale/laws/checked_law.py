"""The joint law of a run whose forecasts passed every check."""

from collections.abc import Sequence

import numpy as np

from toposcale.io.errors import NoForecast
from toposcale.laws.intervals import NORMAL
from toposcale.laws.joint import Joint
from toposcale.laws.priors import PUBLISHED, Prior
from toposcale.runs.checks import first_half, is_checkable, refuse_curve, refuse_moment
from toposcale.runs.training_run import MINIMUM_POINTS, TrainingRun

FURTHEST_OFF = 6.0
"""Standard deviations by which the forecast of the present, from half of what was seen, may be off."""


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
    then = Joint(law.prior).fit(others, first_half(training)).forecast(training, round(steps[-1]))
    off = float(abs(np.log(losses[-1] / then.value)) / (np.log(then.high / then.value) / NORMAL))
    if off > FURTHEST_OFF:
        raise NoForecast(
            "this curve does not follow the law so far: from its first half the law forecasts the present "
            f"{off:.1f} standard deviations off"
        )
    return max(1.0, off / NORMAL)
