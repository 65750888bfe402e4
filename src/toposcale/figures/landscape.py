"""Figures of the loss landscape: surface and merge tree, curvature, path, profiles."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from toposcale.figures import panels
from toposcale.figures.style import INK, SEQUENTIAL
from toposcale.forecasting.runs.metrics import LOSS_UNIT
from toposcale.landscape.graphs import grid_edges
from toposcale.landscape.merge_tree import THRESHOLD, MergeTree, merge_tree, persistence_threshold
from toposcale.landscape.plane_names import RANDOM, Plane, most_informative, plane_label

PROBE_LOSS_LABEL = f"loss of the probe batch ({LOSS_UNIT})"
AXIS_LABEL = "distance along direction {} (weight units)"
_MAX_PLANES = 2
"""Planes of one figure: the most informative one, and a random one as published."""
GRAPH = "grid8"
"""The graph through which the merge tree of a drawn surface is read."""
MINIMUM = "#0b4f8a", "o"  # colour and marker, on the surface and on its tree
SADDLE = "#e08e0b", "s"
Surface = tuple[np.ndarray, np.ndarray, np.ndarray]


def _not_finite(losses: np.ndarray) -> str:
    bad = int((~np.isfinite(losses)).sum())
    return f"{bad} of {losses.size} losses are not finite: holes in the surface, last in the tree." if bad else ""


def surface_and_merge_tree(surfaces: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw the loss surface next to the merge tree of its sublevel sets, whose height is loss; a row a plane."""
    rows, subtitle = panels.rows_of_last_checkpoint(surfaces, models)
    if panels.finite(rows, ["loss"]).empty:
        return panels.missing_figure("no loss surface was computed", subtitle)
    planes = sorted(set(rows["plane"]))
    random = [plane for plane in planes if Plane.of_name(plane).kind == RANDOM]
    planes = list(dict.fromkeys([most_informative(planes), *random, *planes]))[:_MAX_PLANES]
    figure = panels.new_figure(3.9 * len(planes) + 0.4, subtitle)
    figure.set_layout_engine("constrained", wspace=0.06)
    notes = []
    for index, plane in enumerate(planes):
        surface = loss_grid(rows[rows["plane"] == plane])
        left = figure.add_subplot(len(planes), 2, 2 * index + 1, projection="3d")
        right = figure.add_subplot(len(planes), 2, 2 * index + 2)
        tree = draw_surface_and_tree(left, right, surface, unit=LOSS_UNIT)
        left.set_title(plane_label(plane), loc="left")
        right.set_title(f"{counts_in_words(tree)} ({GRAPH})")
        notes.append(_not_finite(surface[2]))
    panels.add_note(figure, notes)
    return figure


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
    """Draw a merge tree up to a little above its highest saddle, so that the basins have room; its stem goes on."""
    layout = merge_tree_layout(tree)
    axes.add_collection(LineCollection(list(layout.segments), colors=INK, linewidths=1.1))
    minima, saddles = layout.nodes[: tree.n_minima], layout.nodes[tree.n_minima :]
    for nodes, (colour, marker), label in ((minima, MINIMUM, "minimum"), (saddles, SADDLE, "saddle")):
        if len(nodes):
            axes.plot(*nodes.T, marker, color=colour, markersize=4, label=label)
    values = tree.values[np.isfinite(tree.values)]
    if len(saddles) and not logarithmic:
        lowest, highest = layout.nodes[:, 1].min(), saddles[:, 1].max()
        values = np.array([lowest, min(highest + 0.3 * (highest - lowest), values.max())])
    if logarithmic:
        axes.set(yscale="log", ylim=(values.min() / 1.5, values.max() * 1.5))
    elif len(values) and (room := 0.08 * float(np.ptp(values))):
        axes.set_ylim(values.min() - room, values.max() + room)
    axes.set(xlim=(-0.6, tree.n_minima - 0.4), xticks=[], xlabel="branches of the tree", ylabel=f"loss ({unit})")
    axes.legend(loc="best")


