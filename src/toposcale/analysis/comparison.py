"""Published values beside those of a run, with the differences in setting said: a rerun need not match them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale.io import schemas
from toposcale.io.schemas import ALL_LAYERS

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
"""How the reproduced paper (docs/method.md) trained its five models, with seed 42, on characters of a text that it does not
name."""

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

Filters = Mapping[str, Any]
"""Values that columns of a table must have."""


def comparison_tables(
    published: pd.DataFrame,
    *,
    training_settings: Mapping[str, Any],
    corpus_settings: Mapping[str, Any],
    seeds: list[int],
    **run: pd.DataFrame,
) -> dict[str, pd.DataFrame]:
    """The table comparison; `run`: models, metrics, features, correlations, scaling, transitions, forecast_evaluation."""
    setting = setting_differences(training_settings, corpus_settings, seeds)
    return {"comparison": compare(published, run, setting)}


def compare(published: pd.DataFrame, run: Run, setting: str) -> pd.DataFrame:
    """The rows of `published` that this run has a value for, with that value and the difference.

    published: source, table, model, step, quantity, value, note, values as text ("<1e-24" is one), and where the value
    stands in a run (`look_up`). A row counts where its model is one of the run's, or where it speaks of all models, the
    run has each of them, and a value. `setting` says in words how the run's training differs from the published one.
    """
    names = set(run["models"]["model"])
    trained = set(published[(published["source"] == PAPER) & (published["table"] == _TRAINED_MODELS)]["model"])
    together = {
        (PAPER, "all"): trained,
        (_EMBEDDING_REPORT, "all"): set(_EMBEDDING_REPORT_MODELS),
        (_EMBEDDING_REPORT, "mean of three"): set(_EMBEDDING_REPORT_MODELS),
    }
    rows = []
    for record in published.to_dict("records"):
        row = {str(key): value for key, value in record.items()}
        about = together.get((row["source"], row["model"]), {row["model"]})
        if not about <= names:
            continue
        ours = look_up(row, run)
        if ours is None:
            continue
        value, note = _number_and_note(row["value"], row["note"])
        if row["quantity"] == "h0_total":
            note = "; ".join(filter(None, [note, _LIKE_WITH_LIKE]))
        rows.append(
            {
                **{key: row[key] for key in ("source", "table", "model", "quantity")},
                "step": None if pd.isna(row["step"]) else int(row["step"]),
                "published": value,
                "ours": ours,
                "difference": ours - value,
                "note": note,
                "setting": setting if row["source"] == PAPER and about <= trained else "",
            }
        )
    return schemas.TABLES["comparison"].frame(rows)


def setting_differences(training: Mapping[str, Any], corpus: Mapping[str, Any], seeds: list[int]) -> str:
    """In words, where a run's setting is not the published one, or not known to be."""
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


def look_up(row: Mapping[str, Any], run: Run) -> float | None:
    """This run's value of one published quantity; None where the run has no such thing.

    The row names where it stands: `our_table`, `our_column`, the values `our_source`, `our_layer`, ... that choose the rows
    of that table, and in `take` how these become one number.
    """
    if pd.isna(row["our_table"]):
        return None
    table = run[row["our_table"]]
    filters = {name: row[f"our_{name}"] for name in _FILTERS if not pd.isna(row[f"our_{name}"])}
    filters |= {name: row[name] for name in ("model", "step") if name in table and not pd.isna(row[name])}
    return _TAKES[row["take"]](table, row["our_column"], filters)


def _only(table: pd.DataFrame, column: str, filters: Filters) -> float | None:
    values = _rows(table, filters)[column]
    return float(values.iloc[0]) if len(values) == 1 else None


def _if_known(table: pd.DataFrame, column: str, filters: Filters) -> float | None:
    value = _only(table, column, filters)
    return None if value is None or np.isnan(value) else value


def _last_step(table: pd.DataFrame, column: str, filters: Filters) -> float | None:
    """The value at the run's own last step, which need not be the published one."""
    rows = _rows(table, {name: value for name, value in filters.items() if name != "step"})
    return float(rows.sort_values("step")[column].iloc[-1]) if len(rows) else None


def _mean_over_matrices(table: pd.DataFrame, column: str, filters: Filters) -> float | None:
    values = _of_matrices(table, filters)[column]
    return float(values.mean()) if len(values) else None


def _sd_over_matrices(table: pd.DataFrame, column: str, filters: Filters) -> float | None:
    values = _of_matrices(table, filters)[column]
    return float(values.std(ddof=0)) if len(values) else None


def _mean_of_small_clouds(table: pd.DataFrame, column: str, filters: Filters) -> float | None:
    """The mean over matrices; None where a cloud had more than 100 points, or where it is not known."""
    bars = _of_matrices(table, {**filters, "feature": "h0_count"})[column]
    # n points have n - 1 bars.
    return _mean_over_matrices(table, column, filters) if len(bars) and bars.max() <= 99 else None


def _mean_size_over_models(table: pd.DataFrame, column: str, filters: Filters) -> float | None:
    """Mean of the absolute values of the models of the embedding report."""
    rows = _rows(table, {name: value for name, value in filters.items() if name != "model"})
    values = rows[rows["model"].isin(_EMBEDDING_REPORT_MODELS)][column]
    return float(values.abs().mean()) if len(values) == len(_EMBEDDING_REPORT_MODELS) else None


def _rows(table: pd.DataFrame, filters: Filters) -> pd.DataFrame:
    return table[np.logical_and.reduce([table[name] == value for name, value in filters.items()])]


def _of_matrices(table: pd.DataFrame, filters: Filters) -> pd.DataFrame:
    rows = _rows(table, filters)
    return rows[rows["layer"] != ALL_LAYERS]


_TAKES: dict[str, Callable[[pd.DataFrame, str, Filters], float | None]] = {
    "only": _only,
    "if_known": _if_known,
    "last_step": _last_step,
    "mean_over_matrices": _mean_over_matrices,
    "sd_over_matrices": _sd_over_matrices,
    "mean_of_small_clouds": _mean_of_small_clouds,
    "mean_size_over_models": _mean_size_over_models,
}
"""How rows of a table become one number, by the names in `take`."""


def _number_and_note(value: str, note: Any) -> tuple[float, str]:
    note = "" if pd.isna(note) else str(note)
    if value.startswith("<"):
        return float(value[1:]), "; ".join(filter(None, [note, f"published as {value}"]))
    return float(value), note
