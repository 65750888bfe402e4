"""Forecasts of every model at every share of training, and how good they were (pandas tables)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import perf_counter

import numpy as np
import pandas as pd
from scipy import stats

from toposcale.analysis.histories import histories_from_tables, vectors_by_model
from toposcale.forecasting.calibration import calibrate_on_others
from toposcale.forecasting.forecasters import METHODS, forecast, make_forecaster
from toposcale.forecasting.history import History, Prediction, no_prediction
from toposcale.forecasting.joint import Joint, as_prediction, target_of
from toposcale.forecasting.ridge import Ridge
from toposcale.io import schemas

FRACTIONS = (0.2, 0.3, 0.5)
POWER_LAW = "power_law"
RIVALS = ("power_law", "multi_power_law", "joint", "chinchilla", "ridge_loss", "ridge_size")
"""What a forecast has to beat: methods that read the loss alone, or the number of parameters alone."""

LEAST_COVERAGE = 0.8
FEW_MODELS = 10
"""Below this many models the evaluation says in words how little its numbers mean."""

logger = logging.getLogger(__name__)


def forecast_tables(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    training: pd.DataFrame,
    vectors: pd.DataFrame,
    schedules: pd.DataFrame,
    *,
    fractions: Sequence[float],
    seed: int,
    resamples: int,
) -> dict[str, pd.DataFrame]:
    """The tables forecasts and forecast_evaluation."""
    histories = histories_from_tables(
        features, metrics, training, models, schedules=schedules, vectors=vectors_by_model(vectors)
    )
    forecasts, seconds = forecast_table(histories, fractions=fractions, seed=seed)
    logger.info("seconds by method and fraction\n%s", seconds.to_string(index=False))
    evaluated = evaluate(forecasts, histories, resamples=resamples, seed=seed)
    return {"forecasts": forecasts, "forecast_evaluation": evaluated}


def forecast_table(
    histories: Sequence[History],
    *,
    fractions: Sequence[float] = FRACTIONS,
    methods: Sequence[str] = METHODS,
    seed: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The `forecasts` table (model, fraction, method, ...), and apart from it the seconds each method took.

    Intervals are calibrated over the finished runs, each without itself. A run that is under way has rows up to where it
    has come. Fraction 0 is the joint law without any run of that size. Seconds: fraction, method, seconds for all
    models; they differ from run to run, so they have no place in a table that is compared byte by byte.
    """
    finals = {history.model: history.final_loss for history in histories}
    rows, costs = [], []
    begun = [history for history in histories if len(history.loss_curve[0]) or len(history.features)]
    for fraction in fractions:
        family = [history.first(fraction) for history in begun]
        # A run that has not come so far has no first part of this length.
        due = [cut for cut, whole in zip(family, begun, strict=True) if whole.reaches(fraction)]
        for method in methods:
            start = perf_counter()
            forecaster = make_forecaster(method, family, finals, seed)
            predictions = [forecast(forecaster, history) for history in due]
            rows += _calibrated_rows(due, predictions, fraction, method, finals)
            costs.append((fraction, method, perf_counter() - start))
    if "joint" in methods:
        start = perf_counter()
        rows += _rows_of_sizes_not_seen(histories, finals)
        costs.append((0.0, "joint", perf_counter() - start))
    return schemas.FORECASTS.frame(rows), pd.DataFrame(costs, columns=["fraction", "method", "seconds"])


def _calibrated_rows(
    histories: Sequence[History],
    predictions: Sequence[Prediction],
    fraction: float,
    method: str,
    finals: Mapping[str, float],
) -> list[dict[str, object]]:
    calibrated = calibrate_on_others(predictions, [finals[history.model] for history in histories])
    rows = []
    for history, own, (shown, coverage) in zip(histories, predictions, calibrated, strict=True):
        row = _row(history, fraction, method, shown, coverage, finals[history.model])
        rows.append(row | {"own_low": own.low, "own_high": own.high})
    return rows


