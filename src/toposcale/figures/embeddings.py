"""Figure of the embeddings against the perplexity; the others are grids of the gallery."""

import pandas as pd
from matplotlib.figure import Figure

from toposcale.features.names import PERPLEXITY, feature_label, feature_name, metric_label, sentence
from toposcale.figures import panels

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
