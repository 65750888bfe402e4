"""Small multiples over training: figures that the gallery describes as data, and their shared parts."""

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from toposcale.features.names import feature_name, sentence
from toposcale.figures import panels
from toposcale.figures.gallery import FIGURES


def grid(name: str, features: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw a figure of the gallery whose panels each show a feature of the whole model over training."""
    entry = FIGURES[name]
    series = [panels.labelled({"features": features}, panel.source, panel.name) for panel in entry.panels]
    if all(panels.finite(rows).empty for rows, _ in series):
        labels = dict.fromkeys(" ".join(label.split()) for _, label in series)
        return panels.missing_figure(f"no values of: {', '.join(labels)}")
    if all(rows["step"].nunique() < 2 for rows, _ in series):
        return panels.missing_figure("at least two checkpoints are needed")
    figure, axes_of = panels.new_grid(len(series), entry.columns)
    line_panels(figure, models, [(axes, *of) for axes, of in zip(axes_of, series, strict=True)])
    titles = [panel.title or sentence(feature_name(panel.name, panel.source)) for panel in entry.panels]
    panels.lettered(axes_of, titles)
    return figure


def line_panels(figure: Figure, models: pd.DataFrame, series: Iterable[tuple[Axes, pd.DataFrame, str]]) -> None:
    """Draw panels of one quantity over training; `series`: axes, rows (model, step, value), and axis label."""
    drawn: set[str] = set()
    left_out = 0
    for axes, rows, label in series:
        names, missing = panels.draw_lines(axes, rows, models)
        drawn.update(names)
        left_out += missing
        if not names:
            panels.say_missing(axes, f"no values of: {label}")
            continue
        axes.set_ylabel(label)
        if label.endswith("(count)"):
            axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
        panels.step_axis(axes, rows["step"])
    panels.model_legend(figure, drawn, models)
    panels.add_note(figure, [panels.left_out_note(left_out)])
