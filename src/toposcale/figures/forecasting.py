"""Figures of the forecasts and of the decision to train on or to scale up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from toposcale.features.names import COMPUTE_LABEL, TRAINING_LOSS, VALIDATION_LOSS, feature_name
from toposcale.features.registry import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.figures.gallery import title_of
from toposcale.figures.panels import (
    add_note,
    draw_band,
    draw_intervals,
    finite,
    in_order,
    key_legend,
    left_out_note,
    mark_key,
    metric_series,
    missing_figure,
    model_legend,
    new_figure,
    plain_log_ticks,
)
from toposcale.figures.style import (
    INK,
    MUTED,
    SEVERAL_LOOKS,
    mark_of,
    model_appearances,
    styled,
)
from toposcale.io.schemas import ALL_LAYERS

_FRACTION_MARKERS = ("o", "s", "^", "D")
_FRACTION_COLOURS = ("#e08e0b", "#b0347a", "#0b2f6b")  # light to dark as more of the training is read


@styled
def forecast_comparison(forecast_evaluation: pd.DataFrame) -> Figure:
    """Mean absolute error of each method at each fraction of training, with its interval; best on top."""
    title = title_of("forecast_comparison")
    table = forecast_evaluation
    usable = table[np.isfinite(table["mae"].to_numpy(dtype=float))]
    if usable.empty:
        return missing_figure(title, "no forecast could be scored")
    fractions = sorted(usable["fraction"].unique())
    order = usable.groupby("method")["mae"].mean().sort_values(kind="stable", ascending=False).index
    position = {method: place for place, method in enumerate(order)}
    figure = new_figure(1.6 + 0.42 * len(order), title)
    axes = figure.subplots()
    offsets = np.linspace(0.24, -0.24, len(fractions)) if len(fractions) > 1 else np.zeros(1)
    for index, (fraction, offset) in enumerate(zip(fractions, offsets, strict=True)):
        rows = usable[usable["fraction"] == fraction]
        draw_intervals(
            axes,
            rows["method"].map(position).to_numpy() + offset,
            rows["mae"],
            rows["mae_low"],
            rows["mae_high"],
            color=_FRACTION_COLOURS[min(index, len(_FRACTION_COLOURS) - 1)],
            marker=_FRACTION_MARKERS[index % len(_FRACTION_MARKERS)],
            label=f"{fraction:.0%}",
        )
    axes.set_yticks(range(len(order)), [method.replace("_", " ") for method in order])
    axes.set_xscale("log")
    plain_log_ticks(axes.xaxis)
    axes.set_xlabel("mean absolute error over models (nats per token), with 95% interval")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside right upper", title="training read", alignment="left")
    lost = sorted(set(table["method"]) - set(usable["method"]))
    add_note(figure, [f"No score for: {', '.join(lost)}." if lost else ""])
    return figure


@styled
def loss_against_compute(metrics: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Loss against compute, a line a model: the validation loss, or of a model without one the training loss."""
    title = title_of("loss_against_compute")
    series = final_losses(metrics)
    curves = with_compute(series, models)
    curves = curves[curves["compute"] > 0]
    if finite(curves).empty:
        unknown = not finite(series).empty
        return missing_figure(title, "no tokens_per_step is known" if unknown else "no loss after step 0")
    appearances = model_appearances(models)
    figure = new_figure(4.4, title)
    axes = figure.subplots()
    drawn, left_out = [], 0
    for model, look in in_order(curves["model"], appearances):
        rows = curves[curves["model"] == model].sort_values("compute")
        usable = finite(rows)
        left_out += len(rows) - len(usable)
        axes.plot(
            usable["compute"], usable["value"], color=look.color, linestyle=look.linestyle, gid=mark_of(model)
        )
        draw_band(axes, usable["compute"], usable, look.color)
        drawn.append(model)
    axes.set(xscale="log", yscale="log", ylabel="loss (nats per token)", xlabel=COMPUTE_LABEL)
    plain_log_ticks(axes.yaxis)
    model_legend(figure, drawn, {name: replace(look, marker="") for name, look in appearances.items()})
    by_training = set(drawn) & set(series.loc[series["is_training_loss"], "model"])
    note = "Training loss: no validation loss was measured." if by_training == set(drawn) else ""
    if by_training and not note:
        note = f"Training loss of {len(by_training)} models that have no validation loss."
    add_note(figure, [note, left_out_note(left_out)])
    return figure


