"""The project's own decisions: every alternative was trained, so the regret of each policy was observed.

studies/decisions/README.md tells the results. At some shares of a base run, larger sizes were started from scratch with the
compute that it had left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from studies.decisions.judge import lowest
from toposcale.analysis.decisions import Choice, Outcome, best_of, mean_regret, rows_of_policies, usual_choices
from toposcale.analysis.methods import METHODS, forecast, make
from toposcale.forecasting.decision.advice import advise_on
from toposcale.forecasting.decision.candidates import CONTINUE, Candidate, CandidateKind, weigh
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.runs.training_run import TrainingRun

ALTERNATIVE = re.compile(r"(?P<size>.+)-after-(?P<base>.+)-(?P<percent>\d+)")
OF_THE_END = tuple(
    method for method in METHODS if method not in ("joint", "chinchilla") and not method.startswith("ridge")
)
"""Forecasts of the end that take the place of the joint law's; chinchilla needs three sizes, and fewer are known."""

ALL = "all"
SEED = 42
RESAMPLES = 10_000


class Alternative(NamedTuple):
    """A run that was started from scratch when `base` stood at `fraction`."""

    base: str
    fraction: float
    size: str
    run: TrainingRun


def alternatives_of(models: pd.DataFrame, histories: Sequence[TrainingRun]) -> list[Alternative]:
    """Every alternative, from the names of the entries of the models table; runs of one seed belong together."""
    runs = {history.model: history for history in histories}
    names = {(entry, seed): model for model, entry, seed in models[["model", "entry", "seed"]].to_numpy()}
    alternatives = []
    for (entry, seed), model in names.items():
        if parts := ALTERNATIVE.fullmatch(entry):
            base = names[parts["base"], seed]
            alternatives.append(Alternative(base, int(parts["percent"]) / 100, parts["size"], runs[model]))
    return alternatives


def decision_table(histories: Sequence[TrainingRun], alternatives: Sequence[Alternative]) -> pd.DataFrame:
    """A row for every decision and policy: model, fraction, and the columns of `rows_of_policies`.

    The point: the base run stands at `fraction`; the smaller base runs of its seed that are no longer than it are
    finished; of the larger sizes only the plans are known. `joint` and the methods of `OF_THE_END` take what they forecast
    to be lowest. They differ in how they forecast the end of the base run, and share the joint law's forecast of the
    alternatives. `advice` is that of the users' door. `next_size` trains the next size; `random_stop` does so at one of the
    points from now on, or never. Every loss was observed; regret is the loss at the end less that of the best alternative,
    at one total compute.
    """
    bases = {one.base for one in alternatives}
    rows: list[dict[str, Any]] = []
    for history in histories:
        if history.model not in bases:
            continue
        of_model = [one for one in alternatives if one.base == history.model]
        smaller = [
            other
            for other in histories
            if other.model in bases
            and other.facts.seed == history.facts.seed
            and other.n_parameters < history.n_parameters
            and other.final_step <= history.final_step
        ]
        for fraction in sorted({one.fraction for one in of_model}):
            point = {"model": history.model, "fraction": fraction}
            rows += [point | row for row in _decision(history, smaller, of_model, fraction)]
    return pd.DataFrame(rows).sort_values(["fraction", "model", "policy"], ignore_index=True)


def _decision(
    history: TrainingRun, smaller: Sequence[TrainingRun], alternatives: Sequence[Alternative], fraction: float
) -> list[dict[str, Any]]:
    now = history.first(fraction)
    known = [*smaller, now]
    starts = sorted((one for one in alternatives if one.fraction == fraction), key=lambda one: one.run.n_parameters)
    outcomes = {CONTINUE: Outcome(history.progress.loss)}
    outcomes |= {f"scale up to {one.size}": Outcome(one.run.progress.loss) for one in starts}
    later = [one.run.progress.loss for one in alternatives if one.fraction >= fraction and one.size == starts[0].size]
    among = _candidates(now, starts)
    decision = weigh(Joint(check=False).fit(now, known), among)
    advice = Choice.of(advise_on(now, smaller, among=among))
    choices = usual_choices(advice, f"scale up to {starts[0].size}")
    choices["expected_regret"] = Choice(decision.best.candidate.name, decision.best.probability)
    choices["oracle"] = Choice(best_of(outcomes))
    choices |= {method: lowest(decision, forecast(make(method), now, known)) for method in OF_THE_END}
    return rows_of_policies(choices, outcomes, Outcome(float(np.mean([*later, history.progress.loss]))))


def _candidates(now: TrainingRun, starts: Sequence[Alternative]) -> list[Candidate]:
    steps = now.final_step - now.progress.step
    return [
        Candidate(CandidateKind.CONTINUE, CONTINUE, now.target(), steps, now.flop_left),
        *(
            Candidate(
                CandidateKind.SCALE_UP,
                f"scale up to {one.size}",
                one.run.target(),
                one.run.final_step,
                one.run.flop_of_steps(one.run.final_step),
            )
            for one in starts
        ),
    ]


def policy_table_of_own(decisions: pd.DataFrame) -> pd.DataFrame:
    """The mean regret of every policy at every fraction, for every kind of base run (its size and length), and in all.

    Intervals are over kinds of base run, since neither decisions about one run nor runs that differ by their seed are
    independent.
    """
    kind = _kind(decisions)
    parts = (decisions["fraction"].map("at {:.0%}".format), "of " + kind, ALL)
    found = [
        mean_regret(
            decisions.assign(decisions=part, kind=kind), ["decisions"], group="kind", resamples=RESAMPLES, seed=SEED
        )
        for part in parts
    ]
    return pd.concat(found, ignore_index=True)


def _kind(decisions: pd.DataFrame) -> pd.Series:
    return decisions["model"].str.partition(".")[0]


def where_starting_was_right(decisions: pd.DataFrame) -> pd.DataFrame:
    """By size and fraction: how often finishing was best, how often each start was, and by how much on average."""
    once = decisions[decisions["policy"] == "always_continue"].copy()
    once["size"] = _kind(once)
    rows = [
        {
            "size": size,
            "share": f"{fraction:.0%}",
            "n_decisions": len(group),
            "starting_was_best": float((group["best"] != CONTINUE).mean()),
            "best": "; ".join(f"{name} {count}" for name, count in group["best"].value_counts().items()),
            "regret_of_continuing": float(group["regret"].mean()),
        }
        for (size, fraction), group in once.groupby(["size", "fraction"], sort=False)
    ]
    return pd.DataFrame(rows)
