"""Train on, or scale up: where the next size's loss-against-compute curve crosses below a model's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from toposcale.analysis.forecasts import FRACTIONS, bootstrap_interval
from toposcale.analysis.histories import histories_from_tables
from toposcale.forecasting.forecasters import CURVE_METHODS, Forecaster, make_forecaster
from toposcale.forecasting.history import History
from toposcale.forecasting.power_law import PowerLaw
from toposcale.io import schemas

PLATEAU = 0.01
"""A power law is on its plateau where the rest of the run would lower the loss by less than this share."""

FORECAST_POINTS = 24
_MEANS = ("log10_error", "regret", "regret_sunk", "compute_saved_percent")


@dataclass(frozen=True)
class ComputeCurve:
    """Loss against compute (FLOP, increasing), with an interval: arrays (points,)."""

    compute: np.ndarray
    loss: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def at(self, compute: float, which: str = "loss") -> float:
        """Loss at `compute`, linear in its logarithm; the end values beyond the ends."""
        return float(np.interp(np.log(max(compute, 1e-300)), np.log(self.compute), getattr(self, which)))


def compute_of(history: History, step: np.ndarray | float) -> np.ndarray:
    """Training compute C = 6 N D in FLOP after `step` steps."""
    return 6.0 * history.n_parameters * history.tokens_per_step * np.asarray(step, dtype=np.float64)


def observed_curve(history: History) -> ComputeCurve:
    """The metric at the checkpoints after step 0; before the first of them, the smoothed training log."""
    usable = np.isfinite(history.checkpoint_losses) & (history.checkpoint_steps > 0)
    steps, losses = history.checkpoint_steps[usable], history.checkpoint_losses[usable]
    log_steps, log_losses = history.loss_curve
    before = log_steps < steps.min(initial=np.inf)
    steps, losses = np.concatenate([log_steps[before], steps]), np.concatenate([log_losses[before], losses])
    return ComputeCurve(compute_of(history, steps), losses, losses, losses)


def forecast_curve(history: History, forecaster: Forecaster) -> ComputeCurve | str:
    """What was seen, and the forecast from there to the final step; a string says why there is none."""
    seen = observed_curve(history)
    if history.last_step >= history.final_step:
        return seen
    forecaster.fit(history)
    steps = np.unique(np.rint(np.geomspace(history.last_step + 1, history.final_step, FORECAST_POINTS)))
    predictions = [forecaster.predict(float(step)) for step in steps]
    failed = [prediction.reason for prediction in predictions if not np.isfinite(prediction.value)]
    if failed:
        return failed[0] or "the forecast is not finite"
    ahead = np.array([(p.value, p.low, p.high) for p in predictions]).T
    return ComputeCurve(
        np.concatenate([seen.compute, compute_of(history, steps)]),
        np.concatenate([seen.loss, ahead[0]]),
        np.concatenate([seen.low, ahead[1]]),
        np.concatenate([seen.high, ahead[2]]),
    )


def switch_point(
    own: ComputeCurve, following: ComputeCurve, budget: float, ends: tuple[str, str] = ("loss", "loss")
) -> float:
    """Compute where `following` crosses below `own` for the last time up to `budget`, and stays below.

    Exact for curves that are linear in log compute. Infinite where `following` is not below at `budget`; the
    first compute that both hold, where it is below from there on; NaN where one does not reach the budget.
    `ends`: which of loss, low, high to read of each.
    """
    first = first_common(own, following)
    last = min(own.compute.max(initial=-np.inf), following.compute.max(initial=-np.inf), budget)
    if not first <= last or last < budget * (1 - 1e-9):
        return np.nan
    inside = [c[(c > first) & (c < last)] for c in (own.compute, following.compute)]
    grid = np.unique(np.concatenate([[first], *inside, [last]]))
    logs = np.log(grid)
    difference = np.interp(logs, np.log(following.compute), getattr(following, ends[1])) - np.interp(
        logs, np.log(own.compute), getattr(own, ends[0])
    )
    above = np.flatnonzero(~(difference < 0))
    if not len(above):
        return float(first)
    left = int(above[-1])
    if left == len(grid) - 1:
        return np.inf
    share = difference[left] / (difference[left] - difference[left + 1])
    return float(np.exp(logs[left] + share * (logs[left + 1] - logs[left])))


def first_common(own: ComputeCurve, following: ComputeCurve) -> float:
    """The first compute that both curves hold: a switch point that equals it is only an upper bound."""
    return float(max(own.compute.min(initial=np.inf), following.compute.min(initial=np.inf)))


@dataclass(frozen=True)
class _Case:
    """One model at one share of training, the next size, and the truth."""

    history: History
    fraction: float
    following: History
    own_curve: ComputeCurve
    next_curve: ComputeCurve
    budget: float
    spent: float


def decision_tables(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    training: pd.DataFrame,
    *,
    fractions: Sequence[float],
    budget: float,
    seed: int,
    resamples: int,
) -> dict[str, pd.DataFrame]:
    """The tables decisions and decision_evaluation. A budget of 0 is each model's whole run."""
    histories = histories_from_tables(features, metrics, training, models)
    decisions = decision_table(histories, fractions=fractions, budget=budget or None, seed=seed)
    evaluated = evaluate_decisions(decisions, resamples=resamples, seed=seed)
    return {"decisions": decisions, "decision_evaluation": evaluated}


