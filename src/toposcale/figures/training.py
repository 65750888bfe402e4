"""Figures over training: the overview, the features of the embeddings, and the loss curves."""

from collections.abc import Iterable, Sequence
from string import ascii_lowercase

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from toposcale.analysis.controls import NOTHING
from toposcale.analysis.series import all_in_nats, whole_model
from toposcale.features.feature import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.features.names import feature_name, sentence
from toposcale.features.registry import lookup
from toposcale.figures import panels
from toposcale.figures.style import MUTED
from toposcale.forecasting.runs.metrics import LOSS_UNIT, TRAINING_LOSS, VALIDATION_LOSS, metric_name
from toposcale.io.schemas import METRIC_SOURCE

EMBEDDINGS = "embeddings"
DRAWN_OF_EMBEDDINGS = (
    *("h0_total", "h0_max", "h0_entropy", "h1_total", "h1_max", "h1_entropy"),
    *("effective_rank", "participation_ratio", "eigenspectrum_decay"),
)


def overview(
    metrics: pd.DataFrame,
    features: pd.DataFrame,
    correlations: pd.DataFrame,
    models: pd.DataFrame,
    *,
    tasks: Sequence[str] = (),
) -> Figure:
    """Draw the loss, features and norm of the weights, and the correlations of these with the loss, as far as known."""
    metric_drawn = panels.chosen_metric(metrics["metric"])
    metric = panels.chosen_metric(correlations["metric"], tasks)
    titles = {
        (METRIC_SOURCE, metric_drawn): metric_name(metric_drawn).capitalize(),
        ("weights", NEURAL_PERSISTENCE.feature): "Neural persistence, mean over layers",
        (WEIGHT_NORM.source, WEIGHT_NORM.feature): "Weight norm",
        ("weights", "h0_total"): "H₀ total persistence, sum over layers",
        ("weights", "h0_total_scaled"): "H₀ total persistence, scale-free",
    }
    tables = {"metrics": metrics, "features": features, "models": models}
    series = {title: panels.labelled(tables, *key) for key, title in titles.items()}
    series = {title: one for title, one in series.items() if len(panels.finite(one.rows))}
    of_metric = whole_model(correlations[(correlations["metric"] == metric) & (correlations["control"] == NOTHING)])
    compared = of_metric[(of_metric["source"] == "weights") & of_metric["feature"].isin([*panels.COMPARED])]
    compared = panels.finite(compared, ["spearman"])
    if not series:
        return panels.missing_figure("no features of the whole model")
    if max(one.rows["step"].nunique() for one in series.values()) < 2:
        return panels.missing_figure("at least two checkpoints are needed")
    figure, axes_of = panels.new_grid(len(series) + (len(compared) > 0), 2, row_height=2.4)
    panels.lettered(axes_of, [*series, f"Correlation with {metric_name(metric)}"])
    _line_panels(figure, models, axes_of[: len(series)], series.values())
    if len(compared):
        present = [name for name, _ in panels.in_order(correlations["model"], models)]
        keys = _correlation_panel(axes_of[-1], compared, present)
        panels.key_legend(figure, keys, f"in panel {ascii_lowercase[len(series)]}")
    return figure


def _line_panels(
    figure: Figure, models: pd.DataFrame, axes_of: Iterable[Axes], series: Iterable[panels.LabelledSeries]
) -> None:
    """Draw panels of one quantity over training."""
    drawn: set[str] = set()
    left_out = 0
    for axes, (rows, label, unit) in zip(axes_of, series, strict=True):
        names, missing = panels.draw_lines(axes, rows, models)
        drawn.update(names)
        left_out += missing
        if not names:
            panels.say_missing(axes, f"no values of: {label}")
            continue
        axes.set_ylabel(label)
        if unit == "count":
            axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
        panels.step_axis(axes, rows["step"])
    panels.model_legend(figure, drawn, models)
    panels.add_note(figure, [panels.left_out_note(left_out)])


