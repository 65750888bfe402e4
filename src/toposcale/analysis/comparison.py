"""Published values beside those of a run, with the differences in setting said: a rerun need not match them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.controls import NOTHING
from toposcale.features.registry import NEURAL_PERSISTENCE
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
_OF_THE_MODEL = {"source": "weights", "layer": ALL_LAYERS}
_CORRELATION_COLUMNS = {
    "spearman": "spearman",
    "p": "spearman_p",
    "bootstrap_low": "spearman_low",
    "bootstrap_high": "spearman_high",
}
_SCALING_COLUMNS = {"exponent": "exponent", "r2": "r_squared", "spearman": "spearman", "p": "p"}
_TRANSITION_COLUMNS = {
    f"step of max |delta {NEURAL_PERSISTENCE.feature}|": "transition_step",
    "step of diminishing returns": "settled_step",
}


Run = Mapping[str, pd.DataFrame]
"""The tables of a run that published values are looked up in, by name."""


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

    published: source, table, model, step, quantity, value, note, values as text ("<1e-24" is one). A row counts where
    its model is one of the run's, or where it speaks of all models, the run has each of them, and a value. `setting`
    says in words how the run's training differs from the published one.
    """
    names = set(run["models"]["model"])
    trained = set(
        published[(published["source"] == PAPER) & (published["table"] == _TRAINED_MODELS)]["model"]
    )
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
        value, note = _parsed(row["value"], row["note"])
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
    said = [
        f"{key} {training[key]} (published {value})"
        for key, value in PAPER_SETTING.items()
        if training[key] != value
    ]
    files = f" {' '.join(corpus['train'])}" if corpus["source"] == "files" else ""
    said.append(f"corpus {corpus['source']}{files} (the published text is not stated)")
    if corpus["tokenizer"] != "characters":
        said.append(f"tokenizer {corpus['tokenizer']} (published characters)")
    if seeds[0] != 42:
        said.append(f"seed {seeds[0]} (published 42)")
    return "; ".join(said)


def look_up(row: Mapping[str, Any], run: Run) -> float | None:
    """This run's value of one published quantity; None where the run has no such thing."""
    for pattern, find in _FINDERS:
        match = re.fullmatch(pattern, row["quantity"])
        if match:
            return find(run, row, *match.groups())
    return None


def _model_fact(run: Run, row: Mapping[str, Any], fact: str) -> float | None:
    found = _single(run["models"], fact, model=row["model"])
    return None if found is None or np.isnan(found) else found


def _final_metric(run: Run, row: Mapping[str, Any], metric: str) -> float | None:
    """A metric at the run's own last step, which need not be the published one."""
    values = _rows(run["metrics"], model=row["model"], metric=metric)
    return float(values.sort_values("step")["value"].iloc[-1]) if len(values) else None


def _correlation(run: Run, row: Mapping[str, Any], what: str, feature: str, metric: str) -> float | None:
    where = _OF_THE_MODEL | {"model": row["model"], "feature": feature, "metric": metric, "control": NOTHING}
    return _single(run["correlations"], _CORRELATION_COLUMNS[what], **where)


def _transition(run: Run, row: Mapping[str, Any], what: str) -> float | None:
    where = _OF_THE_MODEL | {"model": row["model"], "feature": NEURAL_PERSISTENCE.feature}
    return _single(run["transitions"], _TRANSITION_COLUMNS[what], **where)


def _scaling(run: Run, row: Mapping[str, Any], what: str, feature: str) -> float | None:
    where = {"layer": ALL_LAYERS, "feature": feature, "law": "power_law"}
    source = "metric" if feature in set(run["metrics"]["metric"]) else "weights"
    return _single(run["scaling"], _SCALING_COLUMNS[what], source=source, **where)


def _forecast(run: Run, row: Mapping[str, Any], what: str, method: str, percent: str) -> float | None:
    # The published improvements are those over the power law.
    what = "over_power_law_percent" if what == "improvement_percent" else what
    return _single(run["forecast_evaluation"], what, method=method, fraction=int(percent) / 100)


def _feature_at_step(run: Run, row: Mapping[str, Any], feature: str) -> float | None:
    """A feature of the embeddings, or the perplexity, at the published step."""
    where = {"model": row["model"], "step": row["step"]}
    if feature == "perplexity":
        return _single(run["metrics"], "value", metric=feature, **where)
    return _single(run["features"], "value", source="embeddings", layer=ALL_LAYERS, feature=feature, **where)


def _over_layers(run: Run, row: Mapping[str, Any], what: str) -> float | None:
    """Neural persistence over the weight matrices at the published step."""
    at = _layers_at(run, row)
    chosen = at[at["feature"] == NEURAL_PERSISTENCE.feature]["value"]
    return None if chosen.empty else float(chosen.mean() if what == "mean" else chosen.std(ddof=0))


def _total_at_step(run: Run, row: Mapping[str, Any], feature: str) -> float | None:
    """The mean over matrices; None where a cloud had more than 100 points, or where it is not known."""
    at = _layers_at(run, row)
    bars, totals = (at[at["feature"] == name]["value"] for name in ("h0_count", feature))
    # n points have n - 1 bars.
    return float(totals.mean()) if len(totals) and len(bars) and bars.max() <= 99 else None


def _mean_strength(run: Run, row: Mapping[str, Any], feature: str) -> float | None:
    """Mean over the published models of |Spearman| of an embedding feature with the perplexity."""
    where = {"source": "embeddings", "layer": ALL_LAYERS, "feature": feature, "metric": "perplexity"}
    rows = _rows(run["correlations"], control=NOTHING, **where)
    chosen = rows[rows["model"].isin(_EMBEDDING_REPORT_MODELS)]["spearman"]
    return float(chosen.abs().mean()) if len(chosen) == len(_EMBEDDING_REPORT_MODELS) else None


def _rows(table: pd.DataFrame, **where: Any) -> pd.DataFrame:
    return table[np.logical_and.reduce([table[key] == value for key, value in where.items()])]


def _layers_at(run: Run, row: Mapping[str, Any]) -> pd.DataFrame:
    """The features of the weight matrices at the published step."""
    rows = _rows(run["features"], model=row["model"], step=row["step"], source="weights")
    return rows[rows["layer"] != ALL_LAYERS]


def _single(table: pd.DataFrame, column: str, **where: Any) -> float | None:
    values = _rows(table, **where)[column]
    return float(values.iloc[0]) if len(values) == 1 else None


_FINDERS: tuple[tuple[str, Callable[..., float | None]], ...] = (
    ("(n_parameters|d_model|n_layers|n_heads)", _model_fact),
    ("(validation_loss)", _final_metric),
    (r"(spearman|p|bootstrap_low|bootstrap_high) (\w+) (training_loss|validation_loss)", _correlation),
    (r"(step of max \|delta neural_persistence\||step of diminishing returns)", _transition),
    (r"(exponent|r2|spearman|p) (\w+) in N", _scaling),
    (r"(mae|improvement_percent) (\w+) at (\d+)%", _forecast),
    ("neural_persistence (mean|sd) over layers", _over_layers),
    ("(h0_total)", _total_at_step),
    ("(perplexity|h1_count|h1_total|h1_entropy|effective_rank)", _feature_at_step),
    (r"\|spearman\| (\w+) perplexity", _mean_strength),
)
"""Published quantities by the form of their names, and where a run keeps them."""


def _parsed(value: str, note: Any) -> tuple[float, str]:
    note = "" if pd.isna(note) else str(note)
    if value.startswith("<"):
        return float(value[1:]), "; ".join(filter(None, [note, f"published as {value}"]))
    return float(value), note
