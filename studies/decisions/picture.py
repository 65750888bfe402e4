"""The pictures of docs/decisions.md: the regret of each policy, group by group, and forecasts against measured ends."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from studies.decisions.forecasts import ALONE, JOINT
from toposcale.figures import panels
from toposcale.figures.style import styled
from toposcale.forecasting.runs.metrics import LOSS_UNIT

LOOKS = {
    "expected_regret": ("the advice", "o", "#b0347a"),
    "multi_power_law": ("multi-power law for the end", "s", "#0b2f6b"),
    "power_law": ("power law for the end", "D", "#3a7d44"),
    "always_continue": ("always continue", "^", "#e08e0b"),
    "next_size": ("always train the next size", "v", "#777777"),
}


@styled
def regrets(policies: pd.DataFrame) -> Figure:
    """Mean regret of each policy in each group of usual shapes, with 95% intervals over the sizes of the base runs."""
    usual = policies[policies["usual"].astype(bool)]
    groups = sorted(set(usual[["family", "shape", "setting"]].itertuples(index=False, name=None)))
    figure = panels.new_figure(1.4 + 0.62 * len(groups), "")
    axes = figure.subplots()
    for place, (policy, (words, marker, colour)) in enumerate(LOOKS.items()):
        rows = usual[usual["policy"] == policy].set_index(["family", "shape", "setting"]).reindex(groups)
        heights = [len(groups) - 1 - number + 0.28 - 0.14 * place for number in range(len(groups))]
        # On a linear scale up to 0.01 and a logarithmic one beyond it, 0 has a place.
        ends = rows["regret_low"].fillna(rows["regret"]), rows["regret_high"].fillna(rows["regret"])
        panels.draw_intervals(axes, heights, rows["regret"], *ends, label=words, color=colour, marker=marker)
    names = [f"{family}, {shape}\n{setting}" for family, shape, setting in groups]
    axes.set_yticks(range(len(groups)), names[::-1])
    axes.set_xscale("symlog", linthresh=0.01, linscale=1.0)
    axes.set_xlim(-0.0005, 0.7)
    ticks = [0, 0.003, 0.01, 0.03, 0.1, 0.3]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(f"mean regret ({LOSS_UNIT}), with 95% interval over the sizes of the base runs")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside upper center", ncols=3)
    return figure


MIN_DRAWN = 9
"""Forecasts of a family that have a panel."""

SHARE_COLOURS = {0.2: "#e08e0b", 0.3: "#3a7d44", 0.5: "#0b2f6b"}


@styled
def ends(forecasts: pd.DataFrame) -> Figure:
    """Forecasts of the joint law against the truth, a panel for each larger family, with their 95% intervals."""
    rows = forecasts[(forecasts["method"] == JOINT) & (forecasts["known"] == ALONE) & (forecasts["reason"] == "")]
    families = [(key, part) for key, part in rows.groupby(["source", "family"]) if len(part) >= MIN_DRAWN]
    n_rows = -(-len(families) // 3)
    figure = panels.new_figure(1.0 + 1.9 * n_rows, "")
    grid = figure.subplots(n_rows, 3, squeeze=False)
    for axes in grid.flat[len(families) :]:
        axes.set_visible(False)
    for axes, ((_, family), part) in zip(grid.flat, families, strict=False):
        for share, colour in SHARE_COLOURS.items():
            own = part[part["share"] == share]
            below, above = own["forecast"] - own["low"], own["high"] - own["forecast"]
            axes.errorbar(
                own["actual"],
                own["forecast"],
                [below, above],
                fmt="o",
                markersize=2.5,
                linewidth=0.6,
                color=colour,
                label=f"from {share:.0%}",
            )
        line = np.array([part["actual"].min(), part["actual"].max()])
        axes.plot(line, line, color="#777777", linewidth=0.8, zorder=3)
        outside = (part["actual"] < part["low"]) | (part["actual"] > part["high"])
        axes.set_title(f"{family}: {1 - outside.mean():.0%} of {len(part)}")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    figure.supxlabel(f"loss at the end ({LOSS_UNIT})")
    figure.supylabel(f"forecast, with 95% interval ({LOSS_UNIT})")
    return figure
