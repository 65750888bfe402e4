"""The advice on one training run under way: finish it, extend it, or stop it and start another size.

`trusted_law` and `decide` are the one way from a history to a decision, for tables and for advice; `advise` tells all that
is known of the run as plain values, and `words` turns them into sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toposcale.forecasting.candidates import FINISH, MULTIPLES, candidates, compute_of, rest_of
from toposcale.forecasting.decision import Decision, Option, best_size, steps_to, weigh
from toposcale.forecasting.history import MINIMUM_POINTS, History
from toposcale.forecasting.joint import Joint
from toposcale.forecasting.prediction import NoForecast, Prediction
from toposcale.forecasting.trust import (
    is_checkable,
    is_plausible,
    refuse_curve,
    refuse_moment,
    refuse_value,
    stretch_of,
)

BUDGET_USED_UP = "the compute that is left does not pay for one step"


@dataclass(frozen=True)
class Question:
    """What is asked of a run, with None for unknown.

    remaining: FLOP that will still be spent; by default what the plan needs. sizes: multiples of the run's size that could
    be started. gpu_flops, gpu_price: the speed of one GPU in FLOP/s, and the price of an hour of it.
    """

    remaining: float | None = None
    sizes: Sequence[float] = MULTIPLES
    target_loss: float | None = None
    gpu_flops: float | None = None
    gpu_price: float | None = None


USUAL = Question()
"""What is asked where nothing else is said."""


def trusted_law(history: History, others: Sequence[History]) -> Joint:
    """The joint law of a run under way and of what is known of its family, where its forecasts can be believed.

    others: finished runs, runs under way and sizes that have not started. NoForecast: why they cannot.
    """
    refuse_curve(history)
    if len(history.loss_curve[0]) < MINIMUM_POINTS:
        raise NoForecast(f"it has fewer than {MINIMUM_POINTS} losses after the warm-up")
    refuse_moment(history)
    law = Joint().fit(others, history)
    try:
        law.stretch = stretch_of(law, history, others)
    except NoForecast as error:
        if history.plan_known:
            raise
        unknown = history.plan or "give its schedule"
        raise NoForecast(f"{error}; its learning rate is not known, which may be why: {unknown}") from error
    end = law.forecast(history)
    refuse_value(history, end.value)
    if not _is_plausible(end, history):
        raise NoForecast(f"the forecast of its end, {end.value:.4g}, is not plausible")
    return law


def decide(
    law: Joint, history: History, others: Sequence[History], question: Question = USUAL, seed: int = 0
) -> Decision:
    """The decision between all candidates whose forecasts are plausible. NoForecast: why there is none."""
    if not np.isfinite(history.tokens_per_step):
        raise NoForecast(f"give tokens_per_step of {history.model}, the tokens of one step")
    found = candidates(history, others, question.remaining, question.sizes)
    if not found:
        raise NoForecast(BUDGET_USED_UP)
    decision = weigh(law, found, seed)
    kept = {option.candidate.name for option in decision.options if _is_plausible(option.loss, history)}
    return (
        weigh(law, [one for one in found if one.name in kept], seed) if len(kept) < len(found) else decision
    )


def _is_plausible(forecast: Prediction, history: History) -> bool:
    present = float(np.median(history.loss_curve[1][-3:]))
    return is_plausible(forecast.value, forecast.deviation, present)


def advise(
    history: History, others: Sequence[History] = (), question: Question = USUAL, seed: int = 0
) -> dict[str, Any]:
    """All that is known of one run under way, as plain values; None stands for unknown.

    others: see `decide`; those of another family are not read.
    """
    family = [run for run in others if run.family == history.family and run.model != history.model]
    spend = rest_of(history) if question.remaining is None else float(question.remaining)
    advice: dict[str, Any] = {
        "model": history.model,
        "step": history.last_step,
        "final_step": history.final_step,
        "loss": last_loss(history),
        "metric": history.metric,
        "spent_flop": plain(float(compute_of(history, history.last_step))),
        "remaining_flop": plain(spend),
        "plan": history.plan if history.plan_known else "",
        "plan_unknown_because": "" if history.plan_known else history.plan or "no learning rate is known",
        "learning_rate_now": _rate(history, history.last_step),
        "learning_rate_at_the_end": _rate(history, history.final_step) if history.plan_known else None,
    }
    try:
        law = trusted_law(history, family)
    except NoForecast as error:
        return advice | _NO_FORECAST | _NO_DECISION | {"no_advice_because": str(error)}
    end = law.forecast(history)
    advice |= {"forecast": end.value, "forecast_low": end.low, "forecast_high": end.high}
    advice |= {"models_read": law.n_runs, "course": _course(law, history)}
    advice |= _target(law, history, question.target_loss)
    try:
        decision = decide(law, history, family, question, seed)
    except NoForecast as error:
        return advice | _NO_DECISION | {"no_advice_because": str(error)}
    return advice | {
        "candidates": [_candidate(option, question) for option in decision.options],
        **_choice(decision, history),
        **_sizes(law, history, spend),
        "no_advice_because": "",
        "assumed": _assumed(history, family, decision, law),
        "find_out_first": _find_out(history, decision, law),
    }


_NO_FORECAST: dict[str, Any] = {
    **dict.fromkeys(("forecast", "forecast_low", "forecast_high", "target_loss"), None),
    **{"models_read": 0, "course": {}},
}
_NO_DECISION: dict[str, Any] = {
    **{"candidates": [], "choice": "", "sure": False},
    **dict.fromkeys(("probability", "stop_probability", "gain", "gain_low", "gain_high"), None),
    **dict.fromkeys(("at_stake", "cost_if_wrong", "best_size"), None),
    **{"assumed": [], "find_out_first": ""},
}


COURSE_POINTS = 48


def _course(law: Joint, history: History) -> dict[str, list[float]]:
    """The forecast from the next step to the end: lists step, loss, low and high."""
    steps = np.unique(
        np.rint(np.geomspace(history.last_step + 1, history.final_step, COURSE_POINTS)).astype(int)
    )
    ahead = [law.forecast(history, int(step)) for step in steps]
    ends = {"loss": "value", "low": "low", "high": "high"}
    return {"step": steps.tolist()} | {
        name: [getattr(one, end) for one in ahead] for name, end in ends.items()
    }


def _choice(decision: Decision, history: History) -> dict[str, Any]:
    best, alone = decision.best, len(decision.options) == 1
    told = {
        "probability": best.probability,
        "stop_probability": decision.stop,
        "gain": best.gain.value,
        "gain_low": best.gain.low,
        "gain_high": best.gain.high,
        "at_stake": best.at_stake,
        "cost_if_wrong": best.cost_if_wrong,
    }
    # The best of one is no finding, and a rate that may still fall leaves every answer open.
    sure = best.is_sure and history.plan_known and is_checkable(history) and not alone
    return {"choice": best.candidate.name, "sure": sure} | (dict.fromkeys(told, None) if alone else told)


def _candidate(option: Option, question: Question) -> dict[str, Any]:
    speed, price = question.gpu_flops, question.gpu_price
    hours = option.candidate.compute / speed / 3600 if speed else None
    return {
        **option.told,
        "flop": option.candidate.compute,
        "gpu_hours": hours,
        "price": hours * price if hours is not None and price is not None else None,
    }


def _target(law: Joint, history: History, loss: float | None) -> dict[str, Any]:
    if loss is None:
        return {"target_loss": None}
    steps, losses = history.loss_curve
    if (losses <= loss).any():
        return {"target_loss": loss, "target_reached_at": float(steps[np.argmax(losses <= loss)])}
    middle, early, late = steps_to(law, history, loss)
    return {
        "target_loss": loss,
        "target_step": plain(middle),
        "target_step_earliest": plain(early),
        "target_step_latest": plain(late),
        "target_flop": plain(float(compute_of(history, middle))),
    }


def _sizes(law: Joint, history: History, spend: float) -> dict[str, Any]:
    # Of one size the best size would be the prior alone.
    if law.n_sizes < 2 or not spend > 0:
        return {"best_size": None}
    size, low, high = best_size(law, history, spend)
    return {"best_size": plain(size), "best_size_low": plain(low), "best_size_high": plain(high)}


def _assumed(history: History, others: Sequence[History], decision: Decision, law: Joint) -> list[str]:
    said = [
        f"the {history.metric} that was read is in nats per token",
        "compute is 6 x parameters x tokens, in FLOP",
    ]
    if not is_checkable(history):
        said.append("the curve follows the law: it has too few points to check that, so no answer is sure")
    if not history.plan_known:
        because = history.plan or "no learning rate is known"
        said.append(f"the learning rate stays as it is, since {because}; a decay to come is in no forecast")
    unread = sorted(run.model for run in others if run.is_finished and not run.rates_known)
    if unread and any(run.rates_known for run in (*others, history)):
        said.append(f"not read, since the learning rates are not known: {', '.join(unread)}")
    finish = next((one.candidate for one in decision.options if one.candidate.name == FINISH), None)
    if finish and history.last_step + finish.steps < history.final_step:
        said.append(
            f"what is left does not pay for the whole plan: {FINISH} ends at step "
            f"{history.last_step + finish.steps:,}, with the rest of the plan pressed into {finish.steps:,} steps"
        )
    if any(one.candidate.is_start for one in decision.options):
        said.append(
            "a new size is trained from scratch under this plan, or its own, stretched to the steps that the compute buys"
        )
        if any(not np.isfinite(run.tokens_per_step) for run in others):
            said.append(f"a size without tokens_per_step has those of {history.model}")
        if law.n_sizes < 2:
            said.append("one size is known: how the loss falls with size is taken from published families")
    return said


LITTLE = 0.005
"""Loss at stake, in nats, below which a choice is not worth waiting for."""


def _find_out(history: History, decision: Decision, law: Joint) -> str:
    """What would decide, in one clause; "" where nothing is open."""
    best, second = decision.best, decision.options[1:2]
    if not second or (best.is_sure and history.plan_known):
        return ""
    if not history.plan_known:
        return f"the plan: give the schedule of {history.model}; whether the rate will fall decides"
    if best.at_stake < LITTLE:
        return f"nothing: only {best.at_stake:.3f} nats are at stake"
    if law.n_sizes < 2 and (best.candidate.is_start or second[0].candidate.is_start):
        cost = float(compute_of(history, history.final_step)) / 16
        return (
            "how the loss falls with size: train a quarter of the size on a quarter of the tokens, to the end of the "
            f"same plan ({cost:.2g} FLOP), and give it, too (--known; in a run under models)"
        )
    later = min(history.last_step + max(history.final_step // 10, 1), history.final_step)
    return f"ask again at step {later:,}: by then the forecast of {FINISH} is narrower"


def last_loss(history: History) -> float | None:
    """The loss that was measured last; of a log alone the median of its last rows."""
    measured = history.checkpoint_losses[np.isfinite(history.checkpoint_losses)]
    losses = measured if len(measured) else history.loss_curve[1]
    return float(losses[-1]) if len(losses) else None


def _rate(history: History, step: int) -> float | None:
    return float(history.rates_to(step)[step]) if len(history.learning_rates) else None


def plain(value: float) -> float | None:
    """A number as JSON can hold it; None where it is not finite."""
    return float(value) if np.isfinite(value) else None
