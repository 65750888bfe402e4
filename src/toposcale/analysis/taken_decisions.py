"""Decisions that were really taken: every alternative was trained, so what each policy gives up was observed.

docs/decisions.md says which runs there are. At some shares of a base run, larger sizes were
started from scratch with the compute that it had left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from toposcale.analysis.forecasts import bootstrap_interval, by_cell
from toposcale.forecasting.decision import (
    FINISH,
    UNDECIDED,
    Candidate,
    compute_of,
    recommendation,
    rest_of,
    weigh,
)
from toposcale.forecasting.forecasters import CURVE_METHODS, forecast, make_forecaster
from toposcale.forecasting.history import History
from toposcale.forecasting.joint import Joint, target_of

ALTERNATIVE = re.compile(r"(?P<size>.+)-after-(?P<base>.+)-(?P<percent>\d+)")
OF_THE_END = tuple(method for method in CURVE_METHODS if method not in ("joint", "chinchilla"))
"""Forecasts of the end that take the place of the joint law's; chinchilla needs three sizes, and fewer are known."""

ALL = "all"
SEED = 42
RESAMPLES = 10_000


class Alternative(NamedTuple):
    """A run that was started from scratch when `base` stood at `fraction`."""

    base: str
    fraction: float
    size: str
    run: History


def alternatives_of(models: pd.DataFrame, histories: Sequence[History]) -> list[Alternative]:
    """Every alternative, from the names of the entries of the models table; runs of one seed belong together."""
    runs = {history.model: history for history in histories}
    names = {(entry, seed): model for model, entry, seed in models[["model", "entry", "seed"]].to_numpy()}
    found = []
    for model, entry, seed in models[["model", "entry", "seed"]].to_numpy():
        if parts := ALTERNATIVE.fullmatch(entry):
            base = names[parts["base"], seed]
            found.append(Alternative(base, int(parts["percent"]) / 100, parts["size"], runs[model]))
    return found


def taken_table(histories: Sequence[History], alternatives: Sequence[Alternative]) -> pd.DataFrame:
    """A row for every decision and policy: model, fraction, policy, choice, loss, best, best_loss, regret, reason.

    The moment: the base run stands at `fraction`; the smaller base runs of its seed that are no longer than it are
    finished; of the larger sizes only the plans are known. `joint` and the methods of `OF_THE_END` take what they forecast
    to be lowest. They differ in how they forecast the end of the base run, and share the joint law's forecast of the
    alternatives. `advice` is `joint` where it is sure; where it is undecided, the run is finished. `stop_now` starts the
    next size; `stop_at_random` does so at one of the moments from now on, or never. Every loss was observed; regret is the
    loss at the end less that of the best alternative, at one total compute.
    """
    bases = {one.base for one in alternatives}
    rows: list[dict[str, Any]] = []
    for history in histories:
        if history.model not in bases:
            continue
        own = [one for one in alternatives if one.base == history.model]
        smaller = [
            other
            for other in histories
            if other.model in bases
            and other.seed == history.seed
            and other.n_parameters < history.n_parameters
            and other.final_step <= history.final_step
        ]
        for fraction in sorted({one.fraction for one in own}):
            rows += _judged(history, smaller, own, fraction)
    return pd.DataFrame(rows).sort_values(["fraction", "model", "policy"], ignore_index=True)


def _judged(
    history: History, smaller: Sequence[History], alternatives: Sequence[Alternative], fraction: float
) -> Iterator[dict[str, Any]]:
    now = history.first(fraction)
    known = [*smaller, now]
    starts = sorted(
        (one for one in alternatives if one.fraction == fraction), key=lambda one: one.run.n_parameters
    )
    truths = {FINISH: history.final_loss} | {f"start {one.size}": one.run.final_loss for one in starts}
    best = min(truths, key=lambda name: (truths[name], name))
    following = f"start {starts[0].size}"
    later = [
        one.run.final_loss for one in alternatives if one.fraction >= fraction and one.size == starts[0].size
    ]
    options = weigh(Joint().fit(known), _candidates(now, starts), SEED)
    losses = {option.candidate.name: option.loss for option in options}
    first = options[0]
    at_random = float(np.mean([*later, truths[FINISH]]))
    outcomes = truths | {UNDECIDED: truths[FINISH], "stop at random": at_random, "": np.nan}
    choices = {
        "advice": recommendation(options),
        "joint": first.candidate.name,
        "always_finish": FINISH,
        "stop_now": following,
        "stop_at_random": "stop at random",
        "oracle": best,
    }
    reasons = {}
    for method in OF_THE_END:
        end = forecast(make_forecaster(method, known), now)
        forecasts = losses | {FINISH: end.value}
        lowest = min(forecasts, key=lambda name: (forecasts[name], name))
        choices[method], reasons[method] = "" if end.reason else lowest, end.reason
    for policy, choice in choices.items():
        yield {
            "model": history.model,
            "fraction": fraction,
            "policy": policy,
            "choice": choice,
            "probability": first.probability if policy in ("advice", "joint") else np.nan,
            "loss": outcomes[choice],
            "best": best,
            "best_loss": truths[best],
            "regret": outcomes[choice] - truths[best],
            "reason": reasons.get(policy, ""),
        }


