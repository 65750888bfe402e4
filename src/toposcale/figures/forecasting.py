"""Figures of the forecasts and of the decision to train on or to scale up."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from toposcale.analysis.series import whole_model
from toposcale.features.names import COMPUTE_LABEL, LOSS_LABEL, TRAINING_LOSS, VALIDATION_LOSS, feature_name
from toposcale.features.registry import LOSS_UNIT, NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.figures import panels
from toposcale.figures.gallery import title_of
from toposcale.figures.style import INK, MUTED, SEVERAL_LOOKS, mark_of, model_appearances, styled
from toposcale.forecasting.decision import flop

_FRACTION_MARKERS = ("o", "s", "^", "D")
_FRACTION_COLOURS = ("#e08e0b", "#b0347a", "#0b2f6b")  # light to dark as more of the training is read


@styled
def forecast_comparison(forecast_evaluation: pd.DataFrame) -> Figure:
    """Mean absolute error of each method at each fraction of training, with its interval; best on top."""
    title = title_of("forecast_comparison")
    usable = panels.finite(forecast_evaluation, ["mae"])
    if usable.empty:
        return panels.missing_figure(title, "no forecast could be scored")
    fractions = sorted(usable["fraction"].unique())
    order = usable.groupby("method")["mae"].mean().sort_values(kind="stable", ascending=False).index
    position = {method: place for place, method in enumerate(order)}
    figure = panels.new_figure(1.6 + 0.42 * len(order), title)
    axes = figure.subplots()
    offsets = np.linspace(0.24, -0.24, len(fractions)) if len(fractions) > 1 else np.zeros(1)
    for index, (fraction, offset) in enumerate(zip(fractions, offsets, strict=True)):
        rows = usable[usable["fraction"] == fraction]
        look = {
            "color": _FRACTION_COLOURS[min(index, len(_FRACTION_COLOURS) - 1)],
            "marker": _FRACTION_MARKERS[index % len(_FRACTION_MARKERS)],
        }
        heights, ends = rows["method"].map(position).to_numpy() + offset, (rows["mae_low"], rows["mae_high"])
        panels.draw_intervals(axes, heights, rows["mae"], *ends, label=f"{fraction:.0%}", **look)
    axes.set_yticks(range(len(order)), [method.replace("_", " ") for method in order])
    axes.set_xscale("log")
    panels.plain_log_ticks(axes.xaxis)
    axes.set_xlabel(f"mean absolute error over models ({LOSS_UNIT}), with 95% interval")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside right upper", title="training read", alignment="left")
    lost = sorted(set(forecast_evaluation["method"]) - set(usable["method"]))
    panels.add_note(figure, [f"No score for: {', '.join(lost)}." if lost else ""])
    return figure


@styled
def loss_against_compute(metrics: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Loss against compute, a line a model: the validation loss, or of a model without one the training loss."""
    title = title_of("loss_against_compute")
    losses = final_losses(metrics)
    curves = with_compute(losses, models)
    curves = curves[curves["compute"] > 0]
    usable = panels.finite(curves)
    if usable.empty:
        unknown = not panels.finite(losses).empty
        return panels.missing_figure(title, "no tokens_per_step is known" if unknown else "no loss after step 0")
    appearances = model_appearances(models)
    figure = panels.new_figure(4.4, title)
    axes = figure.subplots()
    drawn = panels.in_order(curves["model"], appearances)
    for model, look in drawn:
        rows = usable[usable["model"] == model].sort_values("compute")
        axes.plot(rows["compute"], rows["value"], **(look.line | {"marker": ""}), gid=mark_of(model))
        panels.draw_band(axes, rows["compute"], rows, look.color)
    axes.set(xscale="log", yscale="log", ylabel=LOSS_LABEL, xlabel=COMPUTE_LABEL)
    panels.plain_log_ticks(axes.yaxis)
    names = {model for model, _ in drawn}
    panels.model_legend(figure, names, appearances, marker="")
    by_training = names & set(losses.loc[losses["is_training_loss"], "model"])
    note = "Training loss: no validation loss was measured." if by_training == names else ""
    if by_training and not note:
        note = f"Training loss of {len(by_training)} models that have no validation loss."
    panels.add_note(figure, [note, panels.left_out_note(len(curves) - len(usable))])
    return figure


