"""Forecasts of every model at every share of training, and how good they were (pandas tables)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from toposcale.forecasting.forecasters import METHODS, make_forecaster
from toposcale.forecasting.history import History
from toposcale.forecasting.ridge import Ridge

FRACTIONS = (0.2, 0.3, 0.5)
BASELINE = "power_law"
FEW_MODELS = 10
"""Below this many models the evaluation says in words how little its numbers mean."""

FORECAST_COLUMNS = ["model", "fraction", "method", "forecast", "low", "high", "actual", "error", "reason"]
EVALUATION_COLUMNS = [
    "fraction",
    "method",
    "n_models",
    "n_forecasts",
    "mae",
    "mae_low",
    "mae_high",
    "spearman",
    "interval_coverage",
    "improvement_percent",
    "improvement_low",
    "improvement_high",
    "wilcoxon_p",
    "permutation_mae",
    "permutation_p",
    "note",
]


def histories_from_tables(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    training: pd.DataFrame,
    models: pd.DataFrame,
    *,
    metric: str = "validation_loss",
    schedules: Mapping[str, np.ndarray] | None = None,
    vectors: Mapping[str, Mapping[str, pd.DataFrame]] | None = None,
) -> list[History]:
    """One history for each row of `models`, sorted by model; whatever a table lacks is missing there too.

    `metric`: what is forecast; of a model that has no such rows, the training loss. Features of layer "all"
    count. `schedules`: learning rates, one a step from step 0, by model, for runs whose training log ends
    before their schedule does; otherwise the log's own. `vectors`: by model and feature name, vectorised
    diagrams, a row a step and the step in the index; steps that the other tables do not have are passed over.
    """
    whole = features[features["layer"] == "all"] if len(features) else features
    measured = metrics.loc[metrics["metric"] == metric, "model"]
    named = np.where(metrics["model"].isin(measured), metric, "training_loss")
    chosen = metrics[metrics["metric"] == named]
    return [
        _history(
            row,
            whole[whole["model"] == row["model"]] if len(whole) else whole,
            chosen[chosen["model"] == row["model"]],
            training[training["model"] == row["model"]] if len(training) else training,
            (schedules or {}).get(str(row["model"])),
            (vectors or {}).get(str(row["model"]), {}),
        )
        for row in models.sort_values("model").to_dict("records")
    ]


def _history(
    model: Mapping[Hashable, Any],
    features: pd.DataFrame,
    metric: pd.DataFrame,
    training: pd.DataFrame,
    schedule: np.ndarray | None,
    vectors: Mapping[str, pd.DataFrame],
) -> History:
    losses = metric.drop_duplicates("step").set_index("step")["value"].astype("float64")
    named: dict[str, pd.Series] = {}
    if len(features):
        for (source, feature), rows in features.groupby(["source", "feature"], sort=True):
            named[f"{source}/{feature}"] = rows.drop_duplicates("step").set_index("step")["value"]
    steps = np.unique(
        np.concatenate([losses.index.to_numpy(), *(s.index.to_numpy() for s in named.values())])
    )
    log = training if len(training) else pd.DataFrame(columns=["step", "loss", "gradient_norm"])
    # a run that was resumed may have written a step twice
    log = log.drop_duplicates("step", keep="last").sort_values("step")
    return History(
        model=str(model["model"]),
        n_parameters=int(model["n_parameters"]),
        tokens_per_step=int(model["tokens_per_step"]),
        final_step=int(model["final_step"]),
        family=str(model.get("family", "")),
        seed=int(model.get("seed", 0)),
        steps=log["step"].to_numpy(dtype=np.float64),
        losses=log["loss"].to_numpy(dtype=np.float64),
        gradient_norms=log["gradient_norm"].to_numpy(dtype=np.float64),
        learning_rates=_schedule(log) if schedule is None else schedule,
        checkpoint_steps=steps,
        checkpoint_losses=losses.reindex(steps).to_numpy(dtype=np.float64),
        features={
            **{name: series.reindex(steps).to_numpy(dtype=np.float64) for name, series in named.items()},
            **{name: rows.reindex(steps).to_numpy(dtype=np.float64) for name, rows in vectors.items()},
        },
    )


def _schedule(log: pd.DataFrame) -> np.ndarray:
    """Learning rates from step 0 on; a step without a row (0, if the log starts at 1) takes the next one."""
    if "learning_rate" not in log or not len(log):
        return np.empty(0)
    known = log.dropna(subset=["learning_rate"])
    if not len(known):
        return np.empty(0)
    wanted = np.arange(int(known["step"].max()) + 1)
    rows = np.searchsorted(known["step"].to_numpy(), wanted)
    return known["learning_rate"].to_numpy(dtype=np.float64)[rows]


def forecast_table(
    histories: Sequence[History],
    *,
    fractions: Sequence[float] = FRACTIONS,
    methods: Sequence[str] = METHODS,
    seed: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The `forecasts` table (model, fraction, method, ...), and apart from it the seconds each method took.

    Seconds: fraction, method, seconds for all models; they differ from run to run, so they have no place in a
    table that is compared byte by byte.
    """
    finals = {history.model: history.final_loss for history in histories}
    rows, costs = [], []
    for fraction in fractions:
        family = [history.first(fraction) for history in histories]
        for method in methods:
            start = perf_counter()
            forecaster = make_forecaster(method, family, finals, seed)
            for history in family:
                prediction = forecaster.fit(history).predict(history.final_step)
                rows.append(
                    (
                        history.model,
                        fraction,
                        method,
                        prediction.value,
                        prediction.low,
                        prediction.high,
                        finals[history.model],
                        prediction.value - finals[history.model],
                        prediction.reason,
                    )
                )
            costs.append((fraction, method, perf_counter() - start))
    table = pd.DataFrame(rows, columns=FORECAST_COLUMNS).sort_values(["model", "fraction", "method"])
    return table.reset_index(drop=True), pd.DataFrame(costs, columns=["fraction", "method", "seconds"])


