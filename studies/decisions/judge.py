"""Regret of the advice, and of plain policies, on decisions of published runs, and how good the forecasts behind it are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from studies.decisions import single_threaded
from toposcale.analysis.decisions import AT_RANDOM, Choice, Outcome, best_of, rows_of_policies
from toposcale.analysis.methods import forecast, make
from toposcale.forecasting.decision.candidates import CONTINUE, Decision
from toposcale.forecasting.decision.decision_points import DecisionPoint, Start
from toposcale.forecasting.decision.on_track import tracks_of
from toposcale.forecasting.decision.reasons import low_confidence_reasons
from toposcale.forecasting.evaluation import GROUP, WITH_SMALLER, Known, alternatives, decision_of, fitted_at, key_of
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.laws.prior_table import NONE
from toposcale.forecasting.laws.priors import Prior
from toposcale.forecasting.laws.published_law import published_loss
from toposcale.forecasting.runs.training_run import TrainingRun

EXPECTED_REGRET = "expected_regret"
SINGLE_RUN_METHODS = ("power_law", "multi_power_law")
"""Forecasts of the end of the base run that take the place of the joint law's."""

NEAR = 0.10
"""Decisions are near where the best two losses differ by at most so many nats."""

PARTS = 16
"""Pieces of the work for the processes."""


def decisions_of(
    decision_points: Iterable[DecisionPoint], priors: Mapping[str, Prior], processes: int = 2
) -> pd.DataFrame:
    """`decision_table` of all decision_points, the work shared by some processes; the same rows whatever their number."""
    known = list(decision_points)
    parts = [known[place::PARTS] for place in range(PARTS)]
    with single_threaded(processes) as pool:
        tables = [table for table in pool.map(decision_table, parts, [priors] * PARTS) if len(table)]
    if not tables:
        return pd.DataFrame(columns=[*GROUP, "policy"])
    rows = pd.concat(tables, ignore_index=True)
    return pd.concat([rows, by_threshold(rows)], ignore_index=True).sort_values(
        [*GROUP, "decision", "policy"], ignore_index=True, kind="stable"
    )


def decision_table(decision_points: Iterable[DecisionPoint], priors: Mapping[str, Prior]) -> pd.DataFrame:
    """A row for every decision and policy: the columns of `GROUP`, source, decision, model, base_size,
    tokens_per_parameter, near, clear, those of `rows_of_policies`.

    The policy `EXPECTED_REGRET` is the answer that users get; where that is none, to continue. It has `confident`, and the
    forecasts too: `continue`, and `starts`, a list, each an error and whether the interval holds the truth. priors: by
    source, learnt without it.
    """
    rows: list[dict[str, Any]] = []
    for point in decision_points:
        prior = priors.get(point.base.source, priors[NONE])
        ends = {method: forecast(make(method), point.now) for method in SINGLE_RUN_METHODS}
        for setting, known in ((Known.ALONE.value, ()), (WITH_SMALLER, point.smaller)):
            if known or setting == Known.ALONE:
                rows += _rows_of(point, setting, known, prior, ends)
    return pd.DataFrame(rows)


def _rows_of(
    point: DecisionPoint, setting: str, known: Sequence[TrainingRun], prior: Prior, ends: Mapping[str, Prediction]
) -> list[dict[str, Any]]:
    """Each start of a point against finishing; at a constant rate also all of them together."""
    law, tracks = fitted_at(Joint(prior), point, known), tracks_of(point.now, known)
    rows = []
    for starts, where in alternatives(point, setting):
        decision = decision_of(law, point, starts)
        losses = sorted([point.loss, *(start.loss for start in starts)])
        key = key_of(point, starts, where) | {
            "model": point.base.model,
            "tokens_per_parameter": point.whole.final_step * point.whole.tokens_per_step / point.base.n_parameters,
            "base_size": point.base.size,
            "near": losses[1] - losses[0] <= NEAR,
            "clear": losses[1] - losses[0] > NEAR,
        }
        assert law is None or isinstance(law, Joint)
        is_confident = bool(law and decision and not low_confidence_reasons(point.now, law, decision, tracks))
        rows += [key | row for row in _judged(decision, is_confident, point, starts, ends)]
    return rows


def _judged(
    decision: Decision | None,
    is_confident: bool,
    point: DecisionPoint,
    starts: Sequence[Start],
    ends: Mapping[str, Prediction],
) -> list[dict[str, Any]]:
    outcomes = {CONTINUE: Outcome(point.loss)}
    outcomes |= {start.candidate.name: Outcome(start.loss) for start in starts}
    following = min(starts, key=lambda start: start.run.n_parameters).candidate.name
    losses = {weighed.candidate.name: weighed.loss for weighed in decision.candidates} if decision else {}
    best = decision.best.candidate.name if decision else CONTINUE
    surface = {
        candidate.name: published_loss(
            candidate.target.n_parameters, candidate.target.step * candidate.target.tokens_per_step
        )
        for candidate in [point.continuing, *(start.candidate for start in starts)]
    }
    choices = {
        EXPECTED_REGRET: Choice(best, decision.best.probability if decision else np.nan),
        "confident_or_continue": Choice(best if is_confident else CONTINUE),
        **{method: lowest(decision, end) for method, end in ends.items()},
        "chinchilla": Choice(min(surface, key=lambda name: surface[name])),
        "always_continue": Choice(CONTINUE),
        "next_size": Choice(following),
        "random_stop": Choice(AT_RANDOM),
        "oracle": Choice(best_of(outcomes)),
    }
    rows = rows_of_policies(choices, outcomes, Outcome((outcomes[following].loss + point.loss) / 2))
    truths = {CONTINUE: point.loss} | {start.candidate.name: start.loss for start in starts}
    errors = {name: _error(loss, truths[name]) for name, loss in losses.items()}
    rows[0] |= {"confident": is_confident, "answered": decision is not None, "continue": errors.pop(CONTINUE, None)}
    rows[0]["starts"] = list(errors.values())
    return rows


