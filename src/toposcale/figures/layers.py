"""Figures that resolve layers (heat maps, attention against feed-forward) or radii (CROCKER)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from toposcale import homology
from toposcale.features.names import STEP_LABEL, feature_label, feature_name, feature_unit
from toposcale.features.registry import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.figures.gallery import title_of
from toposcale.figures.panels import (
    add_note,
    chosen_model,
    finite,
    heat_map,
    line_panels,
    missing_figure,
    new_figure,
    say_missing,
    short_number,
)
from toposcale.figures.style import SEQUENTIAL, styled
from toposcale.io.schemas import ALL_LAYERS

HEAT_FEATURES = (NEURAL_PERSISTENCE.feature, "h0_total_scaled", WEIGHT_NORM.feature)
RADII = 120


@styled
def layer_heat_map(
    features: pd.DataFrame,
    models: pd.DataFrame,
    *,
    model: str | None = None,
    chosen: Sequence[str] = HEAT_FEATURES,
    source: str = "weights",
    name: str = "layer_heat_map",
) -> Figure:
    """Layer by step: one panel per feature, layers from the input (top) to the output."""
    rows = features[
        (features["source"] == source) & (features["layer"] != ALL_LAYERS) & features["feature"].isin(chosen)
    ]
    model = chosen_model(rows["model"], models, model)
    title = title_of(name, model)
    rows = rows[rows["model"] == model]
    if rows.empty:
        return missing_figure(title, f"no rows per layer for: {', '.join(feature_name(f) for f in chosen)}")
    present = [feature for feature in chosen if (rows["feature"] == feature).any()]
    layers = sorted(rows["layer"].unique(), key=layer_order)
    figure = new_figure(1.9 + 0.2 * len(layers), title)
    panels = figure.subplots(1, len(present), squeeze=False, sharey=True)[0]
    undefined = 0
    for axes, letter, feature in zip(panels, "abcdefgh", present, strict=False):
        table = rows[rows["feature"] == feature].pivot(index="layer", columns="step", values="value")
        table = table.reindex(index=layers)
        undefined += int((~np.isfinite(table.to_numpy())).sum())
        axes.set_title(f"{letter}  {feature_name(feature, source)}")
        heat_map(
            axes,
            table,
            label=feature_label(feature, source),
            colours=SEQUENTIAL,
            location="bottom",
            shrink=0.9,
            aspect=25,
        )
        _step_columns(axes, [int(step) for step in table.columns])
    panels[0].set_yticks(np.arange(len(layers)) + 0.5, [short_layer(layer) for layer in layers])
    add_note(figure, [f"{undefined} values missing or not finite: empty cells." if undefined else ""])
    return figure


def _step_columns(axes: Axes, steps: Sequence[int]) -> None:
    """Label at most five of the columns of a heat map with their steps: columns stand for checkpoints."""
    places = np.unique(np.linspace(0, len(steps) - 1, min(5, len(steps))).round().astype(int))
    axes.set_xticks(places + 0.5, [short_number(steps[place]) for place in places])
    axes.set_xlabel(STEP_LABEL)


def layer_order(layer: str) -> tuple[int, list[int], str]:
    """Sort key of a layer's name: embeddings, then blocks by number, then the rest."""
    numbers = [int(number) for number in re.findall(r"\d+", layer)]
    if numbers:
        return 1, numbers, layer
    return (0 if "emb" in layer and "unembed" not in layer and "embed_out" not in layer else 2), [], layer


def short_layer(layer: str) -> str:
    """A layer's name without what all of them share: `gpt_neox.layers.0.mlp.x.weight` -> `0.mlp.x`."""
    name = re.sub(r"\.weight$", "", layer)
    return re.sub(r"^.*?(?:layers|blocks|h)\.(?=\d)", "", name)


ATTENTION, FEED_FORWARD = "attention", "feed-forward"


def layer_part(layer: str) -> str:
    """The part of a transformer block that a layer's name belongs to; empty for embeddings and norms."""
    if re.search(r"attn|attention", layer):
        return ATTENTION
    return FEED_FORWARD if re.search(r"mlp|feed_?forward|ffn", layer) else ""


