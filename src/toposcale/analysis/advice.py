"""One paragraph on a live, unfinished run: train on, or scale up?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toposcale.analysis.decisions import (
    compute_of,
    first_common,
    forecast_curve,
    next_sizes,
    observed_curve,
    switch_point,
)
from toposcale.forecasting.forecasters import make_forecaster
from toposcale.forecasting.history import History


def advice(
    history: History,
    family: Sequence[History] = (),
    *,
    method: str = "power_law",
    budget: float | None = None,
    seed: int = 0,
) -> str:
    """One paragraph of numbers and 95% intervals on `history`, as far as it has come.

    `family`: what is known of other sizes, finished or not; the next larger one of the same family and seed
    decides where to switch. `method`: one of `CURVE_METHODS`. `budget` in FLOP; by default the whole run's
    compute.
    """
    others = [other for other in family if other.model != history.model]
    forecaster = make_forecaster(method, [*others, history], seed=seed)
    prediction = forecaster.fit(history).predict(history.final_step)
    share = history.last_step / history.final_step
    compute = float(compute_of(history, history.last_step))
    told = f"{compute:.3g} FLOP" if np.isfinite(compute) else "compute unknown"
    sentences = [
        f"{history.model} has done {history.last_step:,} of {history.final_step:,} steps ({share:.0%}, {told})."
    ]
    seen = observed_curve(history)
    if len(seen.loss):
        sentences[0] = sentences[0][:-1] + f"; its loss is {seen.loss[-1]:.4g}."
    if not np.isfinite(prediction.value):
        sentences.append(f"No forecast by {method}: {prediction.reason}. No advice yet: train on.")
        return " ".join(sentences)
    sentences.append(
        f"{method} forecasts {prediction.value:.4g} at the end (95% interval {prediction.low:.4g} to "
        f"{prediction.high:.4g})."
    )
    if np.isnan(compute):
        sentences.append(
            f"No decision without compute: set models.{history.model}.tokens_per_step, the tokens of one step."
        )
        return " ".join(sentences)
    following = next_sizes([*others, history]).get(history.model)
    if following is None:
        sentences.append(
            "No larger model is known to compare it with, so there is no switch point to forecast."
        )
        return " ".join(sentences)
    sentences.append(_switch_sentence(history, following, others, method, budget, seed))
    return " ".join(sentences)


def _switch_sentence(
    history: History,
    following: History,
    others: Sequence[History],
    method: str,
    budget: float | None,
    seed: int,
) -> str:
    end = float(compute_of(history, history.final_step))
    spent = float(compute_of(history, history.last_step))
    limit = float(np.clip(end if budget is None else budget, spent, end))
    forecaster = make_forecaster(method, [*others, history], seed=seed)
    own, larger = forecast_curve(history, forecaster), forecast_curve(following, forecaster)
    if isinstance(own, str) or isinstance(larger, str):
        reason = own if isinstance(own, str) else larger
        return f"{following.model}, the next size, cannot be forecast ({reason}). No advice yet: train on."
    switch, early, late = (
        switch_point(own, larger, limit, ends)
        for ends in (("loss", "loss"), ("high", "low"), ("low", "high"))
    )
    next_size = f"{following.model}, the next size,"
    if np.isnan(switch):
        return f"{next_size} has nothing to compare at {limit:.3g} FLOP. No advice yet: train on."
    interval = f"95% interval {_compute(early)} to {_compute(late)}"
    if np.isinf(switch):
        return f"{next_size} is not forecast to be better at {limit:.3g} FLOP ({interval}). Advice: train on."
    bound = "at most " if switch == first_common(own, larger) else ""
    crossing = f"{next_size} is forecast to be better from {bound}{switch:.3g} FLOP on ({interval})"
    if switch <= spent:
        left_out = 1 - spent / end
        return f"{crossing}, already spent. Advice: scale up now; that leaves out {left_out:.0%} of this run."
    step = switch / float(compute_of(history, 1))
    return (
        f"{crossing}, which this run reaches at step {step:,.0f}. Advice: train on until then, "
        f"then scale up; that leaves out {1 - switch / end:.0%} of this run."
    )


def _compute(value: float) -> str:
    return "never within the budget" if np.isinf(value) else f"{value:.3g} FLOP"