def final_losses(metrics: pd.DataFrame) -> pd.DataFrame:
    """The rows (model, step, value, is_training_loss) of what is forecast: the validation loss, else the training loss."""
    validation = panels.metric_series(metrics, VALIDATION_LOSS).assign(is_training_loss=False)
    training = panels.metric_series(metrics, TRAINING_LOSS).assign(is_training_loss=True)
    return pd.concat([validation, training[~training["model"].isin(validation["model"])]])


def with_compute(series: pd.DataFrame, models: pd.DataFrame) -> pd.DataFrame:
    """A column `compute` beside (model, step, value): C = 6 N D in FLOP, D = tokens seen up to the step."""
    joined = series.merge(models[["model", "n_parameters", "tokens_per_step"]], on="model")
    compute = flop(joined["n_parameters"], joined["tokens_per_step"] * joined["step"])
    joined = joined.assign(compute=compute)
    return joined[[name for name in ("model", "step", "compute", "value", "low", "high") if name in joined]]


HIGHLIGHTED = ("h0_total", WEIGHT_NORM.feature, NEURAL_PERSISTENCE.feature)
"""Features of the weights whose early-stopping rules are named; the others are drawn faintly."""


@styled
def early_stopping(early_stopping_summary: pd.DataFrame) -> Figure:
    """Steps saved against loss given up by patience on each feature, relative to patience on the validation loss."""
    title = title_of("early_stopping")
    table = panels.finite(whole_model(early_stopping_summary), ["steps_saved", "loss_given_up"])
    if table.empty:
        return panels.missing_figure(title, "no early-stopping study was made")
    patience = sorted(table["patience"].unique())
    count = len(patience)
    figure, axes_of = panels.new_grid(title, count, count, row_height=3.1, sharex=True, sharey=True)
    panels.lettered(axes_of, [f"Patience {wait} checkpoints" for wait in patience])
    keys: dict[str, Line2D] = {}
    for axes, wait in zip(axes_of, patience, strict=True):
        _trade_off(axes, table[table["patience"] == wait], keys)
        axes.set_xlabel("steps saved (optimiser updates)")
    axes_of[0].set_ylabel(f"loss given up ({LOSS_UNIT})")
    others = panels.mark_key("other\nfeatures", marker=".", color="#b5b5b5")
    reference = panels.mark_key("validation\nloss", marker="+", markersize=9, color=INK)
    panels.key_legend(figure, [*keys.values(), others, reference], "patience on")
    panels.add_note(figure, ["Means over models; bars are 95% intervals."])
    return figure


def _trade_off(axes: Axes, rows: pd.DataFrame, keys: dict[str, Line2D]) -> None:
    axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    axes.plot(0, 0, "+", markersize=9, color=INK)
    axes.plot(rows["steps_saved"], rows["loss_given_up"], ".", color="#b5b5b5")
    for look, feature in zip(SEVERAL_LOOKS, HIGHLIGHTED, strict=False):
        rule = rows[(rows["source"] == "weights") & (rows["feature"] == feature)]
        if rule.empty:
            continue
        x, y = rule["steps_saved"], rule["loss_given_up"]
        axes.hlines(y, rule["steps_saved_low"], rule["steps_saved_high"], color=look["color"], linewidth=1.2)
        axes.vlines(x, rule["loss_given_up_low"], rule["loss_given_up_high"], color=look["color"], linewidth=1.2)
        axes.plot(x, y, linestyle="", markersize=6, **look)
        name = feature_name(feature)
        keys[name] = panels.mark_key(name.replace(" persistence", "\npersistence"), **look)
