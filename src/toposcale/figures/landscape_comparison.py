"""Landscapes side by side: a column for each condition, with its surface, merge tree and persistence diagram."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from toposcale.features.registry import LOSS_UNIT
from toposcale.figures import panels
from toposcale.figures.style import INK, MUTED, SEQUENTIAL, styled
from toposcale.landscape.graphs import grid_edges
from toposcale.landscape.measures import THRESHOLD, persistence_threshold
from toposcale.landscape.merge_tree import MergeTree, merge_tree, merge_tree_layout
from toposcale.landscape.planes import most_informative, plane_label

GRAPH = "grid8"
"""The graph through which the merge tree of a drawn surface is read."""
MINIMUM, SADDLE, CLOSING = ("#0b4f8a", "o"), ("#e08e0b", "s"), ("#1a1a1a", "D")
_DECADES = 2.0
"""Losses of one figure that span more are drawn by their logarithm."""
_SHOWN_STEPS = 4

Surface = tuple[np.ndarray, np.ndarray, np.ndarray]


def loss_grid(rows: pd.DataFrame) -> Surface:
    """Rows (x, y, loss) of one surface -> x (w,), y (h,), loss (h, w); NaN where a point is absent."""
    table = rows.pivot(index="y", columns="x", values="loss")
    return table.columns.to_numpy(), table.index.to_numpy(), table.to_numpy(dtype=float)


def counted_tree(losses: np.ndarray) -> MergeTree:
    """The merge tree of a drawn surface, without pairs below 1% of its range."""
    least = persistence_threshold(losses, THRESHOLD, 0.0)
    return merge_tree(losses, grid_edges(losses.shape, GRAPH), threshold=least)


def counts_in_words(tree: MergeTree) -> str:
    """`1 minimum, 0 saddles`."""
    minima = "minimum" if tree.n_minima == 1 else "minima"
    saddles = "saddle" if tree.n_saddles == 1 else "saddles"
    return f"{tree.n_minima} {minima}, {tree.n_saddles} {saddles}"


def landscape_comparison(surfaces: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """The surface of one model at some of its checkpoints, from the first to the last."""
    rows, model = panels.of_the_largest(surfaces, models)
    if panels.finite(rows, ["loss"]).empty:
        return panels.missing_figure("no loss surface was computed")
    plane = most_informative(set(rows["plane"]))
    rows = rows[rows["plane"] == plane]
    steps = sorted(set(rows["step"]))
    places = np.unique(np.linspace(0, len(steps) - 1, _SHOWN_STEPS).round().astype(int))
    conditions = {f"step {steps[place]}": rows[rows["step"] == steps[place]] for place in places}
    return compare_landscapes(conditions, unit=LOSS_UNIT, title=f"{model}, {plane_label(plane)}")


@styled
def compare_landscapes(conditions: Mapping[str, pd.DataFrame], *, unit: str, title: str) -> Figure:
    """A column for each condition: its surface (rows x, y, loss), the merge tree of it, and its persistence diagram.

    unit: that of the loss. Minima and saddles are marked on both; the trees stand on the surface's own scale of loss. The
    diagram has the pair of the least and the largest loss too, which closes it. Height is logarithmic where the losses
    span more than two decades.
    """
    grids = {name: loss_grid(rows) for name, rows in conditions.items()}
    logarithmic = _spans_decades([losses for *_, losses in grids.values()])
    figure = panels.new_figure(8.8, title, width=max(7.0, 3.1 * len(grids)))
    cells = figure.add_gridspec(3, len(grids), height_ratios=(1.3, 1, 1))
    for column, (name, surface) in enumerate(grids.items()):
        upper = figure.add_subplot(cells[0, column], projection="3d")
        middle, lower = (figure.add_subplot(cells[row, column]) for row in (1, 2))
        tree = draw_surface_and_tree(upper, middle, surface, unit=unit, logarithmic=logarithmic)
        upper.set_title(name, loc="left", fontweight="bold")
        middle.set_title(counts_in_words(tree))
        _draw_closed_diagram(lower, tree, unit=unit, logarithmic=logarithmic)
        lower.set_title(f"closed average {tree.average_persistence_closed:.3g}")
    left_out = f"Graph {GRAPH}; pairs of less than 1% of a surface's range are left out."
    panels.add_note(figure, [left_out, "The diamond is the pair of the least and the largest loss."])
    return figure


def _spans_decades(grids: Sequence[np.ndarray]) -> bool:
    """Whether the losses of some surface need a logarithmic axis; those with a loss of 0 or less cannot have one."""
    finite = [losses[np.isfinite(losses)] for losses in grids]
    ends = [(losses.min(), losses.max()) for losses in finite if len(losses)]
    return all(low > 0 for low, _ in ends) and any(math.log10(high / low) > _DECADES for low, high in ends)


def draw_surface_and_tree(
    space: Axes, plane: Axes, surface: Surface, *, unit: str, logarithmic: bool = False
) -> MergeTree:
    """A surface in space with its minima and saddles marked, and its merge tree, which comes back."""
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
    """A merge tree from the surface's least loss to its largest."""
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


def _draw_closed_diagram(axes: Axes, tree: MergeTree, *, unit: str, logarithmic: bool) -> None:
    """Finite pairs and, as a diamond, the closing one."""
    values = tree.values[np.isfinite(tree.values)]
    ends = [values.min(), values.max()]
    pairs = tree.diagram[np.isfinite(tree.diagram).all(axis=1)]
    axes.plot(ends, ends, color=MUTED, linewidth=0.8)
    colour, marker = CLOSING
    axes.plot(*ends, marker, color=colour, markersize=5)
    if len(pairs):
        axes.plot(*pairs.T, SADDLE[1], color=SADDLE[0], markersize=4, markeredgecolor="white")
    scale = "log" if logarithmic else "linear"
    axes.set(xscale=scale, yscale=scale, xlabel=f"birth ({unit})", ylabel=f"death ({unit})")
