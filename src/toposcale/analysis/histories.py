"""From the tables of a run to what a forecaster may read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale.features.names import TRAINING_LOSS, VALIDATION_LOSS, metric_name
from toposcale.forecasting.history import History
from toposcale.io.schemas import ALL_LAYERS
from toposcale.training.schedules import plan_of_training, rates_of_log


def histories_from_tables(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    training: pd.DataFrame,
    models: pd.DataFrame,
    *,
    schedules: pd.DataFrame | None = None,
    vectors: Mapping[str, Mapping[str, pd.DataFrame]] | None = None,
) -> list[History]:
    """One history for each row of `models`, sorted by model; whatever a table lacks is missing there too.

    A model whose size is not known, since none of its checkpoints could be read, has none.
    What is forecast is the validation loss; of a model that has none, the training loss. Features of layer "all"
    count. `schedules`: the table of that name, the plans; a plan that is not in it is what the log's own rows tell.
    `vectors`: by model and feature name, vectorised
    diagrams, a row a step and the step in the index; steps that the other tables do not have are passed over.
    """
    whole = features[features["layer"] == ALL_LAYERS] if len(features) else features
    measured = metrics.loc[metrics["metric"] == VALIDATION_LOSS, "model"]
    named = np.where(metrics["model"].isin(measured), VALIDATION_LOSS, TRAINING_LOSS)
    chosen = metrics[metrics["metric"] == named]
    return [
        _history(
            row,
            whole[whole["model"] == row["model"]] if len(whole) else whole,
            chosen[chosen["model"] == row["model"]],
            training[training["model"] == row["model"]] if len(training) else training,
            None if schedules is None else schedules[schedules["model"] == row["model"]],
            (vectors or {}).get(str(row["model"]), {}),
        )
        for row in models.dropna(subset="n_parameters").sort_values("model").to_dict("records")
    ]


def _history(
    model: Mapping[Hashable, Any],
    features: pd.DataFrame,
    metric: pd.DataFrame,
    training: pd.DataFrame,
    schedule: pd.DataFrame | None,
    vectors: Mapping[str, pd.DataFrame],
) -> History:
    losses = metric.drop_duplicates("step").set_index("step")["value"].astype("float64")
    named = pd.DataFrame()
    if len(features):
        once = features.drop_duplicates(["source", "feature", "step"])
        named = once.pivot(index="step", columns=["source", "feature"], values="value").sort_index(axis=1)
    steps = np.union1d(losses.index, named.index)
    log = training if len(training) else pd.DataFrame(columns=["step", "loss", "gradient_norm"])
    # a run that was resumed may have written a step twice
    log = log.drop_duplicates("step", keep="last").sort_values("step")
    rates, plan = _plan(model, log, schedule)
    return History(
        model=str(model["model"]),
        n_parameters=int(model["n_parameters"]),
        tokens_per_step=np.nan if pd.isna(model["tokens_per_step"]) else float(model["tokens_per_step"]),
        final_step=int(model["final_step"]),
        family=str(model.get("family", "")),
        metric=metric_name(str(metric["metric"].iloc[0])) if len(metric) else metric_name(TRAINING_LOSS),
        seed=int(model.get("seed", 0)),
        steps=log["step"].to_numpy(dtype=np.float64),
        losses=log["loss"].to_numpy(dtype=np.float64),
        gradient_norms=log["gradient_norm"].to_numpy(dtype=np.float64),
        learning_rates=rates,
        plan=plan,
        stated_warmup=0 if pd.isna(model.get("warmup_steps")) else int(model["warmup_steps"]),
        checkpoint_steps=steps,
        checkpoint_losses=losses.reindex(steps).to_numpy(dtype=np.float64),
        features={
            **{"/".join(name): column.to_numpy(np.float64) for name, column in named.reindex(steps).items()},  # type: ignore[arg-type]
            **{name: rows.reindex(steps).to_numpy(dtype=np.float64) for name, rows in vectors.items()},
        },
    )


def _plan(
    model: Mapping[Hashable, Any], log: pd.DataFrame, schedule: pd.DataFrame | None
) -> tuple[np.ndarray, str]:
    """Rates of every step, and where they are known from; without a plan those that were logged, and why there is none."""
    final = int(model["final_step"])
    if schedule is not None and len(schedule):
        rates = np.interp(np.arange(final + 1), schedule["step"], schedule["learning_rate"])
        return rates, str(model.get("plan", ""))
    if "learning_rate" not in log:
        return np.empty(0), str(model.get("plan", "")) or "no learning rates are logged"
    steps, logged = (log[name].to_numpy(dtype=np.float64) for name in ("step", "learning_rate"))
    warmup = model.get("warmup_steps")
    warmup = None if pd.isna(warmup) else float(warmup)
    if schedule is None:
        rates, plan = plan_of_training(final, steps, logged, warmup_steps=warmup)
        if len(rates):
            return rates, plan
    known = rates_of_log(steps, logged, warmup)
    return (np.empty(0) if isinstance(known, str) else known), str(model.get("plan", ""))


def vectors_by_model(vectors: pd.DataFrame) -> dict[str, dict[str, pd.DataFrame]]:
    """The vectors table as what `histories_from_tables` takes: by model and name, a row a step."""
    found: dict[str, dict[str, pd.DataFrame]] = {}
    for (model, source, name), rows in vectors.groupby(["model", "source", "vector"]):
        wide = rows.pivot(index="step", columns="index", values="value").sort_index()
        found.setdefault(str(model), {})[f"{source}/{name}"] = wide
    return found