def _rows_of_sizes_not_seen(
    histories: Sequence[History], finals: Mapping[str, float]
) -> list[dict[str, object]]:
    """Every run under a known plan from the finished runs of the other sizes of its family: fraction 0, method joint."""
    fits: dict[tuple[str, float], Joint] = {}
    rows = []
    for history in histories:
        key = history.family, history.n_parameters
        if key not in fits:
            others = [
                other
                for other in histories
                if other.is_finished and other.family == key[0] and other.n_parameters != key[1]
            ]
            fits[key] = Joint().fit(others)
        reason = fits[key].reason or (
            "" if history.plan_known else history.plan or "its schedule is not known"
        )
        if fits[key].reason and len(history.loss_curve[0]):
            continue  # no other size: nothing to say, and nothing was asked
        own = no_prediction(reason) if reason else as_prediction(*fits[key].predict([target_of(history)]))
        row = _row(history, 0.0, "joint", own, np.nan, finals[history.model])
        rows.append(row | {"own_low": own.low, "own_high": own.high})
    return rows


def _row(
    history: History, fraction: float, method: str, own: Prediction, coverage: float, actual: float
) -> dict[str, object]:
    return {
        "model": history.model,
        "fraction": fraction,
        "method": method,
        "forecast": own.value,
        "low": own.low,
        "high": own.high,
        "calibrated_to": coverage,
        "actual": actual,
        "error": own.value - actual,
        "reason": own.reason,
    }


