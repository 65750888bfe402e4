"""Regret of each policy against the best choice: the rows of one decision, and means over decisions."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from toposcale.analysis.forecasts import bootstrap_interval
from toposcale.forecasting.decision.advice import Advice
from toposcale.forecasting.decision.candidates import CONTINUE

ADVICE, ALWAYS_CONTINUE, NEXT_SIZE, RANDOM_STOP = POLICIES = ("advice", "always_continue", "next_size", "random_stop")
AT_RANDOM = "random stop"
"""Choice of `RANDOM_STOP`: not a candidate, but a mean over points of the rest."""

OBSERVED, MODELLED = "observed", "modelled"
DECISION = ("model", "fraction")
"""Columns that identify a decision, where a model has one at a point."""

MEANS = (
    *("n_decisions", "n_models", "n_confident", "n_modelled", "share_best"),
    *("regret", "regret_low", "regret_high"),
    *("regret_saved", "regret_saved_low", "regret_saved_high"),
)
"""Columns of `mean_regret`. regret_saved: regret of always continuing less that of the policy."""


class Outcome(NamedTuple):
    """The loss at the end of a choice, and whether it was observed; if not, it is that of a law."""

    loss: float
    observed: bool = True


NO_OUTCOME = Outcome(np.nan)


class Choice(NamedTuple):
    """Candidate that a policy chose, its probability of being the best, and whether that is confident; or "" and the reason
    why there is none."""

    candidate: str
    probability: float = np.nan
    reason: str = ""
    is_confident: bool = False

    @classmethod
    def of(cls, advice: Advice) -> Self:
        """Return the choice of the advice; a run without one continues."""
        if advice.decision is None:
            return cls(CONTINUE, reason=advice.no_advice_because)
        return cls(advice.choice, advice.decision.best.probability, is_confident=advice.is_confident)


def usual_choices(advised: Choice, next_start: str = "") -> dict[str, Choice]:
    """Return the choices of the `POLICIES`; of those alone that continue if no candidate starts the next larger size."""
    choices = {ADVICE: advised, ALWAYS_CONTINUE: Choice(CONTINUE)}
    if next_start:
        choices |= {NEXT_SIZE: Choice(next_start), RANDOM_STOP: Choice(AT_RANDOM)}
    return choices


def best_of(outcomes: Mapping[str, Outcome]) -> str:
    """Return the candidate with the least loss; of equal ones the first of the alphabet."""
    return min(outcomes, key=lambda name: (outcomes[name].loss, name))


def judged(
    choices: Mapping[str, Choice], outcomes: Mapping[str, Outcome], at_random: Outcome = NO_OUTCOME
) -> list[dict[str, Any]]:
    """Return a row for each policy, with the columns of the table `decisions` from policy on.

    choices: of each policy, a candidate or `AT_RANDOM`. outcomes: of every candidate; all spend the same compute in total.
    """
    best = best_of(outcomes)
    outcome_of = {**outcomes, AT_RANDOM: at_random, "": NO_OUTCOME}
    # Which choice was best is observed only where all of them were.
    all_observed = all(outcome.observed for outcome in outcomes.values())
    return [
        {
            "policy": policy,
            "choice": choice.candidate,
            "probability": choice.probability,
            "is_confident": choice.is_confident,
            "loss": outcome.loss,
            "best": best,
            "best_loss": outcomes[best].loss,
            "regret": outcome.loss - outcomes[best].loss,
            "truth": OBSERVED if outcome.observed and all_observed else MODELLED,
            "reason": choice.reason,
        }
        for policy, choice in choices.items()
        for outcome in [outcome_of[choice.candidate]]
    ]


def mean_regret(
    decisions: pd.DataFrame,
    by: Sequence[str],
    *,
    key: Sequence[str] = DECISION,
    group: str = "model",
    resamples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the mean regret of each policy within each combination of the columns `by`, and the regret it saves.

    decisions: rows of `judged`, and the columns `key`, which name a decision. group: a column; decisions that share its
    value are not independent, so they are averaged first, and the 95% bootstrap intervals are over these means.
    Columns: those of `by`, policy, and `MEANS`. A row without a regret is not counted.
    """
    rows = decisions.dropna(subset=["regret"])
    continued = rows.loc[rows["policy"] == ALWAYS_CONTINUE, [*key, "regret"]].rename(columns={"regret": "continued"})
    rows = rows.merge(continued, on=list(key), how="left", validate="many_to_one")
    rows["regret_saved"] = rows["continued"] - rows["regret"]
    means = []
    for values, part in rows.groupby([*by, "policy"], sort=True):
        row: dict[str, Any] = dict(zip([*by, "policy"], values, strict=True)) | {
            "n_decisions": len(part),
            "n_models": part["model"].nunique(),
            "n_confident": int(part["is_confident"].sum()),
            "n_modelled": int((part["truth"] == MODELLED).sum()),
            "share_best": float((part["regret"] <= 0).mean()),
        }
        for column in ("regret", "regret_saved"):
            by_group = part.dropna(subset=[column]).groupby(group)[column].mean().to_numpy(np.float64)
            row[column] = float(by_group.mean()) if len(by_group) else np.nan
            row[f"{column}_low"], row[f"{column}_high"] = bootstrap_interval(by_group, resamples, seed)
        means.append(row)
    return pd.DataFrame(means, columns=[*by, "policy", *MEANS])