def lowest(decision: Decision | None, end: Prediction) -> Choice:
    """The candidate whose forecast is the lowest, where `end` takes the place of the law's forecast of finishing."""
    if end.reason or decision is None:
        return Choice("", reason=end.reason or "no law")
    forecasts = {weighed.candidate.name: weighed.loss.value for weighed in decision.candidates} | {CONTINUE: end.value}
    return Choice(min(forecasts, key=lambda name: (forecasts[name], name)))


def _error(forecast: Prediction, truth: float) -> tuple[float, bool]:
    """The error of a forecast, and whether its interval holds the truth."""
    return forecast.value - truth, forecast.low <= truth <= forecast.high


def by_threshold(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the policy to train the next size where the tokens per parameter of the base run exceed a threshold, else to
    continue; the threshold is that of the least mean regret over the groups of other sources."""
    key = [*GROUP, "decision"]
    plain = {policy: rows[rows["policy"] == policy].set_index(key) for policy in ("always_continue", "next_size")}
    both = pd.DataFrame({policy: part["regret"] for policy, part in plain.items()})
    both = both.join(plain["next_size"][["tokens_per_parameter", "source"]])
    thresholds = np.unique(np.quantile(both["tokens_per_parameter"], np.linspace(0, 1, 41)))

    def regret(part: pd.DataFrame, threshold: float) -> float:
        chosen = part["next_size"].where(part["tokens_per_parameter"] > threshold, part["always_continue"])
        return float(chosen.groupby(GROUP).mean().mean())

    kept = []
    for source, judged_rows in both.groupby("source"):
        other_rows = both[both["source"] != source]
        best = 20.0
        if len(other_rows):
            best = thresholds[int(np.argmin([regret(other_rows, threshold) for threshold in thresholds]))]
        larger = judged_rows["tokens_per_parameter"] > best
        kept += [
            plain["next_size"].loc[judged_rows.index[larger]],
            plain["always_continue"].loc[judged_rows.index[~larger]],
        ]
    return pd.concat(kept).reset_index().assign(policy="tokens_per_parameter")


def policy_table(decisions: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """The mean regret of every policy in every group, with 95% bootstrap intervals over the sizes of the base runs.

    Columns: those of `GROUP`, policy, n_decisions, share_best, regret, regret_low, regret_high.
    """
    rows = []
    for key, part in decisions.dropna(subset=["regret"]).groupby([*GROUP, "policy"], sort=True):
        low, high = interval_over_sizes(part, "regret", resamples, seed)
        rows.append(
            {
                **dict(zip([*GROUP, "policy"], key, strict=True)),
                "n_decisions": len(part),
                "share_best": float((part["regret"] <= 0).mean()),
                "regret": float(part["regret"].mean()),
                "regret_low": low,
                "regret_high": high,
            }
        )
    return pd.DataFrame(rows)


def interval_over_sizes(decisions: pd.DataFrame, column: str, resamples: int, seed: int) -> tuple[float, float]:
    """The 95% bootstrap interval of the mean of a column over the sizes of the base runs; NaN of one size."""
    sizes = decisions.groupby(["family", "base_size"])[column].agg(["sum", "count"]).to_numpy(np.float64)
    if len(sizes) < 2:
        return np.nan, np.nan
    draws = np.random.default_rng(seed).integers(0, len(sizes), (resamples, len(sizes)))
    drawn = sizes[draws].sum(axis=1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], (0.025, 0.975))
    return float(low), float(high)


def groups(decisions: pd.DataFrame) -> list[dict[str, Any]]:
    """Every group with the mean regret of each policy, how often the advice was confident, and right, and its forecasts."""
    described = []
    for key, rows in decisions.groupby(GROUP, sort=True):
        own = rows[rows["policy"] == EXPECTED_REGRET]
        best, confident, near, clear = (
            own["regret"] <= 0,
            *(own[name].astype(bool) for name in ("confident", "near", "clear")),
        )
        nothing = np.full((0, 2), np.nan)
        finish = np.array(own["continue"].dropna().tolist() or nothing)
        starts = np.array(list(chain(*own["starts"])) or nothing)
        regret = rows.groupby("policy", sort=False)["regret"].mean()
        described.append(
            {
                **dict(zip(GROUP, key, strict=True)),
                "decisions": len(own),
                "refused": float(1 - own["answered"].astype(float).mean()),
                "continue_best": float((own["best"] == CONTINUE).mean()),
                "regret": {str(policy): _plain(value) for policy, value in regret.items()},
                "confident": float(confident.mean()),
                "confident_right": _plain(best[confident].mean()),
                "clear_confident": _plain(confident[clear].mean()),
                "near": int(near.sum()),
                "near_right": _plain(best[near].mean()),
                "coverage_continue": _mean(finish[:, 1]),
                "coverage_start": _mean(starts[:, 1]),
                "error_continue": _mean(np.abs(finish[:, 0])),
                "error_start": _mean(np.abs(starts[:, 0])),
                "bias_start": _mean(starts[:, 0]),
            }
        )
    return described


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