def evaluate(
    forecasts: pd.DataFrame,
    histories: Sequence[History] = (),
    *,
    resamples: int = 1000,
    permutations: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """The `forecast_evaluation` table: one row for each fraction and method.

    mae_low, mae_high, improvement_low, improvement_high: 95% bootstrap over models. baseline: of `RIVALS`, the one with
    the least error over the most models. improvement_percent: 100 (1 - MAE / MAE of the baseline) over the models that
    both forecast. wilcoxon_p: two-sided signed-rank test of the absolute errors against the baseline's.
    For ridge, with `histories` given: permutation_mae, the mean MAE with the final losses dealt out at random, and
    permutation_p, the share of deals at least as good (own deal counted).
    """
    rows = []
    for _, group in forecasts.groupby(["fraction", "method"], sort=True):
        fraction, method = float(group["fraction"].iloc[0]), str(group["method"].iloc[0])
        here = forecasts[forecasts["fraction"] == fraction]
        best = _best_rival(here)
        row: dict[str, object] = {"fraction": fraction, "method": method, "baseline": best}
        row.update(_accuracy(group, resamples, seed))
        row.update(_against_baseline(group, here[here["method"] == best], resamples, seed))
        power_law = _against_baseline(group, here[here["method"] == POWER_LAW], resamples, seed)
        row["over_power_law_percent"] = power_law.get("improvement_percent", np.nan)
        if method.startswith("ridge") and len(histories):
            row.update(_permutation(method, fraction, histories, row["mae"], permutations, seed))
        row["note"] = _note(int(group["actual"].notna().sum()), float(row["interval_coverage"]))  # type: ignore[arg-type]
        rows.append(row)
    return schemas.FORECAST_EVALUATION.frame(rows)


def bootstrap_interval(values: np.ndarray, resamples: int, seed: int) -> tuple[float, float]:
    """95% percentile interval of the mean over the rows of `values`; NaN for fewer than two."""
    if len(values) < 2:
        return np.nan, np.nan
    draws = np.random.default_rng(seed).integers(0, len(values), size=(resamples, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


def _accuracy(group: pd.DataFrame, resamples: int, seed: int) -> dict[str, object]:
    usable = group[group["forecast"].notna() & group["actual"].notna()]
    errors = usable["error"].abs().to_numpy()
    low, high = bootstrap_interval(errors, resamples, seed)
    varied = len(usable) >= 3 and usable["forecast"].nunique() > 1 and usable["actual"].nunique() > 1
    # Of intervals calibrated on the other ones of fewer than 20 runs exactly one misses, whatever the method.
    covered = (usable["own_low"] <= usable["actual"]) & (usable["actual"] <= usable["own_high"])
    return {
        "n_models": int(group["actual"].notna().sum()),
        "n_forecasts": len(usable),
        "mae": float(errors.mean()) if len(errors) else np.nan,
        "mae_low": low,
        "mae_high": high,
        "spearman": float(stats.spearmanr(usable["forecast"], usable["actual"])[0]) if varied else np.nan,
        "interval_coverage": float(covered.mean()) if len(usable) else np.nan,
    }


def _against_baseline(
    group: pd.DataFrame, baseline: pd.DataFrame, resamples: int, seed: int
) -> dict[str, object]:
    pair = group.merge(baseline[["model", "error"]], on="model", suffixes=("", "_baseline"))
    pair = pair.dropna(subset=["error", "error_baseline"])
    own, base = pair["error"].abs().to_numpy(), pair["error_baseline"].abs().to_numpy()
    if len(own) < 2 or base.sum() == 0:
        return {}
    draws = np.random.default_rng(seed).integers(0, len(own), size=(resamples, len(own)))
    totals = base[draws].sum(axis=1)
    improvements = 100 * (1 - own[draws].sum(axis=1)[totals > 0] / totals[totals > 0])
    low, high = np.quantile(improvements, (0.025, 0.975))
    same = np.allclose(own, base, rtol=0, atol=1e-15)
    return {
        "improvement_percent": float(100 * (1 - own.sum() / base.sum())),
        "improvement_low": float(low),
        "improvement_high": float(high),
        "wilcoxon_p": 1.0 if same else float(stats.wilcoxon(own, base).pvalue),
    }


def _permutation(
    method: str, fraction: float, histories: Sequence[History], mae: object, permutations: int, seed: int
) -> dict[str, object]:
    finals = {h.model: h.final_loss for h in histories if np.isfinite(h.final_loss)}
    family = [history.first(fraction) for history in histories]
    ridge = Ridge(method, family, finals)
    problems = {h.model: ridge.problem(h) for h in family if h.model in finals}
    solvable = {model: p for model, p in problems.items() if not isinstance(p, str)}
    if not solvable or not isinstance(mae, float) or not np.isfinite(mae):
        return {}
    rng = np.random.default_rng(seed)
    place, values = {model: i for i, model in enumerate(finals)}, np.array(list(finals.values()))
    dealt = np.array([rng.permutation(values) for _ in range(permutations)])
    errors = [
        np.abs(problem.solve(dealt[:, [place[o] for o in problem.others]])[0][:, 0] - dealt[:, place[model]])
        for model, problem in solvable.items()
    ]
    maes = np.mean(errors, axis=0)
    as_good = np.sum(maes <= mae * (1 + 1e-12))
    return {"permutation_mae": float(maes.mean()), "permutation_p": float((1 + as_good) / (1 + permutations))}


def _best_rival(forecasts: pd.DataFrame) -> str:
    """Of `RIVALS`, the method that judges the most models, and among those with the least error; empty: none could."""
    judged = forecasts[forecasts["method"].isin(RIVALS)].dropna(subset=["error"])
    if judged.empty:
        return ""
    errors = judged.assign(error=judged["error"].abs()).groupby("method")["error"].agg(["count", "mean"])
    return str(errors.sort_values(["count", "mean"], ascending=[False, True], kind="stable").index[0])


def _note(models: int, coverage: float) -> str:
    notes = []
    if coverage < LEAST_COVERAGE:
        notes.append(
            f"before calibration the intervals hold the truth in {coverage:.0%} of cases only: do not rely on them"
        )
    if models < FEW_MODELS:
        smallest = min(2.0 ** (1 - models), 1.0) if models else 1.0
        notes.append(
            f"{models} models: the smallest p-value a signed-rank test can give is {smallest:.3g}; "
            "read the intervals, not the ranking"
        )
    return "; ".join(notes)
