"""Figures of the analyses: verdicts, scaling."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from toposcale.analysis.controls import NOT_TESTED, NOTHING, YES, questions
from toposcale.analysis.series import largest_family, whole_model
from toposcale.analysis.verdicts import pooled_verdicts
from toposcale.features import names
from toposcale.features.feature import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.figures import panels
from toposcale.figures.style import INK, MUTED, SEVERAL_LOOKS, mark_of
from toposcale.forecasting.runs.metrics import VALIDATION_LOSS, metric_name
from toposcale.io.schemas import METRIC_SOURCE

MIN_SIZES = 3
DRAWN = [control for control in questions() if control.legend]
"""Questions that are tested for every feature."""
MAX_VERDICTS = 20


SCALED = {
    (METRIC_SOURCE, VALIDATION_LOSS): "Final validation loss",
    ("weights", "h0_total"): "H₀ total persistence",
    ("weights", NEURAL_PERSISTENCE.feature): "Neural persistence",
    ("weights", WEIGHT_NORM.feature): "Weight norm",
}
"""Panel title of each source and feature, or metric, that is drawn against model size."""


def scaling(features: pd.DataFrame, metrics: pd.DataFrame, scaling: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw final loss, H0, neural persistence and weight norm against model size, with their power laws a N^b."""
    models = largest_family(models)
    if (n_sizes := models["n_parameters"].nunique()) < MIN_SIZES:
        return panels.missing_figure(f"a power law needs {MIN_SIZES} sizes of one family, and this run has {n_sizes}")
    figure, axes_of = panels.new_grid(len(SCALED), 2, row_height=2.7)
    panels.lettered(axes_of, SCALED.values())
    drawn: set[str] = set()
    laws = whole_model(scaling[scaling["law"] == "power_law"])
    left_out = 0
    for axes, (source, name) in zip(axes_of, SCALED, strict=True):
        series, label, _ = panels.labelled({"metrics": metrics, "features": features, "models": models}, source, name)
        last = series.sort_values("step").groupby("model").tail(1).merge(models[["model", "n_parameters"]], on="model")
        points = panels.finite(last)
        points = points[points["value"] > 0]
        left_out += len(last) - len(points)
        if points.empty:
            panels.say_missing(axes, f"no values of: {label}")
            continue
        drawn.update(points["model"])
        for model, look, point in panels.by_model(points, models):
            style = look.line | {"linestyle": "", "markersize": 7, "gid": mark_of(model)}
            axes.plot(point["n_parameters"], point["value"], **style)
        axes.set(xscale="log", yscale="log", xlabel=names.PARAMETERS_LABEL, ylabel=label)
        _draw_power_law(axes, points, laws[(laws["source"] == source) & (laws["feature"] == name)])
        # The words below have a fifth of the height to themselves, under every marker.
        low, high = axes.get_ylim()
        axes.set_ylim(low * (low / high) ** 0.25, high)
        for axis in (axes.xaxis, axes.yaxis):
            panels.plain_log_ticks(axis)
    panels.model_legend(figure, drawn, models, linestyle="")
    note = f"{left_out} final values not finite or not positive, left out."
    panels.add_note(figure, [note if left_out else ""])
    return figure


def _draw_power_law(axes: Axes, points: pd.DataFrame, fit: pd.DataFrame) -> None:
    """Draw the fitted line, and write its exponent, interval and R²."""
    if fit.empty or not np.isfinite(fit[["coefficient", "exponent"]].to_numpy(dtype=float)[0]).all():
        axes.text(0.03, 0.04, "no fit", transform=axes.transAxes, color=MUTED)
        return
    row = fit.iloc[0]
    grid = np.geomspace(points["n_parameters"].min(), points["n_parameters"].max(), 50)
    axes.plot(grid, row["coefficient"] * grid ** row["exponent"], color=MUTED, linewidth=1, zorder=1)
    text = (
        f"exponent {row['exponent']:+.3f},  95% [{row['exponent_low']:+.3f}, {row['exponent_high']:+.3f}]\n"
        f"R² = {row['r_squared']:.3f}"
    ).replace("-", "−")
    axes.text(0.03, 0.04, text, transform=axes.transAxes, va="bottom", fontsize=8)