def _correlation_panel(axes: Axes, rows: pd.DataFrame, models: Sequence[str]) -> list[Line2D]:
    """Draw the Spearman correlation of each compared feature with the loss, by model; return the legend's entries."""
    position = {model: index for index, model in enumerate(reversed(models))}
    keys: list[Line2D] = []
    for index, (feature, look) in enumerate(panels.COMPARED.items()):
        chosen = rows[(rows["feature"] == feature) & rows["model"].isin(position)]
        if chosen.empty:
            continue
        heights = chosen["model"].map(position).to_numpy() + 0.22 * (1 - index)
        ends = chosen["spearman_block_low"], chosen["spearman_block_high"]
        panels.draw_intervals(axes, heights, chosen["spearman"], *ends, **look)
        title = lookup(feature, "weights").title.replace(" persistence", "\npersistence")
        keys.append(panels.mark_key(title, **look))
    panels.name_rows(axes, list(position))
    panels.correlation_axis(axes, "95% block bootstrap")
    return keys


def embeddings_over_training(features: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw features of the embeddings over training, a panel each."""
    series = [panels.labelled({"features": features}, EMBEDDINGS, name) for name in DRAWN_OF_EMBEDDINGS]
    if all(panels.finite(each.rows).empty for each in series):
        labels = dict.fromkeys(" ".join(each.label.split()) for each in series)
        return panels.missing_figure(f"no values of: {', '.join(labels)}")
    if all(each.rows["step"].nunique() < 2 for each in series):
        return panels.missing_figure("at least two checkpoints are needed")
    figure, axes_of = panels.new_grid(len(series), 3)
    _line_panels(figure, models, axes_of, series)
    panels.lettered(axes_of, [sentence(feature_name(name, EMBEDDINGS)) for name in DRAWN_OF_EMBEDDINGS])
    return figure


def loss_curves(training: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw the training loss (running median), the validation loss on it, and beneath the learning rate if it is known.

    Without a log the training loss is that of the checkpoints.
    """
    validation = panels.metric_series(metrics, VALIDATION_LOSS)
    if training.empty:
        saved = panels.metric_series(metrics, TRAINING_LOSS).rename(columns={"value": "loss"})
        training = saved[["model", "step", "loss"]].assign(learning_rate=np.nan)
    if training.empty and validation.empty:
        return panels.missing_figure("no loss is known")
    rates = panels.finite(training, ["learning_rate"])
    figure = panels.new_figure(4.2 if rates.empty else 5.6)
    upper = figure.add_subplot() if rates.empty else _over_learning_rate(figure, training)
    smoothed, window = smooth(training)
    drawn, left_out = panels.draw_lines(upper, smoothed, models, marker="")
    markers = {"linestyle": "", "markerfacecolor": "white", "markevery": None}
    points, points_left_out = panels.draw_lines(upper, validation, models, **markers)
    upper.set_ylabel(f"loss ({LOSS_UNIT})" if all_in_nats(models) else "loss")
    if not (training["loss"] <= 0).any() and not (validation["value"] <= 0).any():
        upper.set_yscale("log")
        panels.plain_log_ticks(upper.yaxis)
    panels.step_axis(figure.axes[-1], validation["step"] if points else training["step"])
    training_label = "training" if window == 1 else f"training, median\nof {window} steps"
    keys = [
        *([Line2D([], [], color=MUTED, label=training_label)] if drawn else []),
        *([panels.mark_key("validation", color=MUTED, marker="o", markerfacecolor="white")] if points else []),
    ]
    panels.model_legend(figure, [*drawn, *points], models, keys)
    panels.add_note(figure, [panels.left_out_note(left_out + points_left_out)])
    return figure


def smooth(training: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return the centred running median over a hundredth of the steps, and its window; non-finite values stay."""
    longest = training.groupby("model").size().max() if len(training) else 1
    window = max(1, int(longest) // 100) // 2 * 2 + 1
    rows = training.sort_values(["model", "step"]).reset_index(drop=True)
    rolling = rows.groupby("model")["loss"].rolling(window, center=True, min_periods=1)
    median = rolling.median().droplevel("model") if len(rows) else rows["loss"]
    return rows[["model", "step"]].assign(value=median.where(np.isfinite(rows["loss"]), rows["loss"])), window


def _over_learning_rate(figure: Figure, training: pd.DataFrame) -> Axes:
    """Draw the learning rate, one line for each different schedule, and return the panel above it."""
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    logs = training.sort_values("step").groupby("model")[["step", "learning_rate"]]
    for schedule in {rows.to_numpy(dtype=float).tobytes(): rows for _, rows in logs}.values():
        lower.plot(schedule["step"], schedule["learning_rate"], color=MUTED)
    lower.set(ylim=(0, None), ylabel="learning rate\n(per step)")
    return upper