@styled
def attention_and_feed_forward(
    features: pd.DataFrame, models: pd.DataFrame, *, feature: str = NEURAL_PERSISTENCE.feature
) -> Figure:
    """A weight feature over training, averaged over the attention matrices and over the feed-forward ones."""
    title = title_of("attention_and_feed_forward")
    rows = features[
        (features["source"] == "weights")
        & (features["feature"] == feature)
        & (features["layer"] != ALL_LAYERS)
    ]
    rows = rows.assign(part=rows["layer"].map(layer_part))
    if not rows["part"].isin([ATTENTION, FEED_FORWARD]).any():
        return missing_figure(
            title, f"no rows of {feature_name(feature)} for attention or feed-forward matrices"
        )
    figure = new_figure(3.7, title)
    left, right = figure.subplots(1, 2, sharey=True)
    panels = []
    for axes, letter, part in ((left, "a", ATTENTION), (right, "b", FEED_FORWARD)):
        own = rows[rows["part"] == part].groupby(["model", "step"])["value"]
        # A mean over the matrices that are left would hide a NaN.
        series = own.agg(lambda values: values.mean(skipna=False)).reset_index()
        panels.append((axes, series, f"{letter}  {part.capitalize()}", f"mean {feature_label(feature)}"))
    line_panels(figure, models, panels)
    right.set_ylabel("")
    return figure


@styled
def crocker(
    diagrams: pd.DataFrame,
    models: pd.DataFrame,
    *,
    model: str | None = None,
    source: str = "embeddings",
    layer: str | None = None,
) -> Figure:
    """CROCKER plot: Betti numbers by step and radius, for H0 and H1 (Topaz et al. 2015).

    `layer`: one layer; the Betti numbers of all layers are summed without it.
    """
    rows = diagrams[(diagrams["source"] == source) & diagrams["dimension"].isin([0, 1])]
    if layer is not None:
        rows = rows[rows["layer"] == layer]
    model = chosen_model(rows["model"], models, model)
    title = title_of("crocker", model)
    rows = rows[rows["model"] == model]
    if rows.empty:
        return missing_figure(title, f"no persistence diagrams of the {source} were stored")
    figure = new_figure(3.9, title)
    for axes, letter, dimension in zip(figure.subplots(1, 2), "ab", (0, 1), strict=True):
        axes.set_title(f"{letter}  H{'₀₁'[dimension]}")
        own = finite(rows[rows["dimension"] == dimension], ["birth", "death"])
        if own.empty:
            say_missing(axes, f"no bars in dimension {dimension}")
            continue
        steps = sorted(rows["step"].unique())
        radii = np.linspace(0, 1.02 * own["death"].max(), RADII)
        bars = [own.loc[own["step"] == step, ["birth", "death"]].to_numpy() for step in steps]
        betti = homology.crocker(bars, radii)
        edges = np.arange(len(steps) + 1)
        heights = np.linspace(0, radii[-1], RADII + 1)
        colours = np.log10(1 + betti.T)
        mesh = axes.pcolormesh(edges, heights, colours, cmap=SEQUENTIAL, rasterized=True)
        _step_columns(axes, steps)
        axes.set_ylabel(f"radius ({feature_unit('h0_max', source)})")
        axes.grid(visible=False)
        _count_bar(figure, axes, mesh, int(betti.max()))
    add_note(figure, ["The class of H₀ that never dies is not counted."])
    return figure


def _count_bar(figure: Figure, axes: Axes, mesh: object, largest: int) -> None:
    """A colour bar whose ticks are counts, on the scale log(1 + count) that lets small ones be seen."""
    counts = [count for count in (0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000) if count <= max(largest, 1)]
    bar = figure.colorbar(mesh, ax=axes, label="Betti number (count)")  # type: ignore[arg-type]
    bar.set_ticks([float(np.log10(1 + count)) for count in counts], labels=[str(count) for count in counts])
