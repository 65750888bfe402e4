"""Figures of the forecasts and of the decision to train on or to scale up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from toposcale.features.names import COMPUTE_LABEL, VALIDATION_LOSS, feature_name, metric_label
from toposcale.features.registry import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.figures import title_of
from toposcale.figures.panels import (
    add_note,
    draw_intervals,
    finite,
    in_order,
    key_legend,
    left_out_note,
    metric_series,
    missing_figure,
    model_legend,
    new_figure,
    plain_log_ticks,
    say_missing,
)
from toposcale.figures.style import (
    INK,
    MUTED,
    SEVERAL_COLOURS,
    SEVERAL_MARKERS,
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
            **_fraction_look(index),
            label=f"{fraction:.0%}",
        )
    axes.set_yticks(range(len(order)), [method.replace("_", " ") for method in order])
    axes.set_xscale("log")
    plain_log_ticks(axes.xaxis)
    axes.set_xlabel("mean absolute error over models (nats per token), with 95% interval")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside right upper", title="training read", alignment="left")
    add_note(figure, [_unscored(table, usable)])
    return figure


def _unscored(table: pd.DataFrame, usable: pd.DataFrame) -> str:
    lost = sorted(set(table["method"]) - set(usable["method"]))
    return f"No score for: {', '.join(lost)}." if lost else ""


@styled
def loss_against_compute(
    metrics: pd.DataFrame, decisions: pd.DataFrame, models: pd.DataFrame, *, policy: str = "power_law"
) -> Figure:
    """The family's loss against compute with the true switch points, and beneath where they were forecast."""
    title = title_of("loss_against_compute")
    curves = with_compute(metric_series(metrics, VALIDATION_LOSS), models)
    curves = curves[curves["compute"] > 0]
    if finite(curves).empty:
        return missing_figure(title, "no validation loss after step 0")
    appearances = model_appearances(models)
    chosen = decisions[decisions["policy"] == policy]
    judged = [name for name, _ in in_order(chosen["model"], appearances)]
    figure = new_figure(4.4 + 0.38 * max(len(judged), 2), title)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.4, 0.5 + 0.38 * max(len(judged), 2)])
    drawn, left_out = [], 0
    for model, look in in_order(curves["model"], appearances):
        rows = curves[curves["model"] == model].sort_values("compute")
        usable = finite(rows)
        left_out += len(rows) - len(usable)
        upper.plot(
            usable["compute"], usable["value"], color=look.color, linestyle=look.linestyle, gid=mark_of(model)
        )
        drawn.append(model)
        _true_switch(upper, usable, chosen[chosen["model"] == model], look.color)
    upper.set(xscale="log", yscale="log", ylabel=metric_label(VALIDATION_LOSS))
    plain_log_ticks(upper.yaxis)
    _forecast_rows(lower, chosen, judged, policy)
    lower.set_xlabel(COMPUTE_LABEL)
    model_legend(figure, drawn, {name: replace(look, marker="") for name, look in appearances.items()})
    fractions = sorted(chosen["fraction"].unique())
    key_legend(
        figure, [_TRUE_KEY, *(_fraction_key(i, f) for i, f in enumerate(fractions)), _NO_SWITCH_KEY], "switch"
    )
    add_note(figure, [left_out_note(left_out)])
    return figure


def with_compute(series: pd.DataFrame, models: pd.DataFrame) -> pd.DataFrame:
    """A column `compute` beside (model, step, value): C = 6 N D in FLOP, D = tokens seen up to the step."""
    joined = series.merge(models[["model", "n_parameters", "tokens_per_step"]], on="model")
    compute = 6.0 * joined["n_parameters"] * joined["tokens_per_step"] * joined["step"]
    return joined.assign(compute=compute)[["model", "step", "compute", "value"]]


