"""What the advice, and plain policies, give up on decisions of published runs, and how good the forecasts behind it are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from studies.decisions.priors import NONE
from studies.decisions.published import ALONE, CONSTANT, SEVERAL, WITH_SMALLER, DecisionPoint, Start
from toposcale.analysis.regret import AT_RANDOM, Choice, Outcome, best_of, judged
from toposcale.decision.candidates import CONTINUE
from toposcale.decision.expected_regret import Decision, weigh
from toposcale.decision.reasons import CONFIDENT
from toposcale.laws.joint import Joint
from toposcale.laws.methods import forecast, make
from toposcale.laws.prediction import Prediction
from toposcale.laws.priors import Prior
from toposcale.runs.training_run import TrainingRun

EXPECTED_REGRET = "expected_regret"
OF_ONE_RUN = ("power_law", "multi_power_law")
"""Forecasts of the end of the base run that take the place of the joint law's."""

NEAR = 0.10
"""Decisions are near where the best two losses differ by at most so many nats."""

GROUP = ["family", "shape", "setting", "usual"]
PARTS = 16
"""Pieces of the work for the processes."""


def decisions_of(
    decision_points: Iterable[DecisionPoint], priors: Mapping[str, Prior], processes: int = 2
) -> pd.DataFrame:
    """`decision_table` of all decision_points, the work shared by some processes; the same rows whatever their number."""
    known = list(decision_points)
    parts = [known[place::PARTS] for place in range(PARTS)]
    with ProcessPoolExecutor(processes) as pool:
        tables = list(pool.map(decision_table, parts, [priors] * PARTS))
    return pd.concat(tables, ignore_index=True).sort_values(
        [*GROUP, "decision", "policy"], ignore_index=True, kind="stable"
    )


def decision_table(decision_points: Iterable[DecisionPoint], priors: Mapping[str, Prior]) -> pd.DataFrame:
    """A row for every decision and policy: the columns of `GROUP`, decision, model, base_size, near, those of `judged`.

    The policy `EXPECTED_REGRET` has the forecasts too: `finish`, and `starts`, a list, each an error and whether the
    interval holds the truth. priors: by source, learnt without it.
    """
    rows: list[dict[str, Any]] = []
    for point in decision_points:
        prior = priors.get(point.base.source, priors[NONE])
        ends = {method: forecast(make(method), point.now) for method in OF_ONE_RUN}
        for setting, known in ((ALONE, ()), (WITH_SMALLER, point.smaller)):
            if known or setting == ALONE:
                rows += _rows_of(point, setting, known, prior, ends)
    return pd.DataFrame(rows)


def _rows_of(
    point: DecisionPoint, setting: str, known: Sequence[TrainingRun], prior: Prior, ends: Mapping[str, Prediction]
) -> list[dict[str, Any]]:
    """Each start of a point against finishing; at a constant rate also all of them together."""
    law = Joint(prior).fit(known, point.now)
    together: list[tuple[tuple[Start, ...], str]] = [((start,), setting) for start in point.starts]
    usual = tuple(start for start in point.starts if start.run.is_usual)
    if point.base.shape == CONSTANT and len(usual) > 1 and point.base.is_usual:
        together.append((usual, f"{SEVERAL}, {setting}"))
    rows = []
    for starts, where in together:
        decision = weigh(law, [point.continuing, *(start.candidate for start in starts)])
        losses = sorted([point.loss, *(start.loss for start in starts)])
        key = {
            "family": point.base.family,
            "shape": point.base.shape,
            "setting": where,
            "usual": point.base.is_usual and all(start.run.is_usual for start in starts),
            "decision": " ".join([point.name, *(start.history.model for start in starts)]),
            "model": point.base.history.model,
            "base_size": point.base.size,
            "near": losses[1] - losses[0] <= NEAR,
        }
        rows += [key | row for row in _judged(decision, point, starts, ends)]
    return rows


