"""The figure that the two published experiments share: measures of landscapes against the condition."""

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from toposcale.features.registry import lookup
from toposcale.figures import panels
from toposcale.figures.style import INK, MUTED, styled
from toposcale.forecasting.runs.metrics import LOSS_UNIT


@styled
def measures_by_condition(rows: pd.DataFrame, names: Sequence[str], *, unit: str, title: str) -> Figure:
    """Measures against the condition: every value, and their mean and standard deviation.

    rows: a column `condition`, whose values stand in their order, and one for each of `names`. unit: that of the loss.
    """
    conditions = list(dict.fromkeys(rows["condition"]))
    figure, axes_of = panels.new_grid(len(names), min(3, len(names)), title=title)
    features = [lookup(name, "landscape") for name in names]
    panels.lettered(axes_of, ["\n".join(textwrap.wrap(feature.title, 34)) for feature in features], fontsize=9)
    for axes, feature, name in zip(axes_of, features, names, strict=True):
        for place, condition in enumerate(conditions):
            values = rows.loc[rows["condition"] == condition, name].dropna().to_numpy(dtype=float)
            several = len(values) > 1
            across = place + np.linspace(-0.15, 0.15, len(values)) if several else [place]
            axes.plot(across, values, "o", color=MUTED, markersize=3, alpha=0.6)
            spread = values.std(ddof=1) if several else 0.0
            axes.errorbar(place, values.mean(), spread, fmt="D", color=INK, markersize=4, capsize=3)
        positive = rows[name].dropna()
        if len(positive) and positive.min() > 0 and positive.max() / positive.min() > 100:
            axes.set_yscale("log")
        axes.set_xticks(range(len(conditions)), conditions, rotation=45 if len(conditions) > 4 else 0)
        label = feature.unit.replace(LOSS_UNIT, unit).replace("nats per squared", f"{unit} per squared")
        axes.set_ylabel(label or "value")
    return figure