_RING: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 10, "fillstyle": "none", "color": INK}
_TRUE_KEY = Line2D([], [], label="true", **_RING)
_NO_SWITCH_KEY = Line2D(
    [], [], linestyle="", marker=">", markersize=7, color=MUTED, fillstyle="none", label="none: train on"
)


def _fraction_look(index: int) -> dict[str, Any]:
    return {
        "color": _FRACTION_COLOURS[min(index, len(_FRACTION_COLOURS) - 1)],
        "marker": _FRACTION_MARKERS[index % len(_FRACTION_MARKERS)],
    }


def _fraction_key(index: int, fraction: float) -> Line2D:
    return Line2D([], [], linestyle="", label=f"forecast at {fraction:.0%}", **_fraction_look(index))


def _true_switch(axes: Axes, curve: pd.DataFrame, decisions: pd.DataFrame, colour: str) -> None:
    """A ring on a model's own curve where the next size crosses below it."""
    switches = decisions["true_switch"].dropna().unique()
    for switch in switches[np.isfinite(switches)]:
        loss = np.interp(np.log(switch), np.log(curve["compute"]), curve["value"])
        axes.plot(switch, loss, **{**_RING, "color": colour})


def _forecast_rows(axes: Axes, decisions: pd.DataFrame, models: list[str], policy: str) -> None:
    """One row per model: the true switch as a ring, the forecast at each fraction with its interval."""
    axes.set_title(f"Switch points forecast by: {policy.replace('_', ' ')}")
    if not models:
        say_missing(axes, f"no decisions of the policy {policy.replace('_', ' ')}")
        return
    place = {model: row for row, model in enumerate(reversed(models))}
    fractions = sorted(decisions["fraction"].unique())
    offsets = np.linspace(0.22, -0.22, len(fractions)) if len(fractions) > 1 else np.zeros(1)
    for index, (fraction, offset) in enumerate(zip(fractions, offsets, strict=True)):
        rows = decisions[decisions["fraction"] == fraction]
        heights = rows["model"].map(place).to_numpy() + offset
        found = np.isfinite(rows["forecast_switch"].to_numpy(dtype=float))
        none = np.isposinf(rows["forecast_switch"].to_numpy(dtype=float))
        low, high = (rows[c].clip(upper=rows["budget"]) for c in ("forecast_low", "forecast_high"))
        draw_intervals(
            axes,
            heights[found],
            rows["forecast_switch"][found],
            low[found],
            high[found],
            **_fraction_look(index),
        )
        axes.plot(
            rows["budget"][none], heights[none], ">", fillstyle="none", color=_fraction_look(index)["color"]
        )
    true = decisions.drop_duplicates("model")
    true = true[np.isfinite(true["true_switch"].to_numpy(dtype=float))]
    axes.plot(true["true_switch"], true["model"].map(place), **_RING)
    axes.set_yticks(list(place.values()), list(place))
    axes.set_ylim(-0.6, len(place) - 0.4)
    axes.grid(axis="y", visible=False)


HIGHLIGHTED = (("weights", "h0_total"), ("weights", WEIGHT_NORM), ("weights", NEURAL_PERSISTENCE))
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
    others = Line2D([], [], linestyle="", marker=".", color="#b5b5b5", label="other\nfeatures")
    reference = Line2D([], [], linestyle="", marker="+", markersize=9, color=INK, label="validation\nloss")
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
        look: dict[str, Any] = {"color": SEVERAL_COLOURS[index], "marker": SEVERAL_MARKERS[index]}
        x, y = own["steps_saved"], own["loss_given_up"]
        axes.hlines(y, own["steps_saved_low"], own["steps_saved_high"], color=look["color"], linewidth=1.2)
        axes.vlines(
            x, own["loss_given_up_low"], own["loss_given_up_high"], color=look["color"], linewidth=1.2
        )
        axes.plot(x, y, linestyle="", markersize=6, **look)
        name = feature_name(feature, source)
        keys[name] = Line2D([], [], linestyle="", label=name.replace(" persistence", "\npersistence"), **look)