def _candidates(now: History, starts: Sequence[Alternative]) -> list[Candidate]:
    finish = Candidate(FINISH, target_of(now), now.final_step - now.last_step, rest_of(now))
    return [
        finish,
        *(
            Candidate(
                f"start {one.size}",
                target_of(one.run),
                one.run.final_step,
                float(compute_of(one.run, one.run.final_step)),
            )
            for one in starts
        ),
    ]


def evaluate_taken(decisions: pd.DataFrame) -> pd.DataFrame:
    """Of every policy at every fraction, for every size, and in all: n_decisions, n_undecided, n_runs, share_best, the mean
    regret, and what always finishing gives up more than it (against_finish).

    Both means have 95% bootstrap intervals over the sizes and lengths of the base runs; seeds are averaged first.
    """
    rows = []
    judged = decisions.dropna(subset=["regret"])
    finish = judged[judged["policy"] == "always_finish"].set_index(["model", "fraction"])["regret"]
    parts = [
        *((f"at {fraction:.0%}", part) for fraction, part in judged.groupby("fraction")),
        *((f"of {size}", part) for size, part in judged.groupby(_size_of(judged))),
        (ALL, judged),
    ]
    for which, part in parts:
        for policy, group in part.groupby("policy"):
            own = group.set_index(["model", "fraction"])["regret"]
            row: dict[str, object] = {"decisions": which, "policy": policy}
            row |= {"n_decisions": len(own), "n_undecided": int((group["choice"] == UNDECIDED).sum())}
            row["n_runs"] = own.index.get_level_values(0).nunique()
            row["share_best"] = float((own <= 0).mean())
            for column, values in (("regret", own), ("against_finish", finish.loc[own.index] - own)):
                # Neither decisions about one run nor runs that differ by their seed are independent.
                models = values.index.get_level_values("model")
                cells = by_cell(values, models, {model: model.partition(".")[0] for model in models})
                row[column] = float(cells.mean())
                row[f"{column}_low"], row[f"{column}_high"] = bootstrap_interval(cells, RESAMPLES, SEED)
            rows.append(row)
    return pd.DataFrame(rows)


def _size_of(decisions: pd.DataFrame) -> pd.Series:
    return decisions["model"].str.partition(".")[0]


def in_one_sentence(policies: pd.DataFrame) -> str:
    """What the advice and always finishing gave up on average over all decisions of an `evaluate_taken` table."""
    own = policies[policies["decisions"] == ALL].set_index("policy").to_dict("index")
    advice, finish = own["advice"], own["always_finish"]
    return (
        f"On {int(advice['n_decisions'])} decisions that were really taken, of {int(advice['n_runs'])} small runs whose "
        f"alternatives were trained too, finishing was best in {finish['share_best']:.0%}; this advice (undecided in "
        f"{int(advice['n_undecided'])}, which are finished) gave up {advice['regret']:.3f} nats on average, always "
        f"finishing {finish['regret']:.3f}."
    )


def where_starting_was_right(decisions: pd.DataFrame) -> pd.DataFrame:
    """By size and fraction: how often finishing was best, how often each start was, and by how much on average."""
    once = decisions[decisions["policy"] == "always_finish"].copy()
    once["size"] = _size_of(once)
    rows = [
        {
            "size": size,
            "share": f"{fraction:.0%}",
            "n_decisions": len(group),
            "starting_was_best": float((group["best"] != FINISH).mean()),
            "best": "; ".join(f"{name} {count}" for name, count in group["best"].value_counts().items()),
            "given_up_by_finishing": float(group["regret"].mean()),
        }
        for (size, fraction), group in once.groupby(["size", "fraction"], sort=False)
    ]
    return pd.DataFrame(rows)
