"""From the tables of a run to its trainings."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.series import whole_model
from toposcale.runs.series import Series
from toposcale.runs.training_run import Facts, TrainingRun


def trainings_from_tables(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    training: pd.DataFrame,
    models: pd.DataFrame,
    *,
    schedules: pd.DataFrame | None = None,
    vectors: pd.DataFrame | None = None,
) -> list[TrainingRun]:
    """One training for each row of `models`, sorted by model; whatever a table lacks is missing there too.

    A model whose size is not known, since none of its checkpoints could be read, has none. Features of layer "all" count.
    `schedules`: the table of that name, the plans; a plan that is not in it is what the log's own rows tell. `vectors`: the
    table of that name; its vectors are features, too.
    """
    whole = whole_model(features) if len(features) else features
    return [
        TrainingRun.of(
            _facts(row, _rows_of(row["model"], schedules)),
            _log(_rows_of(row["model"], training)),
            _series(_rows_of(row["model"], metrics), ["metric"]),
            _series(_rows_of(row["model"], whole), ["source", "feature"]) | _vectors(_rows_of(row["model"], vectors)),
        )
        for row in models.dropna(subset="n_parameters").sort_values("model").to_dict("records")
    ]


def _rows_of(model: str, table: pd.DataFrame | None) -> pd.DataFrame:
    return pd.DataFrame() if table is None or table.empty else table[table["model"] == model]


def _facts(model: Mapping[Hashable, Any], breakpoints: pd.DataFrame) -> Facts:
    steps = np.arange(int(model["final_step"]) + 1)
    tokens, warmup, repeated = model["tokens_per_step"], model.get("warmup_steps"), model.get("repeated_steps")
    return Facts(
        str(model["model"]),
        int(model["n_parameters"]),
        int(model["final_step"]),
        np.nan if pd.isna(tokens) else float(tokens),
        rates=np.interp(steps, breakpoints["step"], breakpoints["learning_rate"]) if len(breakpoints) else None,
        plan=str(model.get("plan", "")),
        warmup_steps=None if pd.isna(warmup) else float(warmup),
        family=str(model.get("family", "")),
        seed=int(model.get("seed", 0)),
        repeated=0 if pd.isna(repeated) else int(repeated),
    )


def _log(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    columns = rows.reindex(columns=["step", "loss", "gradient_norm", "learning_rate"])
    return {str(name): values.to_numpy(dtype=np.float64) for name, values in columns.items()}


def _series(rows: pd.DataFrame, key: list[str]) -> dict[str, Series]:
    """Steps and values by name, "metric" or "source/feature"."""
    return {
        "/".join(map(str, name)): (part["step"].to_numpy(np.float64), part["value"].to_numpy(np.float64))
        for name, part in (rows.groupby(key, sort=True) if len(rows) else ())
    }


def _vectors(rows: pd.DataFrame) -> dict[str, Series]:
    """Steps and vectors by "source/name"."""
    by_name: dict[str, Series] = {}
    for (source, name), part in rows.groupby(["source", "vector"]) if len(rows) else ():
        wide = part.pivot(index="step", columns="index", values="value").sort_index()
        by_name[f"{source}/{name}"] = wide.index.to_numpy(np.float64), wide.to_numpy(np.float64)
    return by_name
