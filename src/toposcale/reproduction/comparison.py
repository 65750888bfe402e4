"""Comparison of published values with those of a run, with the differences in setting."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale.io import schemas

PAPER = "paper"
PAPER_SETTING = {
    "steps": 5000,
    "checkpoint_every": 100,
    "batch_size": 64,
    "context": 128,
    "learning_rate": 3e-3,
    "warmup_steps": 200,
    "weight_decay": 0.01,
    "gradient_clip": 1.0,
}
"""Settings of the reproduced paper (docs/method.md) for its five models, with seed 42, on characters of an unnamed text."""

_EMBEDDING_REPORT = "embedding_report"
_TRAINED_MODELS = "1"  # the table of the reproduced paper that lists the models which it trains
_LIKE_WITH_LIKE = (
    "compared with the mean over matrices of at most 100 points each: on the random weights that these models start from "
    "this gives the published value of step 0, and a sum does not"
)
_EMBEDDING_REPORT_MODELS = ("pythia-70m", "pythia-160m", "pythia-410m")
_FILTERS = ("source", "layer", "feature", "metric", "control", "law", "method", "fraction")

Run = Mapping[str, pd.DataFrame]
"""The tables of a run that published values are looked up in, by name."""


def comparison_tables(
    published: pd.DataFrame,
    *,
    training_settings: Mapping[str, Any],
    corpus_settings: Mapping[str, Any],
    seeds: list[int],
    reproduces: Collection[str],
    **run: pd.DataFrame,
) -> dict[str, pd.DataFrame]:
    """Make the table comparison from the values that the sources `reproduces` publish and the tables of a run."""
    setting = setting_differences(training_settings, corpus_settings, seeds)
    return {"comparison": compare(published[published["source"].isin(reproduces)], run, setting)}


def compare(published: pd.DataFrame, run: Run, setting: str) -> pd.DataFrame:
    """Return the rows of `published` that this run has a value for, with that value and the difference.

    A row counts if its model is one of the run's, or if it is about several models and the run has all of them.
    """
    names = set(run["models"]["model"])
    trained = set(published[(published["source"] == PAPER) & (published["table"] == _TRAINED_MODELS)]["model"])
    models_of = {
        (PAPER, "all"): trained,
        (_EMBEDDING_REPORT, "all"): set(_EMBEDDING_REPORT_MODELS),
        (_EMBEDDING_REPORT, "mean of three"): set(_EMBEDDING_REPORT_MODELS),
    }
    rows = []
    for record in published.to_dict("records"):
        row = {str(key): value for key, value in record.items()}
        models = models_of.get((row["source"], row["model"]), {row["model"]})
        ours = value_of_run(row, models, run) if models <= names else None
        if ours is None:
            continue
        value = float(row["value"].removeprefix("<"))
        notes = [
            "" if pd.isna(row["note"]) else str(row["note"]),
            f"published as {row['value']}" if row["value"].startswith("<") else "",
            _LIKE_WITH_LIKE if row["quantity"] == "h0_total" else "",
        ]
        rows.append(
            {
                **{key: row[key] for key in ("source", "table", "model", "quantity")},
                "step": None if pd.isna(row["step"]) else int(row["step"]),
                "published": value,
                "ours": ours,
                "difference": ours - value,
                "note": "; ".join(filter(None, notes)),
                "setting": setting if row["source"] == PAPER and models <= trained else "",
            }
        )
    return schemas.TABLES["comparison"].frame(rows)


def setting_differences(training: Mapping[str, Any], corpus: Mapping[str, Any], seeds: list[int]) -> str:
    """Describe where the setting of a run differs from the published one, or may differ."""
    differences = [
        f"{key} {training[key]} (published {value})" for key, value in PAPER_SETTING.items() if training[key] != value
    ]
    files = f" {' '.join(corpus['train'])}" if corpus["source"] == "files" else ""
    differences.append(f"corpus {corpus['source']}{files} (the published text is not stated)")
    if corpus["tokenizer"] != "characters":
        differences.append(f"tokenizer {corpus['tokenizer']} (published characters)")
    if seeds[0] != 42:
        differences.append(f"seed {seeds[0]} (published 42)")
    return "; ".join(differences)


def value_of_run(row: Mapping[str, Any], models: Collection[str], run: Run) -> float | None:
    """Return the value of a run for a published quantity of these models; None if the run has none.

    The row names its source: `our_table`, `our_column`, the filters `our_source`, `our_layer`, ... (without a layer: all
    matrices), and in `take` the reduction to one number.
    """
    if pd.isna(row["our_table"]):
        return None
    table, column, reduction = run[row["our_table"]], row["our_column"], row["take"]
    conditions = {name: row[f"our_{name}"] for name in _FILTERS} | {"step": row["step"]}
    if reduction == "last_step":  # the run's own, which need not be the published one
        rows = _rows_of_models(table, models, conditions | {"step": np.nan}).sort_values("step")
    else:
        rows = _rows_of_models(table, models, conditions)
    if reduction == "mean_of_small_clouds":
        # n points have n - 1 bars. Where their number is not known, neither is whether the clouds were small.
        bars = _rows_of_models(table, models, conditions | {"feature": "h0_count"})[column]
        rows = rows if bars.max() <= 99 else rows[:0]
    return None if rows.empty else _TAKES[reduction](rows[column])


def _rows_of_models(table: pd.DataFrame, models: Collection[str], conditions: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of these models that meet the conditions, values by column; NaN is not a condition."""
    rows = table[table["model"].isin(models)] if "model" in table else table
    if "layer" in table and pd.isna(conditions["layer"]):
        rows = rows[rows["layer"] != schemas.ALL_LAYERS]
    for name, value in conditions.items():
        rows = rows[rows[name] == value] if name in table and not pd.isna(value) else rows
    return rows


def _only(values: pd.Series) -> float | None:
    return float(values.iloc[0]) if len(values) == 1 else None


_TAKES: dict[str, Callable[[pd.Series], float | None]] = {
    "only": _only,
    "if_known": lambda values: _only(values.dropna()),
    "last_step": lambda values: float(values.iloc[-1]),
    "mean_over_matrices": lambda values: float(values.mean()),
    "sd_over_matrices": lambda values: float(values.std(ddof=0)),
    "mean_of_small_clouds": lambda values: float(values.mean()),
    "mean_size_over_models": lambda values: (
        float(values.abs().mean()) if len(values) == len(_EMBEDDING_REPORT_MODELS) else None
    ),
}
"""Reductions of rows to one number, by the names in `take`."""
