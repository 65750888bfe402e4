"""Landscapes side by side: a column for each condition, with its surface, merge tree and persistence diagram."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from toposcale.figures import landscape, panels
from toposcale.figures.style import INK, MUTED, styled
from toposcale.landscape.merge_tree import MergeTree

_DECADES = 2.0
"""Losses of one figure that span more are drawn by their logarithm."""


@styled
def compare_landscapes(conditions: Mapping[str, pd.DataFrame], *, unit: str, title: str) -> Figure:
    """A column for each condition: its surface (rows x, y, loss), the merge tree of it, and its persistence diagram.

    unit: that of the loss. Minima and saddles are marked on both; the trees stand on the surface's own scale of loss. The
    diagram has the pair of the least and the largest loss too, which closes it. Height is logarithmic where the losses
    span more than two decades.
    """
    grids = {name: landscape.loss_grid(rows) for name, rows in conditions.items()}
    logarithmic = _spans_decades([losses for *_, losses in grids.values()])
    figure = panels.new_figure(8.8, title, width=max(7.0, 3.1 * len(grids)))
    cells = figure.add_gridspec(3, len(grids), height_ratios=(1.3, 1, 1))
    for column, (name, surface) in enumerate(grids.items()):
        upper = figure.add_subplot(cells[0, column], projection="3d")
        middle, lower = (figure.add_subplot(cells[row, column]) for row in (1, 2))
        tree = landscape.draw_surface_and_tree(upper, middle, surface, unit=unit, logarithmic=logarithmic)
        upper.set_title(name, loc="left", fontweight="bold")
        middle.set_title(landscape.counts_in_words(tree))
        _draw_closed_diagram(lower, tree, unit=unit, logarithmic=logarithmic)
        lower.set_title(f"closed average {tree.average_persistence_closed:.3g}")
    left_out = f"Graph {landscape.GRAPH}; pairs of less than 1% of a surface's range are left out."
    panels.add_note(figure, [left_out, "The diamond is the pair of the least and the largest loss."])
    return figure


def _spans_decades(grids: Sequence[np.ndarray]) -> bool:
    """Whether the losses of some surface need a logarithmic axis; those with a loss of 0 or less cannot have one."""
    finite = [losses[np.isfinite(losses)] for losses in grids]
    ends = [(losses.min(), losses.max()) for losses in finite if len(losses)]
    return all(low > 0 for low, _ in ends) and any(math.log10(high / low) > _DECADES for low, high in ends)


def _draw_closed_diagram(axes: Axes, tree: MergeTree, *, unit: str, logarithmic: bool) -> None:
    """Finite pairs and, as a diamond, the closing one."""
    values = tree.values[np.isfinite(tree.values)]
    ends = [values.min(), values.max()]
    pairs = tree.diagram[np.isfinite(tree.diagram).all(axis=1)]
    axes.plot(ends, ends, color=MUTED, linewidth=0.8)
    axes.plot(*ends, "D", color=INK, markersize=5)
    colour, marker = landscape.SADDLE
    if len(pairs):
        axes.plot(*pairs.T, marker, color=colour, markersize=4, markeredgecolor="white")
    scale = "log" if logarithmic else "linear"
    axes.set(xscale=scale, yscale=scale, xlabel=f"birth ({unit})", ylabel=f"death ({unit})")