def decision_table(
    histories: Sequence[History],
    *,
    fractions: Sequence[float] = FRACTIONS,
    methods: Sequence[str] = CURVE_METHODS,
    budget: float | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """The `decisions` table: for every model that has a next size, fraction and policy.

    A policy is a forecasting method, `always_finish`, or `plateau` (scale up where the fitted power law is
    within 1% of its end). Of both sizes the first k% is known; nothing later is read by a policy. `budget`
    (FLOP; default and at most: the model's whole run; at least: what is spent) is where losses are compared.
    advice: `scale_up` if the next size is forecast to be ahead at the budget. regret: true loss at the budget
    of the size that was advised, less the better one's (section 10's equal compute). regret_sunk: the same
    when what the small model has used until the switch is charged to the next size. compute_saved: FLOP of
    the model's run that the advice leaves out, against always training to the end.
    """
    rows: list[dict[str, object]] = []
    for fraction in fractions:
        cut = {history.model: history.first(fraction) for history in histories}
        curves = {
            method: {
                model: forecast_curve(history, forecaster)
                for forecaster in [make_forecaster(method, list(cut.values()), seed=seed)]
                for model, history in cut.items()
            }
            for method in methods
        }
        for case in _cases(histories, cut, fraction, budget):
            rows.append(_judge(case, "always_finish", (np.inf, np.inf, np.inf), ""))
            rows.append(_judge(case, "plateau", *_plateau(case)))
            for method in methods:
                own, following = curves[method][case.history.model], curves[method][case.following.model]
                rows.append(_judge(case, method, *_crossing(own, following, case.budget)))
    return schemas.DECISIONS.frame(rows)


def evaluate_decisions(decisions: pd.DataFrame, *, resamples: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Means over models, with 95% bootstrap intervals, for each fraction and policy."""
    rows = []
    for (fraction, policy), group in decisions.groupby(["fraction", "policy"], sort=True):
        row: dict[str, object] = {"fraction": fraction, "policy": policy}
        advised = group[group["advice"] != ""]
        row["n_advised"] = len(advised)
        row["share_right"] = float(advised["right"].astype(float).mean()) if len(advised) else np.nan
        for column in _MEANS:
            values = advised[column].dropna().to_numpy(dtype=np.float64)
            row[column] = float(values.mean()) if len(values) else np.nan
            row[f"{column}_low"], row[f"{column}_high"] = bootstrap_interval(values, resamples, seed)
        rows.append(row)
    return schemas.DECISION_EVALUATION.frame(rows)


def next_sizes(histories: Iterable[History]) -> dict[str, History]:
    """By model: the next larger model of the same family and seed, among those whose compute is known."""
    following: dict[str, History] = {}
    groups: dict[tuple[str, int], list[History]] = {}
    for history in histories:
        if np.isnan(history.tokens_per_step):
            continue
        groups.setdefault((history.family, history.seed), []).append(history)
    for group in groups.values():
        for history in group:
            larger = [other for other in group if other.n_parameters > history.n_parameters]
            if larger:
                following[history.model] = min(larger, key=lambda other: (other.n_parameters, other.model))
    return following


def _cases(
    histories: Sequence[History], cut: dict[str, History], fraction: float, budget: float | None
) -> Iterable[_Case]:
    following = next_sizes(histories)
    for history in histories:
        if history.model not in following or not np.isfinite(history.final_loss):
            continue
        spent = float(compute_of(history, fraction * history.final_step))
        end = float(compute_of(history, history.final_step))
        yield _Case(
            cut[history.model],
            fraction,
            cut[following[history.model].model],
            observed_curve(history),
            observed_curve(following[history.model]),
            float(np.clip(end if budget is None else budget, spent, end)),
            spent,
        )


def _crossing(
    own: ComputeCurve | str, following: ComputeCurve | str, budget: float
) -> tuple[tuple[float, float, float], str]:
    for curve in (own, following):
        if isinstance(curve, str):
            return (np.nan, np.nan, np.nan), curve
    assert isinstance(own, ComputeCurve)
    assert isinstance(following, ComputeCurve)
    middle = switch_point(own, following, budget)
    if np.isnan(middle):
        return (np.nan, np.nan, np.nan), "one of the two curves holds nothing at the budget"
    early = switch_point(own, following, budget, ("high", "low"))
    late = switch_point(own, following, budget, ("low", "high"))
    return (middle, early, late), ""


def _plateau(case: _Case) -> tuple[tuple[float, float, float], str]:
    """Compute at which the power law's loss is within `PLATEAU` of that at the final step."""
    history = case.history
    model = PowerLaw().fit(history)
    if model.law is None:
        return (np.nan, np.nan, np.nan), model.reason
    steps = np.geomspace(max(history.last_step, 1), history.final_step, 500)
    losses = model.law(steps)
    reached = float(compute_of(history, steps[np.argmax(losses <= losses[-1] * (1 + PLATEAU))]))
    # a plateau that is reached only at the end is none
    switch = reached if reached < case.budget * (1 - 1e-9) else np.inf
    return (switch, np.nan, np.nan), ""


def _judge(case: _Case, policy: str, switch: tuple[float, float, float], reason: str) -> dict[str, object]:
    middle, low, high = switch
    true = switch_point(case.own_curve, case.next_curve, case.budget)
    row: dict[str, object] = {
        "model": case.history.model,
        "next_model": case.following.model,
        "fraction": case.fraction,
        "policy": policy,
        "advice": "",
        "budget": case.budget,
        "spent": case.spent,
        "forecast_switch": middle,
        "forecast_low": low,
        "forecast_high": high,
        "true_switch": true,
        "true_is_bound": true == first_common(case.own_curve, case.next_curve),
        "reason": reason,
    }
    if np.isnan(middle) or np.isnan(true):
        row["reason"] = reason or "one of the true curves holds nothing at the budget"
        return row
    scale_up = middle < np.inf
    own, following = case.own_curve.at(case.budget), case.next_curve.at(case.budget)
    stop = float(np.clip(middle, case.spent, case.budget))
    left = case.next_curve.at(case.budget - stop)
    best_left = min(own, case.next_curve.at(case.budget - case.spent))
    end = float(compute_of(case.history, case.history.final_step))
    saved = end - stop if scale_up else 0.0
    both = np.isfinite(middle) and np.isfinite(true) and not row["true_is_bound"]
    row.update(
        advice="scale_up" if scale_up else "train_on",
        right=scale_up == bool(np.isfinite(true)),
        log10_error=abs(np.log10(middle / true)) if both else np.nan,
        regret=(following if scale_up else own) - min(own, following),
        regret_sunk=max((left if scale_up else own) - best_left, 0.0),
        compute_saved=saved,
        compute_saved_percent=100 * saved / end,
    )
    return row
