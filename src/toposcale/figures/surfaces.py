"""A loss surface and its merge tree, with minima and saddles marked on both."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import FuncFormatter, MaxNLocator

from toposcale.figures.style import INK, SEQUENTIAL
from toposcale.landscape.graphs import grid_edges
from toposcale.landscape.measures import THRESHOLD, persistence_threshold
from toposcale.landscape.merge_tree import MergeTree, merge_tree, merge_tree_layout

GRAPH = "grid8"
"""The graph through which the merge tree of a drawn surface is read."""
MINIMUM, SADDLE = ("#0b4f8a", "o"), ("#e08e0b", "s")

Surface = tuple[np.ndarray, np.ndarray, np.ndarray]


def loss_grid(rows: pd.DataFrame) -> Surface:
    """Return x (w,), y (h,) and loss (h, w) of the rows of one surface; NaN where a point is absent."""
    table = rows.pivot(index="y", columns="x", values="loss")
    return table.columns.to_numpy(), table.index.to_numpy(), table.to_numpy(dtype=float)


def counted_tree(losses: np.ndarray) -> MergeTree:
    """Return the merge tree of a drawn surface, without pairs below 1% of its range."""
    least = persistence_threshold(losses, THRESHOLD, 0.0)
    return merge_tree(losses, grid_edges(losses.shape, GRAPH), threshold=least)


def counts_in_words(tree: MergeTree) -> str:
    """Return the counts of a tree in words: `1 minimum, 0 saddles`."""
    minima = "minimum" if tree.n_minima == 1 else "minima"
    saddles = "saddle" if tree.n_saddles == 1 else "saddles"
    return f"{tree.n_minima} {minima}, {tree.n_saddles} {saddles}"


def draw_surface_and_tree(
    space: Axes, plane: Axes, surface: Surface, *, unit: str, logarithmic: bool = False
) -> MergeTree:
    """Draw a surface in space with its minima and saddles marked, and its merge tree; return the tree."""
    tree = counted_tree(surface[2])
    _draw_surface(space, surface, tree, unit=unit, logarithmic=logarithmic)
    _draw_tree(plane, tree, unit=unit, logarithmic=logarithmic)
    return tree


def _draw_surface(axes: Axes, surface: Surface, tree: MergeTree, *, unit: str, logarithmic: bool) -> None:
    x, y, losses = surface
    height = np.where(np.isfinite(losses), losses, np.nan)
    height = np.log10(height) if logarithmic else height
    axes.computed_zorder = False  # type: ignore[attr-defined]  # the marks lie on top
    axes.plot_surface(  # type: ignore[attr-defined]
        *np.meshgrid(x, y), height, cmap=SEQUENTIAL, rcount=60, ccount=60, linewidth=0.15,
        edgecolor="#ffffff60", alpha=0.85, zorder=1,
    )  # fmt: skip
    for vertices, (colour, marker) in ((tree.minima, MINIMUM), (tree.saddles, SADDLE)):
        row, column = np.unravel_index(vertices.astype(int), losses.shape)
        axes.plot(
            x[column], y[row], height[row, column], marker, color=colour, markersize=4,
            markeredgecolor="white", markeredgewidth=0.5, zorder=5,
        )  # fmt: skip
    axes.set_xlabel("direction 1\n(weight units)", fontsize=8)
    axes.set_ylabel("direction 2\n(weight units)", fontsize=8)
    # The label of the third axis would stand outside a narrow panel.
    axes.text2D(0.5, 0.96, f"height: loss ({unit})", transform=axes.transAxes, ha="center", fontsize=8)  # type: ignore[attr-defined]
    if logarithmic:
        axes.zaxis.set_major_formatter(FuncFormatter(lambda power, _: f"{10.0**power:g}"))  # type: ignore[attr-defined]
    axes.zaxis.set_major_locator(MaxNLocator(4, integer=logarithmic))  # type: ignore[attr-defined]
    axes.tick_params(labelsize=7, pad=0)
    axes.set_box_aspect((1, 1, 0.8), zoom=0.8)  # type: ignore[call-arg, arg-type]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4))


def _draw_tree(axes: Axes, tree: MergeTree, *, unit: str, logarithmic: bool) -> None:
    """Draw a merge tree from the surface's least loss to its largest."""
    layout = merge_tree_layout(tree)
    axes.add_collection(LineCollection(list(layout.segments), colors=INK, linewidths=1.1))
    minima, saddles = layout.nodes[: tree.n_minima], layout.nodes[tree.n_minima :]
    for nodes, (colour, marker), label in ((minima, MINIMUM, "minimum"), (saddles, SADDLE, "saddle")):
        if len(nodes):
            axes.plot(*nodes.T, marker, color=colour, markersize=4, label=label)
    values = tree.values[np.isfinite(tree.values)]
    if logarithmic:
        axes.set(yscale="log", ylim=(values.min() / 1.5, values.max() * 1.5))
    elif len(values) and (room := 0.08 * float(np.ptp(values))):
        axes.set_ylim(values.min() - room, values.max() + room)
    axes.set(xlim=(-0.6, tree.n_minima - 0.4), xticks=[], xlabel="branches of the tree", ylabel=f"loss ({unit})")
    axes.legend(loc="best")
