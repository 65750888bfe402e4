"""Figure of the verdicts on the features."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from toposcale.analysis.controls import NOTHING
from toposcale.analysis.questions import NOT_TESTED, QUESTIONS, YES
from toposcale.analysis.series import whole_model
from toposcale.analysis.verdicts import pooled_verdicts
from toposcale.features.names import metric_name, series_name
from toposcale.features.registry import WEIGHT_NORM
from toposcale.figures import panels
from toposcale.figures.style import INK, MUTED, SEVERAL_LOOKS

DRAWN = [question for question in QUESTIONS.values() if question.given]
"""Questions that are tested for every feature."""
MAX_ROWS = 20


def verdict(verdicts: pd.DataFrame, pooled_correlations: pd.DataFrame, *, metric: str | None = None) -> Figure:
    """Draw the correlations with the loss, raw and partial, and the answers; the closest followers of the loss first."""
    metric = panels.chosen_metric(verdicts["metric"], metric)
    title = f"{metric_name(metric)}, all runs together"
    key = ["source", "feature"]
    answers = pooled_verdicts(verdicts, metric).pivot(index=key, columns="question", values="answer")
    pooled = whole_model(pooled_correlations[pooled_correlations["metric"] == metric])
    by_question = {question.name: pooled[pooled["control"] == question.control].set_index(key) for question in DRAWN}
    plain = panels.finite(by_question["follows_the_loss"], ["spearman"])
    if plain.empty:
        return panels.missing_figure(f"no verdicts on correlations with {metric_name(metric)}", title)
    strength = plain["spearman"].abs().sort_values(kind="stable")
    keep = list(strength.index[-MAX_ROWS:])
    norm = (WEIGHT_NORM.source, WEIGHT_NORM.feature)
    if norm in strength.index and norm not in keep:
        keep = [norm, *keep[1:]]  # the baseline is always shown
    figure = panels.new_figure(2.0 + 0.3 * len(keep), title)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2.3, 2.1])
    shown = {name: rows.reindex(pd.MultiIndex.from_tuples(keep)) for name, rows in by_question.items()}
    keys = _estimates(left, shown)
    panels.name_rows(left, [series_name(*key) for key in keep])
    _answers(right, answers.loc[keep])
    panels.key_legend(figure, keys, "correlation")
    undefined = sum(int(rows["spearman"].isna().sum()) for rows in shown.values())
    notes = [
        f"The {len(keep)} that follow most closely, of {len(plain)} features." if len(plain) > len(keep) else "",
        "Beyond: the test of prewhitened residuals with a q of at most 0.05, not the correlation drawn here.",
        f"{undefined} correlations undefined (the norm given itself, constant series)." if undefined else "",
    ]
    panels.add_note(figure, notes)
    return figure


def _estimates(axes: Axes, shown: dict[str, pd.DataFrame]) -> list[Line2D]:
    keys = []
    for index, question in enumerate(DRAWN):
        look, rows = SEVERAL_LOOKS[index], shown[question.name]
        ends = ("spearman_lowest", "spearman_highest") if question.control == NOTHING else ("spearman",) * 2
        heights = np.arange(len(rows)) + 0.25 * (1 - index)
        panels.draw_intervals(axes, heights, rows["spearman"], *(rows[end] for end in ends), **look)
        keys.append(panels.mark_key(question.given.replace(" the", "\nthe"), **look))
    panels.correlation_axis(axes, "median and range over configurations")
    axes.tick_params(axis="y", length=0)
    panels.stripe_rows(axes, len(rows))
    return keys


def _answers(axes: Axes, answers: pd.DataFrame) -> None:
    """Draw yes, no or not tested for each question."""
    looks: dict[str, Any] = {
        YES: {"fontweight": "bold", "color": INK},
        NOT_TESTED: {"fontstyle": "italic", "color": MUTED, "fontsize": 6.5, "linespacing": 0.9},
    }
    for column, question in enumerate(DRAWN):
        for row, answer in enumerate(answers[question.name]):
            words = answer.replace(" ", "\n")
            axes.text(column, row, words, ha="center", va="center", **looks.get(answer, {"color": MUTED}))
    axes.set_xlim(-0.6, len(DRAWN) - 0.4)
    axes.set_xticks(range(len(DRAWN)), [question.title.replace(" ", "\n") for question in DRAWN], fontsize=7.5)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelleft=False)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    panels.stripe_rows(axes, len(answers))