def _judged(
    decision: Decision, point: DecisionPoint, starts: Sequence[Start], ends: Mapping[str, Prediction]
) -> list[dict[str, Any]]:
    outcomes = {CONTINUE: Outcome(point.loss)}
    outcomes |= {start.candidate.name: Outcome(start.loss) for start in starts}
    following = min(starts, key=lambda start: start.run.n_parameters).candidate.name
    losses = {option.candidate.name: option.loss for option in decision.options}
    best = decision.best
    choices = {
        EXPECTED_REGRET: Choice(best.candidate.name, best.probability),
        "confident_or_continue": Choice(best.candidate.name if best.probability >= CONFIDENT else CONTINUE),
        **{method: lowest(decision, end) for method, end in ends.items()},
        "always_continue": Choice(CONTINUE),
        "next_size": Choice(following),
        "random_stop": Choice(AT_RANDOM),
        "oracle": Choice(best_of(outcomes)),
    }
    rows = judged(choices, outcomes, Outcome((outcomes[following].loss + point.loss) / 2))
    rows[0]["continue"] = _told(losses[CONTINUE], point.loss)
    rows[0]["starts"] = [_told(losses[start.candidate.name], start.loss) for start in starts]
    return rows


def lowest(decision: Decision, end: Prediction) -> Choice:
    """The candidate whose forecast is the lowest, where `end` takes the place of the law's forecast of finishing."""
    if end.reason:
        return Choice("", reason=end.reason)
    forecasts = {option.candidate.name: option.loss.value for option in decision.options} | {CONTINUE: end.value}
    return Choice(min(forecasts, key=lambda name: (forecasts[name], name)))


def _told(forecast: Prediction, truth: float) -> tuple[float, bool]:
    """The error of a forecast, and whether its interval holds the truth."""
    return forecast.value - truth, forecast.low <= truth <= forecast.high


def policy_table(decisions: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """The mean regret of every policy in every group, with 95% bootstrap intervals over the sizes of the base runs.

    Columns: those of `GROUP`, policy, n_decisions, share_best, regret, regret_low, regret_high.
    """
    rows = []
    for key, part in decisions.dropna(subset=["regret"]).groupby([*GROUP, "policy"], sort=True):
        sizes = part.groupby("base_size")["regret"].agg(["sum", "count"]).to_numpy(np.float64)
        draws = np.random.default_rng(seed).integers(0, len(sizes), (resamples, len(sizes)))
        drawn = sizes[draws].sum(axis=1)
        ends = np.quantile(drawn[:, 0] / drawn[:, 1], (0.025, 0.975)) if len(sizes) > 1 else (np.nan, np.nan)
        rows.append(
            {
                **dict(zip([*GROUP, "policy"], key, strict=True)),
                "n_decisions": len(part),
                "share_best": float((part["regret"] <= 0).mean()),
                "regret": float(part["regret"].mean()),
                "regret_low": float(ends[0]),
                "regret_high": float(ends[1]),
            }
        )
    return pd.DataFrame(rows)


def groups(decisions: pd.DataFrame) -> list[dict[str, Any]]:
    """Every group with the mean regret of each policy, how sure and how right the advice was, and its forecasts."""
    found = []
    for key, rows in decisions.groupby(GROUP, sort=True):
        own = rows[rows["policy"] == EXPECTED_REGRET]
        best, confident, near = own["regret"] <= 0, own["probability"] >= CONFIDENT, own["near"].astype(bool)
        finish, starts = np.array(own["continue"].tolist()), np.array(list(chain(*own["starts"])))
        regret = rows.groupby("policy", sort=False)["regret"].mean()
        found.append(
            {
                **dict(zip(GROUP, key, strict=True)),
                "decisions": len(own),
                "continue_best": float((own["best"] == CONTINUE).mean()),
                "regret": {str(policy): _plain(value) for policy, value in regret.items()},
                "confident": float(confident.mean()),
                "confident_right": _plain(best[confident].mean()),
                "near": int(near.sum()),
                "near_right": _plain(best[near].mean()),
                "coverage_continue": float(finish[:, 1].mean()),
                "coverage_start": float(starts[:, 1].mean()),
                "error_continue": float(np.abs(finish[:, 0]).mean()),
                "error_start": float(np.abs(starts[:, 0]).mean()),
                "bias_start": float(starts[:, 0].mean()),
            }
        )
    return found


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
