"""What each policy gives up against the best choice: the rows of one decision, and means over decisions."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from toposcale.analysis.forecasts import bootstrap_interval
from toposcale.decision.advice import Advice
from toposcale.decision.expected_regret import FINISH

ADVICE, ALWAYS_FINISH, STOP_NOW, STOP_AT_RANDOM = POLICIES = ("advice", "always_finish", "stop_now", "stop_at_random")
AT_RANDOM = "stop at random"
"""The choice of `STOP_AT_RANDOM`: no candidate, but a mean over moments."""

OBSERVED, MODELLED = "observed", "modelled"
DECISION = ("model", "fraction")
"""Columns that name a decision, where a model has one decision at a moment."""

MEANS = (
    *("n_decisions", "n_models", "n_sure", "n_modelled", "share_best"),
    *("regret", "regret_low", "regret_high"),
    *("against_finish", "against_finish_low", "against_finish_high"),
)
"""Columns of `mean_regret`. against_finish: the regret of always finishing less that of the policy."""


class Outcome(NamedTuple):
    """The loss at the end of a choice, and whether it was observed; if not, it is that of a law."""

    loss: float
    observed: bool = True


NO_OUTCOME = Outcome(np.nan)


class Choice(NamedTuple):
    """The candidate that a policy chose, its probability to be the best, and whether that is sure; or "" and the reason
    why there is none."""

    candidate: str
    probability: float = np.nan
    reason: str = ""
    is_sure: bool = False

    @classmethod
    def of(cls, advice: Advice) -> Self:
        """The choice of the advice; a training of which there is none goes on as planned."""
        if advice.decision is None:
            return cls(FINISH, reason=advice.no_advice_because)
        return cls(advice.choice, advice.decision.best.probability, is_sure=advice.is_sure)


def usual_choices(advised: Choice, next_start: str = "") -> dict[str, Choice]:
    """The choices of the `POLICIES`.

    next_start: the candidate that starts the next larger size; without one, the policies that stop have no row.
    """
    choices = {ADVICE: advised, ALWAYS_FINISH: Choice(FINISH)}
    if next_start:
        choices |= {STOP_NOW: Choice(next_start), STOP_AT_RANDOM: Choice(AT_RANDOM)}
    return choices


def best_of(outcomes: Mapping[str, Outcome]) -> str:
    """The candidate with the least loss; of equal ones the first of the alphabet."""
    return min(outcomes, key=lambda name: (outcomes[name].loss, name))


def judged(
    choices: Mapping[str, Choice], outcomes: Mapping[str, Outcome], at_random: Outcome = NO_OUTCOME
) -> list[dict[str, Any]]:
    """A row for each policy: policy, choice, probability, is_sure, loss, best, best_loss, regret, truth and reason.

    choices: of each policy, a candidate, or `AT_RANDOM`, which leads to `at_random`. outcomes: of every candidate; all
    spend the same compute in total. The columns mean what the table `decisions` says.
    """
    best = best_of(outcomes)
    led_to = {**outcomes, AT_RANDOM: at_random, "": NO_OUTCOME}
    # Which choice was best is observed only where all of them were.
    all_observed = all(outcome.observed for outcome in outcomes.values())
    return [
        {
            "policy": policy,
            "choice": choice.candidate,
            "probability": choice.probability,
            "is_sure": choice.is_sure,
            "loss": outcome.loss,
            "best": best,
            "best_loss": outcomes[best].loss,
            "regret": outcome.loss - outcomes[best].loss,
            "truth": OBSERVED if outcome.observed and all_observed else MODELLED,
            "reason": choice.reason,
        }
        for policy, choice in choices.items()
        for outcome in [led_to[choice.candidate]]
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
    """The mean regret of each policy within each combination of the columns `by`, and what always finishing gives up more.

    decisions: rows of `judged`, and the columns `key`, which name a decision. group: a column; decisions that share its
    value are not independent, so they are averaged first, and the 95% bootstrap intervals are over these means.
    Columns: those of `by`, policy, and `MEANS`. A row without a regret is not counted.
    """
    rows = decisions.dropna(subset=["regret"])
    finish = rows.loc[rows["policy"] == ALWAYS_FINISH, [*key, "regret"]].rename(columns={"regret": "of_finishing"})
    rows = rows.merge(finish, on=list(key), how="left", validate="many_to_one")
    rows["against_finish"] = rows["of_finishing"] - rows["regret"]
    means = []
    for which, part in rows.groupby([*by, "policy"], sort=True):
        row: dict[str, Any] = dict(zip([*by, "policy"], which, strict=True)) | {
            "n_decisions": len(part),
            "n_models": part["model"].nunique(),
            "n_sure": int(part["is_sure"].sum()),
            "n_modelled": int((part["truth"] == MODELLED).sum()),
            "share_best": float((part["regret"] <= 0).mean()),
        }
        for column in ("regret", "against_finish"):
            by_group = part.dropna(subset=[column]).groupby(group)[column].mean().to_numpy(np.float64)
            row[column] = float(by_group.mean()) if len(by_group) else np.nan
            row[f"{column}_low"], row[f"{column}_high"] = bootstrap_interval(by_group, resamples, seed)
        means.append(row)
    return pd.DataFrame(means, columns=[*by, "policy", *MEANS])
