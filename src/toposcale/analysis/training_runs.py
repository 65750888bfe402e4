"""From the tables of a run to its trainings."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale.forecasting.series import Series
from toposcale.forecasting.training_run import Facts, TrainingRun
from toposcale.io.schemas import ALL_LAYERS


def trainings_from_tables(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    training: pd.DataFrame,
    models: pd.DataFrame,
    *,
    schedules: pd.DataFrame | None = None,
    vectors: Mapping[str, Mapping[str, Series]] | None = None,
) -> list[TrainingRun]:
    """One training for each row of `models`, sorted by model; whatever a table lacks is missing there too.

    A model whose size is not known, since none of its checkpoints could be read, has none. Features of layer "all" count.
    `schedules`: the table of that name, the plans; a plan that is not in it is what the log's own rows tell. `vectors`: by
    model and "source/name", the steps and the vectors there.
    """
    whole = features[features["layer"] == ALL_LAYERS] if len(features) else features
    plans = pd.DataFrame(columns=["model"]) if schedules is None else schedules
    return [
        TrainingRun.of(
            _facts(row, plans[plans["model"] == row["model"]]),
            _log(training[training["model"] == row["model"]] if len(training) else training),
            _series(metrics[metrics["model"] == row["model"]], "metric"),
            {**_features(whole, row["model"]), **(vectors or {}).get(str(row["model"]), {})},
        )
        for row in models.dropna(subset="n_parameters").sort_values("model").to_dict("records")
    ]


def _facts(model: Mapping[Hashable, Any], knots: pd.DataFrame) -> Facts:
    final_step = int(model["final_step"])
    rates = None
    if len(knots):
        rates = np.interp(np.arange(final_step + 1), knots["step"], knots["learning_rate"])
    tokens, warmup, repeated = model["tokens_per_step"], model.get("warmup_steps"), model.get("repeated_steps")
    return Facts(
        str(model["model"]),
        int(model["n_parameters"]),
        final_step,
        np.nan if pd.isna(tokens) else float(tokens),
        rates=rates,
        plan=str(model.get("plan", "")),
        warmup_steps=None if pd.isna(warmup) else float(warmup),
        family=str(model.get("family", "")),
        seed=int(model.get("seed", 0)),
        repeated=0 if pd.isna(repeated) else int(repeated),
    )


def _log(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    columns = ("step", "loss", "gradient_norm", "learning_rate")
    there = rows.reindex(columns=columns)
    return {name: there[name].to_numpy(dtype=np.float64) for name in columns}


def _features(rows: pd.DataFrame, model: str) -> dict[str, Series]:
    if rows.empty:
        return {}
    measured = rows[rows["model"] == model]
    return _series(measured.assign(name=measured["source"] + "/" + measured["feature"]), "name")


def _series(rows: pd.DataFrame, name: str) -> dict[str, Series]:
    """Steps and values of each name."""
    return {
        str(which): (part["step"].to_numpy(np.float64), part["value"].to_numpy(np.float64))
        for which, part in rows.groupby(name, sort=True)
    }


def vectors_by_model(vectors: pd.DataFrame) -> dict[str, dict[str, Series]]:
    """The vectors table as what `trainings_from_tables` takes."""
    by_model: dict[str, dict[str, Series]] = {}
    for (model, source, name), rows in vectors.groupby(["model", "source", "vector"]):
        wide = rows.pivot(index="step", columns="index", values="value").sort_index()
        series = wide.index.to_numpy(np.float64), wide.to_numpy(np.float64)
        by_model.setdefault(str(model), {})[f"{source}/{name}"] = series
    return by_model