def spectral_density(densities: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw the density of the Hessian's eigenvalues, on a logarithmic axis, of every model at its last step."""
    usable = panels.finite(densities, ["eigenvalue", "density"])
    usable = usable[usable["density"] > 0]
    if usable.empty:
        return panels.missing_figure("no spectral density was computed")
    usable = usable[usable["step"] == usable.groupby("model")["step"].transform("max")]
    figure = panels.new_figure(4.0)
    axes = figure.subplots()
    for _, look, curve in panels.by_model(usable.sort_values("eigenvalue"), models):
        axes.plot(curve["eigenvalue"], curve["density"], **look.line, markevery=max(1, len(curve) // 10))
    # Below this share of the peak there are only the tails of the smoothing kernel.
    peak = usable["density"].max()
    axes.set(yscale="log", ylim=(peak * 1e-7, peak * 3), xlabel="Hessian eigenvalue (nats per squared weight)")
    axes.yaxis.set_major_locator(LogLocator(numticks=9))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("density (share per unit of eigenvalue)")
    panels.model_legend(figure, usable["model"], models)
    return figure


def contour_with_path(path_surfaces: pd.DataFrame, trajectories: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw contours of the loss in the principal plane of the trajectory, and the trajectory projected onto it."""
    rows, subtitle = panels.rows_of_last_checkpoint(path_surfaces, models)
    if panels.finite(rows, ["loss"]).empty:
        return panels.missing_figure("no loss surface was computed", subtitle)
    x, y, losses = loss_grid(rows)
    losses = np.where(np.isfinite(losses), losses, np.nan)
    figure = panels.new_figure(5.2, subtitle, width=7.2)
    axes = figure.subplots()
    levels = np.unique(np.nanquantile(losses, np.linspace(0, 1, 14)))
    if len(levels) > 1:
        filled = axes.contourf(x, y, losses, levels=levels, cmap=SEQUENTIAL)
        axes.contour(x, y, losses, levels=levels, colors="white", linewidths=0.4)
        figure.colorbar(filled, ax=axes, label=PROBE_LOSS_LABEL, format="%.2f")
    path = trajectories[trajectories["model"] == rows["model"].iloc[0]].sort_values("step")
    usable = panels.finite(path, ["x", "y"])
    notes = [_not_finite(losses), "" if len(usable) else "No trajectory of this model was stored."]
    inside = usable[usable["x"].between(x[0], x[-1]) & usable["y"].between(y[0], y[-1])]
    if len(usable):
        axes.plot(usable["x"], usable["y"], color="white", linewidth=3)
        axes.plot(usable["x"], usable["y"], color=INK, marker="o", markerfacecolor="white", markersize=4)
        for point in (inside.iloc[index] for index in sorted({0, len(inside) - 1} & set(range(len(inside))))):
            is_right = point["x"] > x.mean()  # its step is written towards the middle of the map
            axes.annotate(
                f"step {int(point['step'])}", (point["x"], point["y"]), fontsize=8,
                xytext=(-8 if is_right else 8, 9), textcoords="offset points", ha="right" if is_right else "left",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.85},
            )  # fmt: skip
        notes.append(
            f"The plane is that which holds most of the path; checkpoints lie up to {usable['distance'].max():.2g} "
            "weight units from it."
        )
        outside = len(usable) - len(inside)
        notes.append(f"{outside} of {len(usable)} checkpoints lie outside this window." if outside else "")
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), xlabel=AXIS_LABEL.format(1), ylabel=AXIS_LABEL.format(2))
    axes.grid(visible=False)
    panels.add_note(figure, notes)
    return figure


def landscape_profile(profiles: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw landscape profiles (Geniesse et al. 2024): the width of a basin at a level is the mass below it."""
    rows, subtitle = panels.rows_of_last_checkpoint(profiles, models)
    rows = panels.finite(rows, ["level", "mass"])
    if rows.empty:
        return panels.missing_figure("no landscape profile was computed", subtitle)
    directions = sorted(rows["direction"].unique())
    figure, axes_of = panels.new_grid(len(directions), row_height=3.1, sharey=True, title=subtitle)
    panels.lettered(axes_of, [plane_label(str(direction)) for direction in directions], fontsize=9)
    for axes, direction in zip(axes_of, directions, strict=True):
        _silhouettes(axes, rows[rows["direction"] == direction])
        axes.set_xlabel("basins, as wide as their mass\n(share of the sampled points)")
    axes_of[0].set_ylabel(PROBE_LOSS_LABEL)
    return figure


def _silhouettes(axes: Axes, rows: pd.DataFrame) -> None:
    """Place components side by side by their lowest level, each symmetrical about its own stem."""
    stems = rows.groupby("component")["level"].min().sort_values(kind="stable").index
    right = 0.0
    for number, component in enumerate(stems):
        levels = rows[rows["component"] == component].sort_values("level")
        half = levels["mass"].to_numpy() / 2
        centre = right + half.max()
        fill, hatch = ("#8fbfe0", "") if number % 2 == 0 else ("#f3c77a", "///")
        axes.fill_betweenx(
            levels["level"].to_numpy(), centre - half, centre + half, facecolor=fill, hatch=hatch,
            edgecolor=INK, linewidth=0.6, step="post",
        )  # fmt: skip
        right = centre + half.max() + 0.03
    axes.set_xlim(-0.03, right)
    axes.xaxis.set_major_locator(MaxNLocator(3))  # more labels would touch those of the next panel
    axes.grid(axis="x", visible=False)


class MergeTreeLayout(NamedTuple):
    """Planar drawing of a merge tree without crossings; heights are losses.

    nodes: float64 (k, 2), x and height of every minimum, from left to right, and of every saddle.
    segments: float64 (s, 2, 2), the ends of each branch, which is vertical, and of the horizontal bar at each saddle.
    """

    nodes: np.ndarray
    segments: np.ndarray


def merge_tree_layout(tree: MergeTree) -> MergeTreeLayout:
    """Return coordinates that draw `tree`: leaves at x = 0, 1, ..., a saddle midway between what it joins.

    Components stand side by side; roots rise to the largest finite value, non-finite heights a tenth of the range above
    it.
    """
    finite = tree.values[np.isfinite(tree.values)]
    low, top = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    beyond = top + 0.1 * ((top - low) or 1.0)

    def height(vertex: int) -> float:
        return float(tree.values[vertex]) if np.isfinite(tree.values[vertex]) else beyond

    # The upper end of each living branch.
    stem = {vertex: (float(x), height(vertex)) for x, vertex in enumerate(_leaf_order(tree))}
    nodes, segments = list(stem.values()), []
    events = np.column_stack([tree.saddles, tree.dying, tree.surviving])
    for saddle, dying, surviving in events.tolist():
        level = height(saddle)
        (x_dying, y_dying), (x_surviving, y_surviving) = stem.pop(dying), stem[surviving]
        corners = (x_dying, level), (x_surviving, level)
        segments += [((x_dying, y_dying), corners[0]), ((x_surviving, y_surviving), corners[1]), corners]
        stem[surviving] = ((x_dying + x_surviving) / 2, level)
        nodes.append(stem[surviving])
    segments += [((x, y), (x, max(y, top))) for x, y in stem.values()]
    lines = np.array([line for line in segments if line[0] != line[1]], dtype=np.float64)
    return MergeTreeLayout(np.array(nodes, dtype=np.float64), lines.reshape(-1, 2, 2))


def _leaf_order(tree: MergeTree) -> list[int]:
    """Return the minima from left to right, the leaves below every saddle side by side."""
    leaves = {vertex: [vertex] for vertex in tree.minima.tolist()}
    for dying, surviving in zip(tree.dying.tolist(), tree.surviving.tolist(), strict=True):
        leaves[surviving] += leaves.pop(dying)
    return [leaf for root in tree.roots.tolist() for leaf in leaves[root]]
