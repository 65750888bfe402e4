"""What the advice, and plain policies, give up on decisions of published runs, and how good the forecasts behind it are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from studies.decisions.published import ALONE, CONSTANT, SEVERAL, WITH_SMALLER, Moment, Start
from toposcale.analysis.regret import Choice, Outcome, best_of, judged
from toposcale.forecasting.candidates import FINISH
from toposcale.forecasting.decision import SURE, Decision, weigh
from toposcale.forecasting.history import History
from toposcale.forecasting.joint import Joint
from toposcale.forecasting.methods import Family, forecast, make
from toposcale.forecasting.prediction import Prediction
from toposcale.forecasting.priors import Prior

EXPECTED_REGRET = "expected_regret"
OF_THE_END = ("power_law", "chinchilla", "multi_power_law")
"""Forecasts of the end of the base run that take the place of the joint law's."""

NEAR = 0.10
"""Decisions are near where the losses of the choices differ by at most so many nats."""

DECISION = ["family", "shape", "setting", "usual", "decision"]


def decision_table(moments: Iterable[Moment], priors: Mapping[str, Prior]) -> pd.DataFrame:
    """A row for every decision and policy: family, shape, setting, usual, decision, model, base_size, near, of `judged`,
    and of the policy `EXPECTED_REGRET` the forecasts of finishing and of the starts with their intervals.

    priors: by source, learnt without it.
    """
    rows: list[dict[str, Any]] = []
    for number, moment in enumerate(moments):
        prior = priors[moment.base.source]
        for setting, known in ((ALONE, ()), (WITH_SMALLER, moment.smaller)):
            if known or setting == ALONE:
                rows += _rows_of(moment, number, setting, known, prior)
    return pd.DataFrame(rows)


def _rows_of(
    moment: Moment, number: int, setting: str, known: Sequence[History], prior: Prior
) -> list[dict[str, Any]]:
    """Each start of a moment against finishing; at a constant rate also all of them together."""
    law = Joint(prior).fit(known, moment.now)
    family = Family((*known, moment.now))
    ends = {method: forecast(make(method, family), moment.now) for method in OF_THE_END}
    together: list[tuple[tuple[Start, ...], str]] = [((start,), setting) for start in moment.starts]
    usual = tuple(start for start in moment.starts if start.run.is_usual)
    if moment.base.shape == CONSTANT and len(usual) > 1 and moment.base.is_usual:
        together.append((usual, f"{SEVERAL}, {setting}"))
    rows = []
    for starts, where in together:
        decision = weigh(law, [moment.finish, *(start.candidate for start in starts)])
        key = {
            "family": moment.base.family,
            "shape": moment.base.shape,
            "setting": where,
            "usual": moment.base.is_usual and all(start.run.is_usual for start in starts),
            "decision": f"{number}/{starts[0].history.model if len(starts) == 1 else SEVERAL}",
            "model": moment.base.history.model,
            "base_size": moment.base.size,
            "near": _is_near(moment, starts),
        }
        rows += [key | row for row in _judged(decision, moment, starts, ends)]
    return rows


def _is_near(moment: Moment, starts: Sequence[Start]) -> bool:
    losses = sorted([moment.loss, *(start.loss for start in starts)])
    return losses[1] - losses[0] <= NEAR


def _judged(
    decision: Decision, moment: Moment, starts: Sequence[Start], ends: Mapping[str, Prediction]
) -> list[dict[str, Any]]:
    outcomes = {FINISH: Outcome(moment.loss)}
    outcomes |= {start.candidate.name: Outcome(start.loss) for start in starts}
    following = min(starts, key=lambda start: start.run.n_parameters).candidate.name
    losses = {option.candidate.name: option.loss for option in decision.options}
    best = decision.best
    choices = {
        EXPECTED_REGRET: Choice(best.candidate.name, best.probability),
        "sure_or_finish": Choice(best.candidate.name if best.probability >= SURE else FINISH),
        "always_finish": Choice(FINISH),
        "stop_now": Choice(following),
        "stop_at_random": Choice("stop at random"),
        "oracle": Choice(best_of(outcomes)),
    }
    for method, end in ends.items():
        forecasts = {name: loss.value for name, loss in losses.items()} | {FINISH: end.value}
        lowest = min(forecasts, key=lambda name: (forecasts[name], name))
        choices[method] = Choice("", reason=end.reason) if end.reason else Choice(lowest)
    at_random = Outcome((outcomes[following].loss + moment.loss) / 2)
    rows = judged(choices, outcomes, at_random)
    rows[0] |= {"finish": _told(losses[FINISH], moment.loss)}
    rows[0] |= {"starts": [_told(losses[start.candidate.name], start.loss) for start in starts]}
    return rows


def _told(forecast: Prediction, truth: float) -> tuple[float, bool]:
    """The error of a forecast, and whether its interval holds the truth."""
    return forecast.value - truth, forecast.low <= truth <= forecast.high


def groups(decisions: pd.DataFrame) -> list[dict[str, Any]]:
    """What the tables and the JSON file tell of each family, shape and setting."""
    found = []
    for (family, shape, setting), rows in decisions.groupby(["family", "shape", "setting"], sort=True):
        own = rows[rows["policy"] == EXPECTED_REGRET]
        best, sure = own["regret"] <= 0, own["probability"] >= SURE
        near = own["near"].astype(bool)
        finish, starts = np.array(own["finish"].tolist()), np.array(list(chain(*own["starts"])))
        found.append(
            {
                "family": family,
                "shape": shape,
                "setting": setting,
                "decisions": len(own),
                "finish_best": float((own["best"] == FINISH).mean()),
                "regret": _plain(rows.groupby("policy", sort=False)["regret"].mean()),
                "sure": float(sure.mean()),
                "sure_right": _mean(best[sure]),
                "near": int(near.sum()),
                "near_right": _mean(best[near]),
                "coverage_finish": float(finish[:, 1].mean()),
                "coverage_start": float(starts[:, 1].mean()),
                "error_finish": float(np.abs(finish[:, 0]).mean()),
                "error_start": float(np.abs(starts[:, 0]).mean()),
                "bias_start": float(starts[:, 0].mean()),
            }
        )
    return found


def _mean(values: pd.Series) -> float | None:
    return float(values.mean()) if len(values) else None


def _plain(means: pd.Series) -> dict[str, float | None]:
    return {str(name): None if np.isnan(value) else float(value) for name, value in means.items()}
