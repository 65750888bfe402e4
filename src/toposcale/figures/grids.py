"""Small multiples: features of the embeddings over training, and against the perplexity."""

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from toposcale.features.names import feature_label, feature_name, metric_label, sentence
from toposcale.figures import panels
from toposcale.forecasting.runs.metrics import PERPLEXITY

SOURCE = "embeddings"
OVER_TRAINING = (
    *("h0_total", "h0_max", "h0_entropy", "h1_total", "h1_max", "h1_entropy"),
    *("effective_rank", "participation_ratio", "eigenspectrum_decay"),
)
AGAINST_PERPLEXITY = ("h0_total", "h1_total", "h0_total_scaled", "effective_rank")


def embeddings_over_training(features: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw features of the embeddings over training, a panel each."""
    series = [panels.labelled({"features": features}, SOURCE, name) for name in OVER_TRAINING]
    if all(panels.finite(each.rows).empty for each in series):
        labels = dict.fromkeys(" ".join(each.label.split()) for each in series)
        return panels.missing_figure(f"no values of: {', '.join(labels)}")
    if all(each.rows["step"].nunique() < 2 for each in series):
        return panels.missing_figure("at least two checkpoints are needed")
    figure, axes_of = panels.new_grid(len(series), 3)
    line_panels(figure, models, axes_of, series)
    panels.lettered(axes_of, [sentence(feature_name(name, SOURCE)) for name in OVER_TRAINING])
    return figure


def line_panels(
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


def topology_against_perplexity(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw each model's path through (perplexity, feature), checkpoint by checkpoint, with a ring at the last one."""
    perplexity = panels.metric_series(metrics, PERPLEXITY).rename(columns={"value": "perplexity"})
    series = [
        panels.feature_series(features, feature, SOURCE).merge(perplexity, on=["model", "step"])
        for feature in AGAINST_PERPLEXITY
    ]
    usable = [panels.finite(rows, ["value", "perplexity"]) for rows in series]
    if all(rows.empty for rows in usable):
        return panels.missing_figure("no checkpoint has both a perplexity and embedding features")
    figure, axes_of = panels.new_grid(len(AGAINST_PERPLEXITY), 2)
    panels.lettered(axes_of, [sentence(feature_name(feature, SOURCE)) for feature in AGAINST_PERPLEXITY])
    for axes, feature, rows in zip(axes_of, AGAINST_PERPLEXITY, usable, strict=True):
        if rows.empty:
            panels.say_missing(axes, f"no values of: {feature_name(feature, SOURCE)}")
            continue
        panels.draw_paths(axes, rows, "perplexity", models, ring=11, linewidth=0.9, markersize=3.5)
        axes.set(xscale="log", xlabel=metric_label(PERPLEXITY), ylabel=feature_label(feature, SOURCE))
        panels.plain_log_ticks(axes.xaxis)
    panels.model_legend(figure, pd.concat(series)["model"], models)
    left_out = sum(map(len, series)) - sum(map(len, usable))
    panels.add_note(figure, ["A ring marks the last checkpoint.", panels.left_out_note(left_out)])
    return figure