def evaluate(
    forecasts: pd.DataFrame,
    histories: Sequence[History] = (),
    *,
    resamples: int = 1000,
    permutations: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """The `forecast_evaluation` table: one row for each fraction and method (`EVALUATION_COLUMNS`).

    mae_low, mae_high, improvement_low, improvement_high: 95% bootstrap over models. improvement_percent: 100
    (1 - MAE / MAE of power_law) over the models that both forecast. wilcoxon_p: two-sided signed-rank test of
    the absolute errors against power_law's. For ridge, with `histories` given: permutation_mae, the mean MAE
    with the final losses dealt out at random, and permutation_p, the share of deals at least as good (own
    deal counted).
    """
    rows = []
    for _, group in forecasts.groupby(["fraction", "method"], sort=True):
        fraction, method = float(group["fraction"].iloc[0]), str(group["method"].iloc[0])
        baseline = forecasts[(forecasts["fraction"] == fraction) & (forecasts["method"] == BASELINE)]
        row: dict[str, object] = {"fraction": fraction, "method": method}
        row.update(_accuracy(group, resamples, seed))
        row.update(_against_baseline(group, baseline, resamples, seed))
        if method.startswith("ridge") and len(histories):
            row.update(_permutation(method, fraction, histories, row["mae"], permutations, seed))
        row["note"] = _note(int(group["actual"].notna().sum()))
        rows.append(row)
    return pd.DataFrame(rows, columns=EVALUATION_COLUMNS)


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
    covered = (usable["low"] <= usable["actual"]) & (usable["actual"] <= usable["high"])
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
    names, values = list(finals), np.array(list(finals.values()))
    maes = np.empty(permutations)
    for draw in range(permutations):
        dealt = dict(zip(names, rng.permutation(values), strict=True))
        errors = []
        for model, problem in solvable.items():
            targets = np.array([dealt[other] for other in problem.others])
            errors.append(abs(problem.solve(targets)[0][0] - dealt[model]))
        maes[draw] = np.mean(errors)
    as_good = np.sum(maes <= mae * (1 + 1e-12))
    return {"permutation_mae": float(maes.mean()), "permutation_p": float((1 + as_good) / (1 + permutations))}


def _note(models: int) -> str:
    if models >= FEW_MODELS:
        return ""
    smallest = 2.0 ** (1 - models) if models else 1.0
    return (
        f"{models} models: the smallest p-value a signed-rank test can give is {min(smallest, 1.0):.3g}; "
        "read the intervals, not the ranking"
    )