def verdict(verdicts: pd.DataFrame, pooled_correlations: pd.DataFrame, *, tasks: Sequence[str] = ()) -> Figure:
    """Draw the correlations with the loss, raw and partial, and the answers; the closest followers of the loss first."""
    metric = panels.chosen_metric(verdicts["metric"], tasks)
    title = f"{metric_name(metric)}, all runs together"
    key = ["source", "feature"]
    answers = pooled_verdicts(verdicts, metric).pivot(index=key, columns="question", values="answer")
    pooled = whole_model(pooled_correlations[pooled_correlations["metric"] == metric])
    by_question = {drawn.question: pooled[pooled["control"] == drawn.name].set_index(key) for drawn in DRAWN}
    plain = panels.finite(by_question["follows_the_loss"], ["spearman"])
    if plain.empty:
        return panels.missing_figure(f"no verdicts on correlations with {metric_name(metric)}", title)
    strength = plain["spearman"].abs().sort_values(kind="stable")
    keep = list(strength.index[-MAX_VERDICTS:])
    norm = (WEIGHT_NORM.source, WEIGHT_NORM.feature)
    if norm in strength.index and norm not in keep:
        keep = [norm, *keep[1:]]  # the baseline is always shown
    figure = panels.new_figure(2.0 + 0.3 * len(keep), title)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2.3, 2.1])
    rows_by_question = {name: rows.reindex(pd.MultiIndex.from_tuples(keep)) for name, rows in by_question.items()}
    keys = _estimates(left, rows_by_question)
    panels.name_rows(left, [names.series_name(*key) for key in keep])
    _answers(right, answers.loc[keep])
    panels.key_legend(figure, keys, "correlation")
    undefined = sum(int(rows["spearman"].isna().sum()) for rows in rows_by_question.values())
    notes = [
        f"The {len(keep)} that follow most closely, of {len(plain)} features." if len(plain) > len(keep) else "",
        "Beyond: the test of prewhitened residuals with a q of at most 0.05, not the correlation drawn here.",
        f"{undefined} correlations undefined (the norm given itself, constant series)." if undefined else "",
    ]
    panels.add_note(figure, notes)
    return figure


def _estimates(axes: Axes, rows_by_question: dict[str, pd.DataFrame]) -> list[Line2D]:
    keys = []
    for index, control in enumerate(DRAWN):
        look, rows = SEVERAL_LOOKS[index], rows_by_question[control.question]
        ends = ("spearman_lowest", "spearman_highest") if control.name == NOTHING else ("spearman",) * 2
        heights = np.arange(len(rows)) + 0.25 * (1 - index)
        panels.draw_intervals(axes, heights, rows["spearman"], *(rows[end] for end in ends), **look)
        keys.append(panels.mark_key(control.legend.replace(" the", "\nthe"), **look))
    panels.correlation_axis(axes, "median and range over configurations")
    axes.tick_params(axis="y", length=0)
    panels.stripe_rows(axes, len(rows))
    return keys


def _answers(axes: Axes, answers: pd.DataFrame) -> None:
    """Draw yes, no or not tested for each question."""
    styles: dict[str, Any] = {
        YES: {"fontweight": "bold", "color": INK},
        NOT_TESTED: {"fontstyle": "italic", "color": MUTED, "fontsize": 6.5, "linespacing": 0.9},
    }
    for column, control in enumerate(DRAWN):
        for row, answer in enumerate(answers[control.question]):
            text = answer.replace(" ", "\n")
            axes.text(column, row, text, ha="center", va="center", **styles.get(answer, {"color": MUTED}))
    axes.set_xlim(-0.6, len(DRAWN) - 0.4)
    axes.set_xticks(range(len(DRAWN)), [control.title.replace(" ", "\n") for control in DRAWN], fontsize=7.5)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelleft=False)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    panels.stripe_rows(axes, len(answers))
