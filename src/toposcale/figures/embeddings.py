"""Figures of the embeddings: their topology and spectra over training, and how both go with perplexity."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from toposcale.features.names import PERPLEXITY, feature_label, feature_name, feature_unit, metric_label
from toposcale.figures.gallery import title_of
from toposcale.figures.layers import layer_heat_map
from toposcale.figures.panels import (
    add_note,
    feature_grid,
    feature_series,
    finite,
    in_order,
    left_out_note,
    line_panels,
    metric_series,
    missing_figure,
    model_legend,
    new_figure,
    plain_log_ticks,
    say_missing,
)
from toposcale.figures.style import Appearance, mark_of, model_appearances, styled
from toposcale.figures.verdicts import ranking_bars

SOURCE = "embeddings"
SPECTRAL_FEATURES = ("effective_rank", "participation_ratio", "eigenspectrum_decay")
DISTANCE = "wasserstein_1"


@styled
def embedding_summary(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """H0 and H1 of the embedded texts, their effective rank, and the perplexity of the same texts."""
    title = title_of("embedding_summary")
    if features[features["source"] == SOURCE].empty:
        return missing_figure(title, "no features of embeddings were computed")
    figure = new_figure(6.2, title)
    grid = list(figure.subplots(2, 2).flat)
    panels = [
        (
            axes,
            feature_series(features, feature, source=SOURCE),
            f"{letter}  {_sentence(feature_name(feature, SOURCE))}",
            feature_label(feature, SOURCE),
        )
        for axes, letter, feature in zip(
            grid, "abc", ("h0_total", "h1_total", "effective_rank"), strict=False
        )
    ]
    panels.append((grid[3], metric_series(metrics, PERPLEXITY), "d  Perplexity", metric_label(PERPLEXITY)))
    line_panels(figure, models, panels)
    if grid[3].lines:
        grid[3].set_yscale("log")
        plain_log_ticks(grid[3].yaxis)
    return figure


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


@styled
def topological_evolution(features: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Total, longest bar and entropy of H0 and H1 of the embedded texts over training."""
    chosen = [
        f"h{dimension}_{statistic}" for dimension in (0, 1) for statistic in ("total", "max", "entropy")
    ]
    return feature_grid(
        features,
        models,
        [(feature, feature_name(feature, SOURCE)) for feature in chosen],
        title=title_of("topological_evolution"),
        columns=3,
        source=SOURCE,
    )


