"""The picture of docs/decisions.md: what each policy gives up, group by group."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from toposcale.features.registry import LOSS_UNIT
from toposcale.figures import panels
from toposcale.figures.style import styled

LOOKS = {
    "expected_regret": ("the advice", "o", "#b0347a"),
    "multi_power_law": ("multi-power law for the end", "s", "#0b2f6b"),
    "power_law": ("power law for the end", "D", "#3a7d44"),
    "always_finish": ("always finish", "^", "#e08e0b"),
    "stop_now": ("always start the next size", "v", "#777777"),
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
