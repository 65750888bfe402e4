"""Figures that judge the features: their ranking, and what is left of a correlation given norm or step."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from toposcale.analysis.controls import NOTHING
from toposcale.analysis.questions import EVERYWHERE, NOT_TESTED, QUESTIONS, YES
from toposcale.analysis.series import whole_model
from toposcale.analysis.verdicts import family_of
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


DRAWN = [question for question in QUESTIONS.values() if question.given and question.asked == EVERYWHERE]
"""The questions that are asked of every feature."""
MAX_ROWS = 20


@styled
def verdict(
    verdicts: pd.DataFrame, pooled_correlations: pd.DataFrame, *, metric: str | None = None
) -> Figure:
    """Correlation with the loss as it is, given the weight norm and given the step, and the answers, over all runs.

    The features that follow the loss most closely come first: what is left of them given the norm is the point.
    """
    metric = chosen_metric(verdicts["metric"], metric)
    title = title_of("verdict", f"{metric_name(metric)}, all runs together")
    key = ["source", "feature"]
    family = family_of(verdicts, metric)
    answers = family.pivot(index=key, columns="question", values="answer")
    pooled = whole_model(pooled_correlations[pooled_correlations["metric"] == metric])
    given = {
        question.name: pooled[pooled["control"] == question.control].set_index(key) for question in DRAWN
    }
    plain = finite(given["follows_the_loss"], ["spearman"])
    if plain.empty:
        return missing_figure(title, f"no verdicts on correlations with {metric_name(metric)}")
    strength = plain["spearman"].abs().sort_values(kind="stable")
    keep = list(strength.index[-MAX_ROWS:])
    norm = (WEIGHT_NORM.source, WEIGHT_NORM.feature)
    if norm in strength.index and norm not in keep:
        keep = [norm, *keep[1:]]  # the yardstick stays in sight
    figure = new_figure(2.0 + 0.3 * len(keep), title)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2.3, 2.1])
    shown = {name: rows.reindex(pd.MultiIndex.from_tuples(keep)) for name, rows in given.items()}
    keys = _estimates(left, shown)
    left.set_yticks(range(len(keep)), [series_name(*key) for key in keep])
    left.set_ylim(-0.6, len(keep) - 0.4)
    _answers(right, answers.loc[keep])
    key_legend(figure, keys, "correlation")
    undefined = int(sum(rows["spearman"].isna().sum() for rows in shown.values()))
    add_note(
        figure,
        [
            f"The {len(keep)} that follow most closely, of {len(plain)} features."
            if len(plain) > len(keep)
            else "",
            "Beyond: the innovation test with a q of at most 0.05, not the correlation drawn here.",
            f"{undefined} correlations undefined (the norm given itself, constant series)."
            if undefined
            else "",
        ],
    )
    return figure


def _estimates(axes: Axes, shown: dict[str, pd.DataFrame]) -> list[Line2D]:
    keys = []
    for index, question in enumerate(DRAWN):
        look, rows = SEVERAL_LOOKS[index], shown[question.name]
        ends = ("spearman_lowest", "spearman_highest") if question.control == NOTHING else ("spearman",) * 2
        low, high = (rows[end] for end in ends)
        draw_intervals(axes, np.arange(len(rows)) + 0.25 * (1 - index), rows["spearman"], low, high, **look)
        keys.append(mark_key(question.given.replace(" the", "\nthe"), **look))
    axes.axvline(0, color=MUTED, linewidth=0.8)
    axes.set_xlim(-1.05, 1.05)
    axes.set_xlabel(f"{SPEARMAN_LABEL}, median and range over cells")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    stripe_rows(axes, len(rows))
    return keys


def _answers(axes: Axes, answers: pd.DataFrame) -> None:
    """Yes, no or not tested for each question."""
    for column, question in enumerate(DRAWN):
        for place, answer in enumerate(answers[question.name]):
            yes = answer == YES
            axes.text(
                column, place, answer, ha="center", va="center",
                fontweight="bold" if yes else "normal", fontstyle="italic" if answer == NOT_TESTED else "normal",
                color=INK if yes else MUTED, fontsize=7 if answer == NOT_TESTED else None,
            )  # fmt: skip
    axes.set_xlim(-0.6, len(DRAWN) - 0.4)
    axes.set_xticks(
        range(len(DRAWN)), [question.title.replace(" ", "\n") for question in DRAWN], fontsize=7.5
    )
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelleft=False)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    stripe_rows(axes, len(answers))