@styled
def spectral_evolution(features: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Effective rank, participation ratio and eigenspectrum decay of the embeddings over training."""
    return feature_grid(
        features,
        models,
        [(feature, _sentence(feature_name(feature, SOURCE))) for feature in SPECTRAL_FEATURES],
        title=title_of("spectral_evolution"),
        columns=3,
        source=SOURCE,
    )


@styled
def topology_against_perplexity(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame
) -> Figure:
    """Each model's way through (perplexity, feature), checkpoint by checkpoint; the last one is ringed."""
    title = title_of("topology_against_perplexity")
    perplexity = metric_series(metrics, PERPLEXITY).rename(columns={"value": "perplexity"})
    chosen = ("h0_total", "h1_total", "h0_total_scaled", "effective_rank")
    embedded = features[features["source"] == SOURCE]
    joined = embedded[embedded["feature"].isin(chosen)].merge(perplexity, on=["model", "step"])
    if finite(joined, ["value", "perplexity"]).empty:
        return missing_figure(title, "no checkpoint has both a perplexity and embedding features")
    appearances = model_appearances(models)
    figure = new_figure(6.2, title)
    left_out = 0
    for axes, letter, feature in zip(figure.subplots(2, 2).flat, "abcd", chosen, strict=True):
        axes.set_title(f"{letter}  {_sentence(feature_name(feature, SOURCE))}")
        rows = feature_series(features, feature, source=SOURCE).merge(perplexity, on=["model", "step"])
        usable = finite(rows, ["value", "perplexity"])
        left_out += len(rows) - len(usable)
        if usable.empty:
            say_missing(axes, f"no values of: {feature_name(feature, SOURCE)}")
            continue
        _paths(axes, usable, appearances)
        axes.set_xscale("log")
        plain_log_ticks(axes.xaxis)
        axes.set_xlabel(metric_label(PERPLEXITY))
        axes.set_ylabel(feature_label(feature, SOURCE))
    model_legend(figure, joined["model"], appearances)
    add_note(figure, ["A ring marks the last checkpoint.", left_out_note(left_out)])
    return figure


def _paths(axes: Axes, rows: pd.DataFrame, appearances: dict[str, Appearance]) -> None:
    """One line per model in the order of its steps, with a ring at the end."""
    for model, look in in_order(rows["model"], appearances):
        path = rows[rows["model"] == model].sort_values("step")
        axes.plot(
            path["perplexity"], path["value"], color=look.color, marker=look.marker, linestyle=look.linestyle,
            linewidth=0.9, markersize=3.5, gid=mark_of(model),
        )  # fmt: skip
        end = path.iloc[-1]
        axes.plot(
            end["perplexity"], end["value"], "o", markersize=11, fillstyle="none", color=look.color,
            gid=mark_of(model),
        )  # fmt: skip


@styled
def topology_and_spectra(ranking: pd.DataFrame, *, metric: str | None = None) -> Figure:
    """How closely topological and spectral features of the embeddings follow the loss, as bars."""
    rows = ranking[ranking["source"] == SOURCE]
    metric = metric or (PERPLEXITY if PERPLEXITY in set(rows["metric"]) else None)
    return ranking_bars(rows, metric=metric, name="topology_and_spectra")


@styled
def wasserstein_rate(features: pd.DataFrame, models: pd.DataFrame, *, source: str = SOURCE) -> Figure:
    """How fast the diagrams move: Wasserstein-1 distance to the checkpoint before, over the steps between."""
    title = title_of("wasserstein_rate")
    rates = [rate_of_change(features, f"h{dimension}_{DISTANCE}", source=source) for dimension in (0, 1)]
    if not any(np.isfinite(rows["value"].to_numpy(dtype=float)).any() for rows in rates):
        return missing_figure(title, f"no distances between consecutive diagrams of the {source}")
    figure = new_figure(3.7, title)
    units = [feature_unit(f"h{dimension}_total", source) for dimension in (0, 1)]
    labels = [f"Wasserstein-1 distance\nper step ({unit} per step)" for unit in units]
    grid = figure.subplots(1, 2)
    line_panels(figure, models, zip(grid, rates, ("a  H₀", "b  H₁"), labels, strict=True))
    for axes in grid:
        if axes.lines:
            axes.set_yscale("log", nonpositive="mask")
    return figure


def rate_of_change(features: pd.DataFrame, distance: str, *, source: str) -> pd.DataFrame:
    """Rows (model, step, value): the distance from the checkpoint before, over the number of steps between.

    A model's first checkpoint has none before it and no row.
    """
    series = feature_series(features, distance, source=source)
    steps = features.loc[features["source"] == source, ["model", "step"]].drop_duplicates()
    steps = steps.sort_values(["model", "step"])
    steps = steps.assign(before=steps.groupby("model")["step"].shift())
    series = series.merge(steps, on=["model", "step"]).dropna(subset=["before"])
    rate = series["value"] / (series["step"] - series["before"])
    return series.assign(value=rate)[["model", "step", "value"]]


def embedding_layer_heat_map(
    features: pd.DataFrame, models: pd.DataFrame, *, model: str | None = None
) -> Figure:
    """Embeddings layer by step: effective rank, H0 and H1 in units of the mean distance."""
    chosen = ("effective_rank", "h0_total_scaled", "h1_total_scaled")
    return layer_heat_map(
        features, models, model=model, chosen=chosen, source="embeddings", name="embedding_layer_heat_map"
    )
