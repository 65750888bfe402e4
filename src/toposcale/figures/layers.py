"""Figures that resolve layers (heat maps) or radii (CROCKER)."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from toposcale import homology
from toposcale.features.names import STEP_LABEL, feature_name, short_layer
from toposcale.features.registry import lookup
from toposcale.features.roles import network_order
from toposcale.figures import panels
from toposcale.figures.style import DIVERGING, SEQUENTIAL
from toposcale.io.errors import one_line
from toposcale.io.schemas import ALL_LAYERS

BY_LAYER = ("neural_persistence", "h0_total_scaled", "frobenius_norm")
RADII = 120  # of a CROCKER plot, evenly spaced: finer than a pixel
MIN_STEPS = 3  # of a heat map: two columns show a difference, and no course
MIN_RANGE = 1.1
"""Ratio that has the full colour where no value changed more."""


def layer_heat_map(features: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw features of the weights relative to the first checkpoint, by layer and step, from the input to the output."""
    of_layers = features[(features["source"] == "weights") & (features["layer"] != ALL_LAYERS)]
    rows, model = panels.rows_of_largest_model(of_layers[of_layers["feature"].isin(BY_LAYER)], models)
    if rows.empty:
        names = ", ".join(map(feature_name, BY_LAYER))
        return panels.missing_figure(f"no rows per layer for: {names}", model)
    if (n_steps := rows["step"].nunique()) < MIN_STEPS:
        return panels.missing_figure(f"at least {MIN_STEPS} checkpoints are needed, and there are {n_steps}", model)
    import seaborn  # brings pyplot and scipy.stats with it, two seconds for the figures that need neither

    present = [feature for feature in BY_LAYER if (rows["feature"] == feature).any()]
    layers = sorted(rows["layer"].unique(), key=network_order)
    figure, axes_of = panels.new_grid(len(present), row_height=1.1 + 0.2 * len(layers), sharey=True, title=model)
    panels.lettered(axes_of, list(map(feature_name, present)))
    undefined = 0
    for axes, feature in zip(axes_of, present, strict=True):
        table = rows[rows["feature"] == feature].pivot(index="layer", columns="step", values="value")
        table = _ratios(table.reindex(index=layers))
        undefined += int((~np.isfinite(table.to_numpy())).sum())
        norm = _around_one(table)
        colour_bar = {"label": "relative to the first checkpoint (ratio)", "location": "bottom", "shrink": 0.9}
        colour_bar |= {"aspect": 25, "ticks": [norm.vmin, 1.0, norm.vmax], "format": "%.3g"}
        look = {"cmap": DIVERGING, "norm": norm, "rasterized": True, "cbar_kws": colour_bar}
        seaborn.heatmap(table, ax=axes, xticklabels=False, yticklabels=False, **look)
        axes.set(xlabel="", ylabel="")
        axes.tick_params(axis="y", length=0, rotation=0)
        axes.grid(visible=False)
        figure.axes[-1].minorticks_off()  # those of the colour bar
        _step_columns(axes, [int(step) for step in table.columns])
    axes_of[0].set_yticks(np.arange(len(layers)) + 0.5, [row_name(layer) for layer in layers])
    panels.add_note(figure, [f"{undefined} values missing or not finite: empty cells." if undefined else ""])
    return figure


def _ratios(table: pd.DataFrame) -> pd.DataFrame:
    """Return the values of each layer (its row) divided by its first one; NaN where that is not above 0."""
    first = table.bfill(axis=1).iloc[:, 0]
    ratios = table.div(first.where(first > 0), axis=0)
    return ratios.where((ratios > 0) & np.isfinite(ratios))


def _around_one(ratios: pd.DataFrame) -> LogNorm:
    """Return a logarithmic scale with 1 in its middle, which leaves small changes pale."""
    farthest = float(np.nanmax(np.abs(np.log(ratios.to_numpy())), initial=np.log(MIN_RANGE)))
    return LogNorm(np.exp(-farthest), np.exp(farthest))


def _step_columns(axes: Axes, steps: Sequence[int]) -> None:
    """Label at most five columns of a heat map with their steps: columns stand for checkpoints."""
    columns = np.unique(np.linspace(0, len(steps) - 1, min(5, len(steps))).round().astype(int))
    labels = [panels.short_number(steps[column]) for column in columns]
    axes.set(xticks=columns + 0.5, xticklabels=labels, xlabel=STEP_LABEL)


def row_name(layer: str) -> str:
    """Return a layer's name without its common parts: `gpt_neox.layers.0.mlp.x.weight` -> `0.mlp.x`."""
    name = short_layer(one_line(layer))  # control characters are invalid in SVG
    return re.sub(r"^.*?(?:layers|blocks|h)\.(?=\d)", "", name)


def crocker(diagrams: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw a CROCKER plot: Betti numbers of the embedded texts by step and radius, for H0 and H1 (Topaz et al. 2015)."""
    source = "embeddings"
    rows = diagrams[(diagrams["source"] == source) & diagrams["dimension"].isin([0, 1])]
    rows, model = panels.rows_of_largest_model(rows, models)
    if rows.empty:
        return panels.missing_figure(f"no persistence diagrams of the {source} were stored", model)
    figure, axes_of = panels.new_grid(2, row_height=3.1, title=model)
    panels.lettered(axes_of, ("H₀", "H₁"))
    for axes, dimension in zip(axes_of, (0, 1), strict=True):
        classes = panels.finite(rows[rows["dimension"] == dimension], ["birth", "death"])
        if classes.empty:
            panels.say_missing(axes, f"no bars in dimension {dimension}")
            continue
        steps = sorted(rows["step"].unique())
        radii = np.linspace(0, 1.02 * classes["death"].max(), RADII)
        bars = [classes.loc[classes["step"] == step, ["birth", "death"]].to_numpy() for step in steps]
        betti = homology.crocker(bars, radii)
        edges, heights = np.arange(len(steps) + 1), np.linspace(0, radii[-1], RADII + 1)
        mesh = axes.pcolormesh(edges, heights, np.log10(1 + betti.T), cmap=SEQUENTIAL, rasterized=True)
        _step_columns(axes, steps)
        axes.set_ylabel(f"radius ({lookup('h0_max', source).unit})")
        axes.grid(visible=False)
        # On the scale log(1 + count) small counts can be distinguished.
        counts = [count for count in (0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000) if count <= max(betti.max(), 1)]
        bar = figure.colorbar(mesh, ax=axes, label="Betti number (count)")
        bar.set_ticks([float(np.log10(1 + count)) for count in counts], labels=[str(count) for count in counts])
    panels.add_note(figure, ["The class of H₀ that never dies is not counted."])
    return figure
