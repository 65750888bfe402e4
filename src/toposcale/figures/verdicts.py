"""Figures that judge the features: their ranking, and what is left of a correlation given norm or step."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from toposcale.analysis.series import whole_model
from toposcale.analysis.verdicts import NOT_TESTED, POOLED, YES
from toposcale.features.names import SPEARMAN_LABEL, metric_name, series_name
from toposcale.features.registry import WEIGHT_NORM
from toposcale.figures.gallery import title_of
from toposcale.figures.panels import (
    add_note,
    chosen_metric,
    draw_intervals,
    finite,
    key_legend,
    mark_key,
    missing_figure,
    new_figure,
    stripe_rows,
)
from toposcale.figures.style import (
    GROUP_FILLS,
    GROUP_HATCHES,
    INK,
    MUTED,
    SEVERAL_LOOKS,
    styled,
)


def ranking_bars(
    ranking: pd.DataFrame,
    *,
    metric: str | None = None,
    name: str = "ranking",
    max_bars: int = 24,
) -> Figure:
    """Strength of each feature's correlation with a metric, strongest on top, with its interval."""
    metric = chosen_metric(ranking["metric"], metric)
    title = title_of(name, metric_name(metric))
    rows = finite(ranking[ranking["metric"] == metric], ["strength"])
    if rows.empty:
        return missing_figure(title, f"no feature has a correlation with {metric_name(metric)}")
    total = len(rows)
    rows = rows.sort_values(["strength", "source", "feature"]).tail(max_bars)
    figure = new_figure(1.5 + 0.24 * len(rows), title)
    axes = figure.subplots()
    for place, (strength, group) in enumerate(zip(rows["strength"], rows["group"], strict=True)):
        fill, hatch = GROUP_FILLS[group], GROUP_HATCHES[group]
        axes.barh(place, strength, color=fill, hatch=hatch, edgecolor="white", linewidth=0)
    draw_intervals(
        axes,
        range(len(rows)),
        rows["strength"],
        rows["strength_low"],
        rows["strength_high"],
        color=INK,
        marker="|",
    )
    several = rows["source"].nunique() > 1
    names = [
        series_name(source if several else "weights", feature)
        for source, feature in zip(rows["source"], rows["feature"], strict=True)
    ]
    axes.set_yticks(range(len(rows)), names)
    axes.set(xlim=(0, 1.02), ylim=(-0.6, len(rows) - 0.4))
    axes.set_xlabel("|Spearman ρ|, mean over models (0 to 1), 95% block bootstrap")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    groups = dict.fromkeys(reversed(rows["group"].tolist()))
    key_legend(
        figure,
        [Patch(facecolor=GROUP_FILLS[g], edgecolor="white", hatch=GROUP_HATCHES[g], label=g) for g in groups],
        "group",
    )
    add_note(figure, [f"The {len(rows)} strongest of {total} features." if total > len(rows) else ""])
    return figure


@styled
def ranking(ranking: pd.DataFrame, *, metric: str | None = None) -> Figure:
    """All features of all sources ranked by how closely they follow the loss."""
    return ranking_bars(ranking, metric=metric)


QUESTIONS = {
    "follows_the_loss": "as it is",
    "beyond_the_norm": "given the weight norm",
    "beyond_the_step": "given the step",
}
"""The questions of the verdict table that are drawn, answered yes, no or not tested, and what their estimate is given."""


@styled
def verdict(
    verdicts: pd.DataFrame, *, metric: str | None = None, model: str = POOLED, max_rows: int = 20
) -> Figure:
    """Correlation with the loss as it is, given the weight norm and given the step, and the answers.

    The features that follow the loss most closely come first: what is left of them given the norm is the point.
    """
    metric = chosen_metric(verdicts["metric"], metric)
    whose = "all runs together" if model == POOLED else model
    title = title_of("verdict", f"{metric_name(metric)}, {whose}")
    rows = whole_model(verdicts[(verdicts["metric"] == metric) & (verdicts["model"] == model)])
    rows = finite(rows, ["follows_the_loss_rho"])
    if rows.empty:
        return missing_figure(title, f"no verdicts on correlations with {metric_name(metric)}")
    total = len(rows)
    rows = rows.set_index(["source", "feature"])
    strength = rows["follows_the_loss_rho"].abs().sort_values(kind="stable")
    keep = list(strength.index[-max_rows:])
    norm = ("weights", WEIGHT_NORM.feature)
    if norm in strength.index and norm not in keep:
        keep = [norm, *keep[1:]]  # the yardstick stays in sight
    rows = rows.loc[keep]
    figure = new_figure(2.0 + 0.3 * len(rows), title)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2.3, 2.1])
    keys = _estimates(left, rows)
    left.set_yticks(range(len(rows)), [series_name(*key) for key in rows.index])
    left.set_ylim(-0.6, len(rows) - 0.4)
    _answers(right, rows)
    key_legend(figure, keys, "correlation")
    undefined = int(rows[[f"{name}_rho" for name in QUESTIONS]].isna().sum().sum())
    add_note(
        figure,
        [
            f"The {len(rows)} that follow most closely, of {total} features." if total > len(rows) else "",
            "Beyond: the innovation test with a q of at most 0.05, not the correlation drawn here.",
            f"{undefined} correlations undefined (the norm given itself, constant series)."
            if undefined
            else "",
        ],
    )
    return figure


def _estimates(axes: Axes, rows: pd.DataFrame) -> list[Line2D]:
    keys = []
    places = np.arange(len(rows))
    for index, (name, words) in enumerate(QUESTIONS.items()):
        look = SEVERAL_LOOKS[index]
        estimate = rows[f"{name}_rho"]
        ranged = name == "follows_the_loss"
        low, high = (rows[f"{name}_rho_{end}"] if ranged else estimate for end in ("lowest", "highest"))
        draw_intervals(axes, places + 0.25 * (1 - index), estimate, low, high, **look)
        keys.append(mark_key(words.replace(" the", "\nthe"), **look))
    axes.axvline(0, color=MUTED, linewidth=0.8)
    axes.set_xlim(-1.05, 1.05)
    axes.set_xlabel(f"{SPEARMAN_LABEL}, median and range over cells")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    stripe_rows(axes, len(rows))
    return keys


def _answers(axes: Axes, rows: pd.DataFrame) -> None:
    """Yes, no or not tested for each question."""
    for column, name in enumerate(QUESTIONS):
        for place, answer in enumerate(rows[name]):
            yes = answer == YES
            axes.text(
                column, place, answer, ha="center", va="center",
                fontweight="bold" if yes else "normal", fontstyle="italic" if answer == NOT_TESTED else "normal",
                color=INK if yes else MUTED, fontsize=7 if answer == NOT_TESTED else None,
            )  # fmt: skip
    axes.set_xlim(-0.6, len(QUESTIONS) - 0.4)
    axes.set_xticks(range(len(QUESTIONS)), [name.replace("_", "\n") for name in QUESTIONS], fontsize=7.5)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelleft=False)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    stripe_rows(axes, len(rows))