def final_losses(metrics: pd.DataFrame) -> pd.DataFrame:
    """The rows (model, step, value, is_training_loss) of what is forecast: the validation loss, else the training loss."""
    validation = metric_series(metrics, VALIDATION_LOSS).assign(is_training_loss=False)
    training = metric_series(metrics, TRAINING_LOSS).assign(is_training_loss=True)
    return pd.concat([validation, training[~training["model"].isin(validation["model"])]])


def with_compute(series: pd.DataFrame, models: pd.DataFrame) -> pd.DataFrame:
    """A column `compute` beside (model, step, value): C = 6 N D in FLOP, D = tokens seen up to the step."""
    joined = series.merge(models[["model", "n_parameters", "tokens_per_step"]], on="model")
    compute = 6.0 * joined["n_parameters"] * joined["tokens_per_step"] * joined["step"]
    joined = joined.assign(compute=compute)
    return joined[[name for name in ("model", "step", "compute", "value", "low", "high") if name in joined]]


HIGHLIGHTED = (
    ("weights", "h0_total"),
    ("weights", WEIGHT_NORM.feature),
    ("weights", NEURAL_PERSISTENCE.feature),
)
"""Source and feature of the early-stopping rules that are named; the others are drawn faintly."""


@styled
def early_stopping(early_stopping_summary: pd.DataFrame) -> Figure:
    """Steps saved against loss given up by patience on each feature, relative to patience on the validation loss."""
    title = title_of("early_stopping")
    table = early_stopping_summary[early_stopping_summary["layer"] == ALL_LAYERS]
    table = finite(table, ["steps_saved", "loss_given_up"])
    if table.empty:
        return missing_figure(title, "no early-stopping study was made")
    patience = sorted(table["patience"].unique())
    figure = new_figure(3.9, title)
    panels = figure.subplots(1, len(patience), sharex=True, sharey=True, squeeze=False)[0]
    keys: dict[str, Line2D] = {}
    for axes, letter, wait in zip(panels, "abcdefgh", patience, strict=False):
        axes.set_title(f"{letter}  Patience {wait} checkpoints")
        _trade_off(axes, table[table["patience"] == wait], keys)
        axes.set_xlabel("steps saved (optimiser updates)")
    panels[0].set_ylabel("loss given up (nats per token)")
    others = mark_key("other\nfeatures", marker=".", color="#b5b5b5")
    reference = mark_key("validation\nloss", marker="+", markersize=9, color=INK)
    key_legend(figure, [*keys.values(), others, reference], "patience on")
    add_note(figure, ["Means over models; bars are 95% intervals."])
    return figure


def _trade_off(axes: Axes, rows: pd.DataFrame, keys: dict[str, Line2D]) -> None:
    axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    axes.plot(0, 0, "+", markersize=9, color=INK)
    axes.plot(rows["steps_saved"], rows["loss_given_up"], ".", color="#b5b5b5")
    for index, (source, feature) in enumerate(HIGHLIGHTED):
        own = rows[(rows["source"] == source) & (rows["feature"] == feature)]
        if own.empty:
            continue
        look = SEVERAL_LOOKS[index]
        x, y = own["steps_saved"], own["loss_given_up"]
        axes.hlines(y, own["steps_saved_low"], own["steps_saved_high"], color=look["color"], linewidth=1.2)
        axes.vlines(
            x, own["loss_given_up_low"], own["loss_given_up_high"], color=look["color"], linewidth=1.2
        )
        axes.plot(x, y, linestyle="", markersize=6, **look)
        name = feature_name(feature, source)
        keys[name] = mark_key(name.replace(" persistence", "\npersistence"), **look)
