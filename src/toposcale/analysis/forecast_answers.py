"""What a run says about its forecasts and its decisions: at most 40 words each, the numbers apart."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.advice import NAME_ANOTHER_SIZE
from toposcale.analysis.feature_answers import UNTESTED, Answer
from toposcale.analysis.forecasts import LEAST_COVERAGE, MOST_OF_THEM, RIVALS
from toposcale.forecasting.decision import SURE
from toposcale.statistics.multiple_testing import holm

LEVEL = 0.05
MOST_NAMED = 5
FEWEST_RUNS = 10
FEWEST_DECISIONS = 10
"""Runs and decisions below which there is no verdict."""

TOPOLOGICAL = {
    "topology_rate": "the rate of neural persistence",
    "combined": "its mean with the power law",
    "ridge_topology": "a regression on all topology",
}
"""Forecasting methods that read topology, in words."""

WORDS = {
    "power_law": "the power law",
    "multi_power_law": "the multi-power law",
    "joint": "the joint law of all sizes",
    "chinchilla": "the Chinchilla law",
    "ridge_loss": "a regression on the loss",
    "ridge_size": "a regression on the number of parameters alone",
}


def trusted(evaluation: pd.DataFrame) -> Answer:
    """Which forecast to trust: the method with the least error at the smallest share of training."""
    rows = _first(evaluation)
    rows = rows if rows.empty else rows[rows["method"].isin(RIVALS)].dropna(subset=["mae"])
    if rows.empty:
        return Answer(UNTESTED, "No finished run has a forecast to be judged by.")
    most = rows[rows["n_forecasts"] >= MOST_OF_THEM * rows["n_forecasts"].max()].sort_values("mae")
    best = most.iloc[0]
    text = (
        f"From the first {best['fraction']:.0%} of training it misses the final loss by {best['mae']:.3f} nats on average "
        f"over {int(best['n_forecasts'])} runs. Its own 95% interval, not calibrated, holds it in "
        f"{best['interval_coverage']:.0%} of them."
    )
    others = [f"{WORDS[row.method]} misses it by {row.mae:.3f}" for row in most.iloc[1:4].itertuples()]
    numbers = ", ".join(others) + ("." if others else "")
    unsafe = [WORDS[str(name)] for name in rows.loc[rows["interval_coverage"] < LEAST_COVERAGE, "method"]]
    if unsafe:
        numbers += f" The intervals of {' and '.join(unsafe)} hold the truth in fewer than {LEAST_COVERAGE:.0%} of cases."
    return Answer(f"{WORDS[best['method']][:1].upper()}{WORDS[best['method']][1:]}", text, numbers.strip())


def forecasting(evaluation: pd.DataFrame) -> Answer:
    """Each method that reads topology against the best that reads the loss alone or the size alone.

    At the smallest share of training. Yes only for a method whose gain is above 0 with its interval and passes Holm's
    correction for all of them, over at least `FEWEST_RUNS` cells that both forecast; the seeds of a cell count once.
    """
    rows = _first(evaluation)
    rivals = rows[rows["method"] == rows["baseline"]] if "baseline" in rows else rows[:0]
    if rivals.empty or math.isnan(rivals["mae"].iloc[0]):
        return Answer(
            UNTESTED,
            "No forecast could be made by a method on the loss alone, so none can be compared.",
        )
    rival = rivals.iloc[0]
    runs = int(rival["n_forecasts"])
    text = (
        f"From the first {rival['fraction']:.0%} of training, the best forecast without topology, "
        f"{WORDS.get(rival['method'], rival['method'])}, misses the final loss by {rival['mae']:.3f} nats over {runs} runs."
    )
    said = []
    judged = rows[rows["method"].isin(TOPOLOGICAL)].dropna(subset=["improvement_percent"])
    for row in judged.to_dict("records"):
        gain = row["improvement_percent"]
        # Lower errors are better; the interval is that of the same quantity, so it turns with the sign.
        sign, word = (1, "closer") if gain >= 0 else (-1, "further off")
        low, high = sorted(sign * row[end] for end in ("improvement_low", "improvement_high"))
        said.append(
            f"{TOPOLOGICAL[row['method']]} comes {abs(gain):.0f}% {word} {_interval(low, high, '.0f')}"
        )
    numbers = "; ".join(said) + ("." if said else "")
    if judged.empty:
        return Answer(UNTESTED, text + " No method that reads topology could forecast at that point.")
    best = judged.iloc[judged["improvement_percent"].argmax()]
    word = "closer" if best["improvement_percent"] >= 0 else "further off"
    text += f" With topology it comes {abs(best['improvement_percent']):.0f}% {word} at best."
    compared = int(judged["n_compared"].max())
    if compared < FEWEST_RUNS:
        return Answer(
            f"Not tested: {compared} runs",
            text,
            f"{numbers} Below {FEWEST_RUNS} runs that are more than seeds of one another there is no verdict.",
        )
    # A method whose test could not be made counts among the tests, and is never found.
    corrected = holm(judged["improvement_p"].fillna(1.0).to_numpy(float))
    enough = judged["n_compared"] >= FEWEST_RUNS
    gained = judged[enough & (judged["improvement_low"] > 0) & (corrected <= LEVEL)]
    if len(gained):
        return Answer("Yes", text, numbers)
    return Answer(
        "No, it makes it worse" if (enough & (judged["improvement_high"] < 0)).all() else "Not shown",
        text,
        numbers,
    )


def deciding(evaluation: pd.DataFrame) -> Answer:
    """What the advice would have cost against always finishing, stopping now, and stopping at random."""
    rows = _first(evaluation)
    by: dict[Any, Any] = rows.set_index("policy").to_dict("index") if len(rows) else {}
    if "advice" not in by:
        return Answer(UNTESTED, "No finished run has a larger size in its family to be compared with.")
    own = by["advice"]
    count, modelled = int(own["n_decisions"]), int(own["n_modelled"])
    costs = "; ".join(
        f"{words} {by[policy]['regret']:.3f} "
        + _interval(by[policy]["regret_low"], by[policy]["regret_high"], ".3f")
        for policy, words in (
            ("advice", "the advice"),
            ("always_finish", "always finishing"),
            ("stop_now", "always stopping"),
            ("stop_at_random", "stopping at random"),
        )
        if policy in by
    )
    text = (
        f"Decided at {own['fraction']:.0%} of training, the compute already spent counted, the advice gives up "
        f"{own['regret']:.3f} nats against the best choice, over {count} decisions."
    )
    numbers = (
        f"Loss given up: {costs}. In {modelled} of the {count} decisions the truth is a law fitted to all runs and not a "
        "training."
    )
    if count < FEWEST_DECISIONS:
        numbers += f" Below {FEWEST_DECISIONS} decisions there is no verdict."
        return Answer(f"Not tested: {count} decisions", text, numbers)
    against = _interval(own["against_finish_low"], own["against_finish_high"], ".3f")
    numbers += f" Against always finishing it gains {own['against_finish']:.3f} {against}."
    if own["against_finish_low"] > 0:
        return Answer("Yes, against always finishing", text, numbers)
    return Answer(
        "No, it would have cost loss" if own["against_finish_high"] < 0 else "Not shown", text, numbers
    )


def now(candidates: pd.DataFrame) -> Answer | None:
    """What is best for every run under way; None where there is none."""
    live = candidates[candidates["is_live"].astype(bool)] if len(candidates) else candidates
    if live.empty:
        return None
    best = live.sort_values("at_stake").groupby("model", sort=True).head(1).sort_values("model")
    sure = best["probability"] >= SURE
    counts = live["model"].value_counts()
    alone = best["model"].map(counts) == 1
    said = [
        f"{row['model']} at {row['fraction']:.0%}: {_leads(row, int(counts[row['model']]))}"
        for row in best.iloc[:MOST_NAMED].to_dict("records")
    ]
    more = len(best) - MOST_NAMED
    text = "; ".join(said) + (f"; {more} more in the table candidates" if more > 0 else "") + "."
    if alone.any():
        text += f" {NAME_ANOTHER_SIZE}."
    choices = [*best.loc[sure, "candidate"], *["undecided"] * int((~sure).sum())]
    starts = ["stop and start another size" if choice.startswith("start ") else choice for choice in choices]
    counted = {choice: starts.count(choice) for choice in dict.fromkeys(starts)}
    words = [choice if len(best) == 1 else f"{choice} {count}" for choice, count in counted.items()]
    verdict = ", ".join(words)
    return Answer(verdict[:1].upper() + verdict[1:], "`make advice` says why and what it assumes.", text)


def _leads(best: Mapping[Hashable, Any], candidates: int) -> str:
    if candidates == 1:
        return f"{best['candidate']}, there is nothing else to choose"
    unsure = "" if best["probability"] >= SURE else "undecided, best is "
    return f"{unsure}{best['candidate']} with {best['probability']:.0%}"


def _first(evaluation: pd.DataFrame) -> pd.DataFrame:
    """The rows at the smallest share of training that is not 0."""
    if evaluation.empty:
        return evaluation
    begun = evaluation[evaluation["fraction"] > 0]
    return begun[begun["fraction"] == begun["fraction"].min()]


def _interval(low: float, high: float, form: str) -> str:
    if not (np.isfinite(low) and np.isfinite(high)):
        return "(no interval: too few)"
    return f"(95% interval {low:{form}} to {high:{form}})"
