"""A card for each model of a run: its size and progress, its changes, its odd layers, and the advice."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from toposcale.analysis.answers import HOW_TO_ADD_A_LOSS
from toposcale.analysis.own_run import changed_sentences, odd_sentences
from toposcale.analysis.series import NOT_IN_NATS
from toposcale.features.feature import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.features.names import feature_name, short_layer
from toposcale.forecasting.runs.metrics import TRAINING_LOSS, VALIDATION_LOSS, metric_name
from toposcale.io.schemas import ALL_LAYERS

MAX_NAMED = 3
OF_LAYERS = (WEIGHT_NORM.feature, NEURAL_PERSISTENCE.feature, "stable_rank")
"""Features whose change is told layer by layer."""


class Card(NamedTuple):
    """The name of a model, and lines of a label and a text."""

    model: str
    lines: list[tuple[str, str]]


def cards(
    models: pd.DataFrame, metrics: pd.DataFrame, features: pd.DataFrame, warnings: pd.DataFrame, advice: pd.DataFrame
) -> list[Card]:
    """Return a card for each row of the table models; the other frames are the tables of these names."""
    tables = {"metrics": metrics, "features": features, "warnings": warnings, "advice": advice}
    empty = {name: table.iloc[:0] for name, table in tables.items()}
    by_model = {name: dict(list(table.groupby("model"))) for name, table in tables.items()}
    all_cards = []
    for row in models.sort_values(["n_parameters", "model"]).to_dict("records"):
        model_tables = {name: rows_by_model.get(row["model"], empty[name]) for name, rows_by_model in by_model.items()}
        weights = model_tables["features"][model_tables["features"]["source"] == "weights"]
        is_planned = model_tables["features"].empty and model_tables["metrics"].empty
        checkpoints = "none, since it has not started" if is_planned else _checkpoints(model_tables["features"], row)
        lines = {
            "Size": _size(row),
            "Checkpoints": checkpoints,
            "Loss": "" if is_planned else _loss(model_tables["metrics"]),
            "Forecast": _forecast(model_tables["advice"], row) if len(model_tables["metrics"]) else "",
            "Changed most": " ".join(changed_sentences(weights)) if len(weights) else "",
            "Odd layers": " ".join(odd_sentences(model_tables["metrics"], weights)) if len(weights) else "",
            "Left out": _left_out(row, model_tables["warnings"]),
            "Notes": _clauses(row.get("log_notes")),
            "Warnings": _warnings(model_tables["warnings"]),
            "Advice": _advice(model_tables["advice"], row),
        }
        all_cards.append(Card(str(row["model"]), [(label, text) for label, text in lines.items() if text]))
    return all_cards


def _size(row: Mapping[Any, Any]) -> str:
    """Return the number of parameters and the shape, as far as known."""
    formats = {"n_parameters": "{:,} parameters", "d_model": "width {}", "n_layers": "{} blocks", "n_heads": "{} heads"}
    texts = [text.format(int(row[key])) for key, text in formats.items() if pd.notna(row.get(key))]
    return ", ".join(text.removesuffix("s") if text.startswith("1 ") else text for text in texts)


def _checkpoints(features: pd.DataFrame, row: Mapping[Any, Any]) -> str:
    """Return the number of measured checkpoints, their steps, and the last step of the training where it is known."""
    if features.empty:
        return "none was measured"
    steps = np.unique(features["step"])
    end = f" of {int(row['final_step']):,}" if pd.notna(row["final_step"]) and row.get("is_end_known", True) else ""
    if len(steps) == 1:
        return f"1, step {steps[0]:,}{end}"
    return f"{len(steps):,}, steps {steps[0]:,} to {steps[-1]:,}{end}"


def _left_out(row: Mapping[Any, Any], warnings: pd.DataFrame) -> str:
    """Return the parts of the checkpoints that are not measured although they are sound, with the reasons."""
    facts = warnings.loc[(warnings["concerns"] == "weights") & (warnings["remedy"] == ""), "warning"]
    return "; ".join(filter(None, [*facts, _clauses(row.get("left_out"))]))


def _clauses(text: Any) -> str:
    """Return clauses of a table entry, one a line, as one text."""
    return "; ".join(text.splitlines()) if isinstance(text, str) else ""


def _loss(metrics: pd.DataFrame) -> str:
    """Return the last and the lowest loss: validation, or else training; and from which step on it is not finite."""
    for name in (VALIDATION_LOSS, TRAINING_LOSS):
        of_metric = metrics[metrics["metric"] == name].sort_values("step")
        rows = of_metric[np.isfinite(of_metric["value"])]
        if len(rows):
            last, lowest = rows.iloc[-1], rows.iloc[int(rows["value"].argmin())]
            last_text, lowest_text = f"{last['value']:.4g}", f"{lowest['value']:.4g}"
            text = f"{metric_name(name)} {last_text} at step {last['step']:,}"
            text += "" if lowest_text == last_text else f", lowest {lowest_text} at {lowest['step']:,}"
            later = of_metric.loc[of_metric["step"] > last["step"], "step"]
            return text if later.empty else f"{text}; not finite from step {later.min():,} on"
    return f"none is known; {HOW_TO_ADD_A_LOSS}"


def _forecast(advice: pd.DataFrame, row: Mapping[Any, Any]) -> str:
    """Return the forecast of the final loss of a run under way, or why there is none."""
    if row.get("in_nats") is False:
        return f"no forecast: it is {NOT_IN_NATS}"
    live = advice[advice["is_live"].astype(bool) & advice["forecast"].notna()]
    if live.empty:
        return ""
    loss = live.iloc[0]
    return f"{loss['forecast']:.4g} at the end, 95% interval {loss['forecast_low']:.4g} to {loss['forecast_high']:.4g}"


def _warnings(warnings: pd.DataFrame) -> str:
    """Return the number of warnings and the first of them; a note without a remedy is not a warning."""
    warnings = warnings[warnings["remedy"] != ""]
    if warnings.empty:
        return ""
    first = f"{warnings.iloc[0]['concerns']}: {warnings.iloc[0]['warning']}"
    return first if len(warnings) == 1 else f"{len(warnings)}, the first: {first}"


def _advice(advice: pd.DataFrame, row: Mapping[Any, Any]) -> str:
    """Return the advice on a run under way, or that the run is finished, if its last step is known."""
    if advice.empty:
        return ""
    live = advice[advice["is_live"].astype(bool)]
    if len(live):
        sentence, record = live.iloc[0][["sentence", "record"]]
        return f"{sentence} Runs like yours: {record}." if record else str(sentence)
    return (
        "the run is finished" if row.get("is_end_known", True) else "none: final_step in its entry says where it ends"
    )


def layer_table(models: pd.DataFrame, features: pd.DataFrame) -> pd.DataFrame:
    """Return the change of each layer from the first checkpoint to the last, largest changes of the norm first.

    Columns: model (of several), layer, and for each of some features its ratio. Of models with one checkpoint they
    are values, the largest norms first.
    """
    layers = features[(features["source"] == "weights") & (features["layer"] != ALL_LAYERS)]
    key = ["model", "layer", "feature"]
    layers = layers[layers["feature"].isin(OF_LAYERS)].sort_values([*key, "step"])
    first, last = (layers.drop_duplicates(key, keep=end).set_index(key) for end in ("first", "last"))
    has_two_checkpoints = last["step"] > first["step"]
    has_changes = bool(has_two_checkpoints.any())
    values = (last["value"] / first["value"])[has_two_checkpoints] if has_changes else last["value"]
    table = values.unstack("feature").reindex(columns=list(OF_LAYERS))
    norms = table[WEIGHT_NORM.feature]
    table = table[np.isfinite(norms) & (norms > 0)]
    log_values = np.log(table[WEIGHT_NORM.feature])
    order = (log_values.abs() if has_changes else log_values).sort_values(ascending=False, kind="stable").index
    titles = {name: feature_name(name) + " ×" * has_changes for name in OF_LAYERS}
    shown = table.loc[order].dropna(axis="columns", how="all").reset_index().rename(columns=titles)
    shown["layer"] = shown["layer"].astype(str).map(short_layer)
    return shown if len(models) > 1 else shown.drop(columns="model")
