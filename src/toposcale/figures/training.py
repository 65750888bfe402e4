"""Figures of a training run: the four-panel overview, loss and perplexity curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from toposcale.analysis.controls import NOTHING
from toposcale.features.names import (
    PERPLEXITY,
    SPEARMAN_LABEL,
    VALIDATION_LOSS,
    feature_label,
    feature_name,
    metric_label,
    metric_name,
)
from toposcale.features.registry import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.figures.gallery import title_of
from toposcale.figures.panels import (
    add_note,
    chosen_metric,
    draw_intervals,
    draw_lines,
    feature_series,
    in_order,
    key_legend,
    left_out_note,
    line_panels,
    mark_key,
    metric_series,
    missing_figure,
    model_legend,
    new_figure,
    plain_log_ticks,
    say_missing,
    step_axis,
)
from toposcale.figures.style import MUTED, SEVERAL_LOOKS, model_appearances, styled
from toposcale.io.schemas import ALL_LAYERS

COMPARED = ("h0_total", WEIGHT_NORM.feature, NEURAL_PERSISTENCE.feature)
"""Features whose correlation with the loss the overview sets side by side."""


@styled
def overview(
    metrics: pd.DataFrame,
    features: pd.DataFrame,
    correlations: pd.DataFrame,
    models: pd.DataFrame,
    *,
    metric: str | None = None,
) -> Figure:
    """Loss, neural persistence, H0, and whether topology follows the loss more than the plain norm does."""
    figure = new_figure(5.6, title_of("overview"))
    first, second, third, last = figure.subplots(2, 2).flat
    shown = VALIDATION_LOSS if VALIDATION_LOSS in set(metrics["metric"]) else chosen_metric(metrics["metric"])
    losses, persistence, h0 = (
        metric_series(metrics, shown),
        feature_series(features, NEURAL_PERSISTENCE.feature),
        feature_series(features, "h0_total"),
    )
    line_panels(
        figure,
        models,
        [
            (first, losses, f"a  {metric_name(shown).capitalize()}", metric_label(shown)),
            (
                second,
                persistence,
                "b  Neural persistence, mean over layers",
                feature_label(NEURAL_PERSISTENCE.feature),
            ),
            (third, h0, "c  H₀ total persistence, sum over layers", feature_label("h0_total")),
        ],
    )
    present = [name for name, _ in in_order(correlations["model"], model_appearances(models))]
    metric = chosen_metric(correlations["metric"], metric)
    key_legend(figure, _correlation_panel(last, correlations, present, metric), "in panel d")
    return figure


def _correlation_panel(
    axes: Axes, correlations: pd.DataFrame, models: Sequence[str], metric: str
) -> list[Line2D]:
    """Spearman of each compared feature with the loss, model by model; returns the legend's keys."""
    axes.set_title(f"d  Correlation with {metric_name(metric)}")
    rows = correlations[
        (correlations["metric"] == metric)
        & (correlations["control"] == NOTHING)
        & (correlations["source"] == "weights")
        & (correlations["layer"] == ALL_LAYERS)
    ]
    position = {model: place for place, model in enumerate(reversed(models))}
    keys: list[Line2D] = []
    for index, feature in enumerate(COMPARED):
        chosen = rows[(rows["feature"] == feature) & rows["model"].isin(position)]
        chosen = chosen[np.isfinite(chosen["spearman"].to_numpy(dtype=float))]
        if chosen.empty:
            continue
        heights = chosen["model"].map(position).to_numpy() + 0.22 * (1 - index)
        look = SEVERAL_LOOKS[index]
        draw_intervals(
            axes,
            heights,
            chosen["spearman"],
            chosen["spearman_block_low"],
            chosen["spearman_block_high"],
            **look,
        )
        keys.append(mark_key(feature_name(feature).replace(" persistence", "\npersistence"), **look))
    if not keys:
        say_missing(axes, f"no correlations with {metric_name(metric)}")
        return keys
    axes.set_yticks(list(position.values()), list(position))
    axes.set_ylim(-0.6, len(position) - 0.4)
    axes.set_xlim(-1.05, 1.05)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"{SPEARMAN_LABEL}, 95% block bootstrap")
    return keys


@styled
def loss_curves(training: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Training loss (running median) with the validation points on it, and the learning rate beneath."""
    title = title_of("loss_curves")
    if training.empty and metric_series(metrics, VALIDATION_LOSS).empty:
        return missing_figure(title, "no training log and no validation loss")
    appearances = model_appearances(models)
    figure = new_figure(5.6, title)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    smoothed, window = smooth(training)
    drawn, left_out = draw_lines(upper, smoothed, appearances, marker="")
    validation = metric_series(metrics, VALIDATION_LOSS)
    points, points_left_out = draw_lines(
        upper, validation, appearances, linestyle="", markerfacecolor="white", markevery=None
    )
    upper.set_yscale("log")
    plain_log_ticks(upper.yaxis)
    upper.set_ylabel("loss (nats per token)")
    _learning_rate_panel(lower, training)
    step_axis(lower, validation["step"] if points else training["step"])
    keys = [
        Line2D([], [], color=MUTED, label=f"training, median\nof {window} steps"),
        mark_key("validation", color=MUTED, marker="o", markerfacecolor="white"),
    ]
    model_legend(figure, [*drawn, *points], appearances, keys)
    add_note(figure, [left_out_note(left_out + points_left_out)])
    return figure


def smooth(training: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Centred running median of the training loss over a hundredth of the steps; also the window's length.

    A value that is not finite stays what it is: a median would hide it.
    """
    longest = training.groupby("model").size().max() if len(training) else 1
    window = max(1, int(longest) // 100) // 2 * 2 + 1
    parts = []
    for _, rows in training.sort_values(["model", "step"]).groupby("model"):
        median = rows["loss"].rolling(window, center=True, min_periods=1).median()
        parts.append(
            rows[["model", "step"]].assign(value=median.where(np.isfinite(rows["loss"]), rows["loss"]))
        )
    if not parts:
        return pd.DataFrame({"model": [], "step": [], "value": []}), window
    return pd.concat(parts), window


def _learning_rate_panel(axes: Axes, training: pd.DataFrame) -> None:
    """The learning rate: one black line if all models have the same, else one for each different schedule."""
    schedules: list[tuple[np.ndarray, np.ndarray]] = []
    for _, rows in training.sort_values("step").groupby("model"):
        steps, rates = rows["step"].to_numpy(), rows["learning_rate"].to_numpy(dtype=float)
        if not any(np.array_equal(steps, s) and np.array_equal(rates, r) for s, r in schedules):
            schedules.append((steps, rates))
    if not schedules:
        say_missing(axes, "no training log: learning rate unknown")
        return
    for steps, rates in schedules:
        axes.plot(steps, rates, color=MUTED)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("learning rate\n(per step)")


@styled
def perplexity_curves(metrics: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Perplexity of the probe texts over training, on a logarithmic scale."""
    title = title_of("perplexity_curves")
    series = metric_series(metrics, PERPLEXITY)
    if not np.isfinite(series["value"].to_numpy(dtype=float)).any():
        return missing_figure(title, "no perplexity was measured")
    figure = new_figure(3.8, title)
    axes = figure.subplots()
    line_panels(figure, models, [(axes, series, "", metric_label(PERPLEXITY))])
    axes.set_yscale("log")
    plain_log_ticks(axes.yaxis)
    return figure
