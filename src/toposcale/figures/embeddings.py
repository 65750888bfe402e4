"""Figures of the embeddings: against perplexity, and how fast their diagrams move; see also the gallery's grids."""

import pandas as pd
from matplotlib.figure import Figure

from toposcale.features.names import PERPLEXITY, feature_label, feature_name, metric_label, sentence
from toposcale.features.registry import lookup
from toposcale.figures import grids, panels

SOURCE = "embeddings"


def topology_against_perplexity(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw each model's path through (perplexity, feature), checkpoint by checkpoint, with a ring at the last one."""
    perplexity = panels.metric_series(metrics, PERPLEXITY).rename(columns={"value": "perplexity"})
    chosen = ("h0_total", "h1_total", "h0_total_scaled", "effective_rank")
    series = [
        panels.feature_series(features, feature, SOURCE).merge(perplexity, on=["model", "step"]) for feature in chosen
    ]
    usable = [panels.finite(rows, ["value", "perplexity"]) for rows in series]
    if all(rows.empty for rows in usable):
        return panels.missing_figure("no checkpoint has both a perplexity and embedding features")
    figure, axes_of = panels.new_grid(len(chosen), 2)
    panels.lettered(axes_of, [sentence(feature_name(feature, SOURCE)) for feature in chosen])
    for axes, feature, rows in zip(axes_of, chosen, usable, strict=True):
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


def wasserstein_rate(features: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw the Wasserstein-1 distance from the previous checkpoint over the number of steps between."""
    series = [
        (
            rate_of_change(features, f"h{dimension}_wasserstein_1", source=SOURCE),
            f"Wasserstein-1 distance\nper step ({lookup(f'h{dimension}_total', SOURCE).unit} per step)",
        )
        for dimension in (0, 1)
    ]
    figure = grids.line_grid(models, series, ("H₀", "H₁"), 2)
    for axes in figure.axes:
        if axes.lines:
            axes.set_yscale("log", nonpositive="mask")
            panels.plain_log_ticks(axes.yaxis)
    return figure


def rate_of_change(features: pd.DataFrame, distance: str, *, source: str) -> pd.DataFrame:
    """Return rows (model, step, value): distance from the previous checkpoint over the number of steps between."""
    series = panels.feature_series(features, distance, source)
    steps = features.loc[features["source"] == source, ["model", "step"]].drop_duplicates()
    steps = steps.sort_values(["model", "step"])
    steps = steps.assign(before=steps.groupby("model")["step"].shift())
    series = series.merge(steps, on=["model", "step"]).dropna(subset=["before"])
    rate = series["value"] / (series["step"] - series["before"])
    return series.assign(value=rate)[["model", "step", "value"]]
