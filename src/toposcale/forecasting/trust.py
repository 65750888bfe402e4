"""Whether a forecast can be believed at all, and how far: what a curve itself says against it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toposcale.forecasting.history import SPIKE, History
from toposcale.forecasting.intervals import NORMAL
from toposcale.forecasting.joint import Joint
from toposcale.forecasting.multi_power_law import noise_of
from toposcale.forecasting.prediction import NoForecast

MOST_SPIKES = 0.2
LARGEST_SCALE = 2.0
"""The misfit of a curve that follows the law, in units of that of the published families, is at most this."""

FURTHEST_OFF = 3.0
"""Standard deviations by which the forecast of the present, from half of what was seen, may be off."""

FEWEST_POINTS = 8
"""Points below which half of them say nothing of the other half, so that no answer is sure."""

LEAST_FALL = 0.002
"""A loss whose last third is not lower than its first by this share does not fall."""

WORST_RATIO, WIDEST = 2.0, 0.25
"""A forecast that is so many times the present loss, or whose standard deviation is such a share of it, says nothing."""


def refuse_curve(history: History) -> None:
    """NoForecast: the losses end in rows that are no numbers, rise, or are mostly spikes."""
    if history.broken_rows:
        raise NoForecast(
            f"the last {history.broken_rows} logged losses are not numbers, since step {history.broken_since:,}; "
            "the training has failed, or its log has"
        )
    # Also the rows as they were logged: a loss that runs away looks like spikes to the curve, which leaves them out.
    for losses, window in ((history.logged, 5), (history.loss_curve[1], 3)):
        if len(losses) <= window:
            continue
        medians = np.median(np.lib.stride_tricks.sliding_window_view(losses, window), axis=1)
        now, lowest = medians[-1], medians.min()
        if now > (1 + max(SPIKE, 6 * noise_of(np.log(np.maximum(losses, 1e-12))))) * lowest:
            raise NoForecast(f"the loss is rising: it is {now:.4g} now and was {lowest:.4g}")
    if history.spikes > MOST_SPIKES:
        raise NoForecast(f"{history.spikes:.0%} of the logged losses are spikes")


def refuse_moment(history: History) -> None:
    """NoForecast: now is no moment to decide, since the losses end in a spike, or have not begun to fall."""
    if ending := history.spikes_at_the_end:
        highest = history.logged[-ending:].max()
        raise NoForecast(
            f"the log ends in a spike of {ending} row{'s' if ending > 1 else ''}, up to {highest:.4g}; ask again when the "
            "loss has come back"
        )
    steps, losses = history.loss_curve
    third = len(losses) // 3
    if third and not history.is_over:
        first, last = np.median(losses[:third]), np.median(losses[-third:])
        if last > (1 - LEAST_FALL) * first:
            raise NoForecast(
                f"the loss does not fall: it was {first:.4g} from step {steps[0]:,.0f} on and is {last:.4g} now"
            )


def refuse_value(history: History, value: float) -> None:
    """NoForecast: the forecast of the end lies above the present loss under a plan whose rate falls."""
    losses = history.loss_curve[1]
    if len(losses) and history.plan_falls and value > (now := float(np.median(losses[-3:]))):
        raise NoForecast(f"it would be {value:.4g}, above the present {now:.4g} under a falling rate")


def is_plausible(loss: float, deviation: float, present: float) -> bool:
    """Whether a forecast lies in the range of what trainings do."""
    return bool(present / WORST_RATIO < loss < present * WORST_RATIO and deviation < WIDEST * loss)


def stretch_of(law: Joint, history: History, known: Sequence[History]) -> float:
    """By what the law's standard deviations are multiplied: the forecast of the present from half of what was seen.

    At least 1. NoForecast: the curve does not follow the law.
    """
    off = _off(law, history, known)
    if law.scale > LARGEST_SCALE or off > FURTHEST_OFF:
        raise NoForecast(
            "this curve does not follow the law so far: "
            + (
                f"from its first half the law forecasts the present {off:.1f} standard deviations off"
                if off > FURTHEST_OFF
                else f"it lies {law.scale:.0f} times as far off the law as published training runs do"
            )
        )
    return max(1.0, off / NORMAL)


def is_checkable(history: History) -> bool:
    """Whether a curve has points enough to hold the law against it."""
    steps = history.loss_curve[0]
    if len(steps) < FEWEST_POINTS:
        return False
    return len(history.first(0.5 * steps[-1] / history.final_step).loss_curve[0]) >= FEWEST_POINTS // 2


def _off(law: Joint, history: History, known: Sequence[History]) -> float:
    """How far off the forecast of the last loss from half of the steps is, in its standard deviations; 0: too few
    points."""
    if not is_checkable(history):
        return 0.0
    steps, losses = history.loss_curve
    half = history.first(0.5 * steps[-1] / history.final_step)
    then = Joint(law.prior).fit(known, half).forecast(history, round(steps[-1]))
    return float(abs(np.log(losses[-1] / then.value)) / (np.log(then.high / then.value) / NORMAL))
