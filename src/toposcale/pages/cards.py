"""A card for each model of a run: what it is, where it stands, what changed, what is odd, and what to do."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from toposcale.features.feature import SUMMARY
from toposcale.features.names import feature_name
from toposcale.features.roles import odd_layers
from toposcale.forecasting.runs.metrics import TRAINING_LOSS, VALIDATION_LOSS, metric_name
from toposcale.io.schemas import ALL_LAYERS

MOST_NAMED = 3


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
    result = []
    for row in models.sort_values(["n_parameters", "model"]).to_dict("records"):
        of_model = {name: parts.get(row["model"], empty[name]) for name, parts in by_model.items()}
        weights = of_model["features"][of_model["features"]["source"] == "weights"]
        lines = {
            "Size": _size(row),
            "Checkpoints": _checkpoints(of_model["features"], row["final_step"]),
            "Loss": _loss(of_model["metrics"]),
            "Forecast": _forecast(of_model["advice"]),
            "Changed most": _changes(weights),
            "Odd layers": _odd(weights),
            "Warnings": _warnings(of_model["warnings"]),
            "Advice": _advice(of_model["advice"]),
        }
        result.append(Card(str(row["model"]), [(label, text) for label, text in lines.items() if text]))
    return result


def _size(row: Mapping[Any, Any]) -> str:
    """Return the number of parameters and the shape, as far as known."""
    words = {"n_parameters": "{:,} parameters", "d_model": "width {}", "n_layers": "{} blocks", "n_heads": "{} heads"}
    texts = [text.format(int(row[key])) for key, text in words.items() if pd.notna(row.get(key))]
    return ", ".join(text.removesuffix("s") if text.startswith("1 ") else text for text in texts)


def _checkpoints(features: pd.DataFrame, final_step: float) -> str:
    """Return how many checkpoints were measured, and up to which step."""
    if features.empty:
        return "none was measured"
    steps = np.unique(features["step"])
    end = f" of {int(final_step):,}" if pd.notna(final_step) else ""
    return f"{len(steps):,}, steps {steps[0]:,} to {steps[-1]:,}{end}"


def _loss(metrics: pd.DataFrame) -> str:
    """Return the last and the lowest loss: validation, or else training."""
    for name in (VALIDATION_LOSS, TRAINING_LOSS):
        rows = metrics[(metrics["metric"] == name) & np.isfinite(metrics["value"])].sort_values("step")
        if len(rows):
            last, lowest = rows.iloc[-1], rows.iloc[int(rows["value"].argmin())]
            end, least = f"{last['value']:.4g}", f"{lowest['value']:.4g}"
            text = f"{metric_name(name)} {end} at step {last['step']:,}"
            return text if least == end else f"{text}, lowest {least} at {lowest['step']:,}"
    return "none was measured"


def _forecast(advice: pd.DataFrame) -> str:
    """Return the forecast of the final loss of a run under way."""
    live = advice[advice["is_live"].astype(bool) & advice["forecast"].notna()]
    if live.empty:
        return ""
    row = live.iloc[0]
    return f"{row['forecast']:.4g} at the end, 95% interval {row['forecast_low']:.4g} to {row['forecast_high']:.4g}"


def _changes(weights: pd.DataFrame) -> str:
    """Return the features of the whole model that changed most from the first checkpoint to the last, by their ratio."""
    whole = weights[weights["layer"] == ALL_LAYERS]
    if whole["step"].nunique() < 2:
        return ""
    first, last = (
        whole[whole["step"] == step].set_index("feature")["value"]
        for step in (whole["step"].min(), whole["step"].max())
    )
    ratios = {
        name: last[name] / first[name]
        for name in SUMMARY
        if name in first and name in last and first[name] > 0 and last[name] > 0
    }
    ordered = sorted(ratios, key=lambda name: -abs(np.log(ratios[name])))[:MOST_NAMED]
    return "; ".join(f"{feature_name(name)} x {ratios[name]:.3g}" for name in ordered)


def _odd(weights: pd.DataFrame) -> str:
    """Return the layers that are unlike the same layer of other blocks at the last checkpoint."""
    layers = weights[weights["layer"] != ALL_LAYERS]
    last = layers[(layers["step"] == layers["step"].max()) & layers["feature"].isin(SUMMARY)]
    features = {
        str(layer): dict(zip(rows["feature"], rows["value"], strict=True)) for layer, rows in last.groupby("layer")
    }
    odd = odd_layers(features)
    more = len(odd) - MOST_NAMED
    return "; ".join(map(str, odd[:MOST_NAMED])) + (f"; and {more} more" if more > 0 else "")


def _warnings(warnings: pd.DataFrame) -> str:
    """Return how many warnings there are, and the first."""
    if warnings.empty:
        return ""
    first = f"{warnings.iloc[0]['concerns']}: {warnings.iloc[0]['warning']}"
    return first if len(warnings) == 1 else f"{len(warnings)}, the first: {first}"


def _advice(advice: pd.DataFrame) -> str:
    """Return the advice on a run under way, or that it is finished."""
    if advice.empty:
        return ""
    live = advice[advice["is_live"].astype(bool)]
    return str(live.iloc[0]["sentence"]) if len(live) else "the run is finished"
