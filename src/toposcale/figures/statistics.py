"""Figures of the analyses: correlation heat map, scaling, transitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from toposcale.analysis.controls import NOTHING
from toposcale.analysis.questions import NO, QUESTIONS, YES
from toposcale.analysis.series import whole_model
from toposcale.analysis.verdicts import family_of
from toposcale.features.names import (
    PARAMETERS_LABEL,
    SPEARMAN_LABEL,
    TRAINING_LOSS,
    VALIDATION_LOSS,
    feature_label,
    metric_label,
    metric_name,
    series_name,
)
from toposcale.features.registry import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.figures.gallery import title_of
from toposcale.figures.panels import (
    add_note,
    chosen_metric,
    feature_series,
    finite,
    heat_map,
    in_order,
    key_legend,
    last_step,
    mark_key,
    metric_series,
    missing_figure,
    model_legend,
    new_figure,
    plain_log_ticks,
    say_missing,
    step_axis,
    stripe_rows,
)
from toposcale.figures.style import (
    DIVERGING,
    MUTED,
    SEVERAL_COLOURS,
    STRIKING,
    Appearance,
    mark_of,
    model_appearances,
    styled,
)
from toposcale.io.schemas import METRIC_SOURCE

MAX_ROWS = 36


@styled
def correlation_heat_map(
    correlations: pd.DataFrame,
    models: pd.DataFrame,
    *,
    metric: str | None = None,
    max_rows: int = MAX_ROWS,
) -> Figure:
    """Spearman of whole-model features with a metric: features by models, the most negative on top."""
    metric = chosen_metric(correlations["metric"], metric)
    title = title_of("correlation_heat_map", metric_name(metric))
    chosen = whole_model(
        correlations[(correlations["metric"] == metric) & (correlations["control"] == NOTHING)]
    )
    if not np.isfinite(chosen["spearman"].to_numpy(dtype=float)).any():
        return missing_figure(title, f"no correlations with {metric_name(metric)}")
    order = [name for name, _ in in_order(chosen["model"], model_appearances(models))]
    table = chosen.pivot_table(index=["source", "feature"], columns="model", values="spearman", dropna=False)
    table = table.reindex(columns=order).dropna(how="all")
    shown = _strongest(table, max_rows)
    shown = shown.loc[shown.mean(axis=1).sort_values(kind="stable").index]
    figure = new_figure(1.4 + 0.215 * len(shown), title)
    axes = figure.subplots()
    heat_map(
        axes,
        shown,
        label=SPEARMAN_LABEL,
        colours=DIVERGING,
        rows=[series_name(source, feature) for source, feature in shown.index],
        limits=(-1, 1),
        texts=_texts(shown.to_numpy()),
        aspect=40,
        pad=0.02,
    )
    axes.set_xticks(np.arange(len(order)) + 0.5, order)
    axes.tick_params(length=0)
    undefined = int(shown.isna().sum().sum())
    add_note(
        figure,
        [
            f"The {len(shown)} strongest of {len(table)} features." if len(shown) < len(table) else "",
            f"{undefined} correlations undefined (constant or missing series): empty cells."
            if undefined
            else "",
        ],
    )
    return figure


def _strongest(table: pd.DataFrame, count: int) -> pd.DataFrame:
    """The rows of largest mean |value|, and always the plain weight norm, their yardstick."""
    strength = table.abs().mean(axis=1)
    norm = ("weights", WEIGHT_NORM.feature)
    if norm in table.index:
        strength.loc[norm] = np.inf
    return table.loc[strength.nlargest(count).index]


def _texts(values: np.ndarray) -> np.ndarray:
    """The number in each cell with its sign; zero without one."""
    signed = np.vectorize(lambda value: f"{value:+.2f}".replace("-", "−"), otypes=[object])(values)
    signed[np.abs(values) < 0.005] = "0.00"
    return signed


SCALED = (
    (METRIC_SOURCE, VALIDATION_LOSS, "a  Final validation loss"),
    ("weights", "h0_total", "b  H₀ total persistence"),
    ("weights", NEURAL_PERSISTENCE.feature, "c  Neural persistence"),
    ("weights", WEIGHT_NORM.feature, "d  Weight norm"),
)
"""Source, feature or metric, and panel title of what is drawn against model size."""


@styled
def scaling(
    features: pd.DataFrame, metrics: pd.DataFrame, scaling: pd.DataFrame, models: pd.DataFrame
) -> Figure:
    """Final loss, H0, neural persistence and weight norm against model size, with their power laws a N^b."""
    appearances = model_appearances(models)
    figure = new_figure(6.2, title_of("scaling"))
    drawn: set[str] = set()
    laws = whole_model(scaling[scaling["law"] == "power_law"])
    left_out = 0
    for axes, (source, name, title) in zip(figure.subplots(2, 2).flat, SCALED, strict=True):
        axes.set_title(title)
        if source == METRIC_SOURCE:
            series, label = metric_series(metrics, name), metric_label(name)
        else:
            series, label = feature_series(features, name), feature_label(name)
        last = last_step(series).merge(models[["model", "n_parameters"]], on="model")
        points = finite(last)
        points = points[points["value"] > 0]
        left_out += len(last) - len(points)
        if points.empty:
            say_missing(axes, f"no values of: {label}")
            continue
        drawn.update(points["model"])
        _scaling_panel(axes, points, appearances, label)
        _draw_power_law(axes, points, laws[(laws["source"] == source) & (laws["feature"] == name)])
    model_legend(figure, drawn, {name: replace(look, linestyle="") for name, look in appearances.items()})
    add_note(figure, [f"{left_out} final values not finite or not positive, left out." if left_out else ""])
    return figure


def _scaling_panel(axes: Axes, points: pd.DataFrame, appearances: dict[str, Appearance], label: str) -> None:
    for model, look in in_order(points["model"], appearances):
        point = points[points["model"] == model]
        axes.plot(
            point["n_parameters"],
            point["value"],
            linestyle="",
            marker=look.marker,
            color=look.color,
            markersize=7,
            gid=mark_of(model),
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(PARAMETERS_LABEL)
    plain_log_ticks(axes.xaxis)
    plain_log_ticks(axes.yaxis)
    axes.set_ylabel(label)


def _draw_power_law(axes: Axes, points: pd.DataFrame, fit: pd.DataFrame) -> None:
    """The fitted line under the points, and its exponent, interval and R² in words."""
    if fit.empty or not np.isfinite(fit[["coefficient", "exponent"]].to_numpy(dtype=float)[0]).all():
        axes.text(0.03, 0.04, "no fit", transform=axes.transAxes, color=MUTED)
        return
    row = fit.iloc[0]
    sizes = np.geomspace(points["n_parameters"].min(), points["n_parameters"].max(), 50)
    axes.plot(sizes, row["coefficient"] * sizes ** row["exponent"], color=MUTED, linewidth=1, zorder=1)
    words = (
        f"exponent {row['exponent']:+.3f},  95% [{row['exponent_low']:+.3f}, {row['exponent_high']:+.3f}]\n"
        f"R² = {row['r_squared']:.3f}"
    ).replace("-", "−")
    rising = row["exponent"] > 0
    axes.text(
        0.97 if rising else 0.03, 0.04, words, transform=axes.transAxes, ha="right" if rising else "left",
        va="bottom", fontsize=8,
    )  # fmt: skip


TRANSITIONING = (
    (METRIC_SOURCE, TRAINING_LOSS),
    (METRIC_SOURCE, VALIDATION_LOSS),
    ("weights", WEIGHT_NORM.feature),
    ("weights", NEURAL_PERSISTENCE.feature),
    ("weights", "h0_total"),
    ("weights", "h1_total"),
)
"""Source and feature (or metric) of the rows of the transition figure."""


@styled
def transitions(transitions: pd.DataFrame, change_points: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """When each series changes most and when it settles (the paper's rule), and its change points."""
    title = title_of("transitions")
    wanted = [*reversed(TRANSITIONING)]
    rows, points = (_of_series(table, wanted) for table in (transitions, change_points))
    rows = finite(rows, ["transition_step"])
    if rows.empty and points.empty:
        return missing_figure(title, "no transition of the losses, norms or persistences was found")
    appearances = model_appearances(models)
    present = in_order([*rows["model"], *points["model"]], appearances)
    places = [key for key in wanted if key in {*rows["key"], *points["key"]}]
    figure = new_figure(1.4 + len(places) * max(0.55, 0.13 * len(present)), title)
    axes = figure.subplots()
    offsets = np.linspace(0.32, -0.32, len(present)) if len(present) > 1 else np.zeros(1)
    for (model, look), offset in zip(present, offsets, strict=True):
        own, kinks, mark = rows[rows["model"] == model], points[points["model"] == model], mark_of(model)
        heights = own["key"].map(places.index).to_numpy(dtype=float) + offset
        axes.hlines(
            heights, own["transition_step"], own["settled_step"], color=look.color, linewidth=1.6, gid=mark
        )
        axes.plot(own["transition_step"], heights, look.marker, color=look.color, gid=mark)
        heights = kinks["key"].map(places.index).to_numpy(dtype=float) + offset
        axes.plot(kinks["step"], heights, "|", color=look.color, markersize=7, markeredgewidth=1.2, gid=mark)
    axes.set_yticks(range(len(places)), [series_name(*key) for key in places])
    axes.set_ylim(-0.6, len(places) - 0.4)
    axes.grid(axis="y", visible=False)
    stripe_rows(axes, len(places))
    step_axis(axes, [*rows["transition_step"], *rows["settled_step"].dropna(), *points["step"]])
    model_legend(
        figure, [m for m, _ in present], {m: replace(a, linestyle="") for m, a in appearances.items()}
    )
    key_legend(figure, _TRANSITION_KEYS, "")
    return figure


_TRANSITION_KEYS = [
    Line2D([], [], color=MUTED, marker="o", markevery=[0], label="largest change,\nuntil settled"),
    mark_key("change point", color=MUTED, marker="|", markersize=7),
]


def _of_series(table: pd.DataFrame, wanted: list[tuple[str, str]]) -> pd.DataFrame:
    """Whole-model rows of the wanted (source, feature), with both in a column `key`."""
    rows = whole_model(table)
    keys = list(zip(rows["source"], rows["feature"], strict=True))
    rows = rows.assign(key=pd.Series(keys, index=rows.index, dtype=object))
    return rows[rows["key"].isin(wanted)]


@styled
def power(
    power: pd.DataFrame, sensitivity: pd.DataFrame, verdicts: pd.DataFrame, *, metric: str | None = None
) -> Figure:
    """Share of simulated features that this run finds, by the strength of the relation, beside the features measured."""
    metric = chosen_metric(verdicts["metric"], metric)
    title = title_of("power", metric_name(metric))
    rows = sensitivity.set_index("question") if len(sensitivity) else sensitivity
    asked = [question for name, question in QUESTIONS.items() if name in set(power["question"])]
    if not asked:
        reasons = [reason for reason in sensitivity["reason"] if reason]
        return missing_figure(title, f"no feature was tested{f': {reasons[0]}' if reasons else ''}")
    figure = new_figure(3.4, title)
    panels = figure.subplots(1, len(asked), sharey=True, squeeze=False)[0]
    family = family_of(verdicts, metric)
    for axes, question in zip(panels, asked, strict=True):
        curve, own = power[power["question"] == question.name], rows.loc[question.name]
        axes.plot(curve["measured"], 100 * curve["found"], color=SEVERAL_COLOURS[0], marker="o", markersize=3)
        axes.axhline(80, color=MUTED, linewidth=0.8, linestyle=":")
        if np.isfinite(own["detectable"]):
            axes.axvline(own["detectable"], color=MUTED, linewidth=0.8, linestyle=":")
            text = f"{own['detectable']:.2f}"
            axes.annotate(
                text, (own["detectable"], 2), xytext=(4, 0), textcoords="offset points", color=MUTED
            )
        tested = family[family["question"] == question.name]
        for answer, colour in ((NO, MUTED), (YES, STRIKING)):
            seen = tested.loc[tested["answer"] == answer, "estimate"].abs()
            height = 12 if answer == YES else 7
            axes.plot(seen, np.full(len(seen), -height), "|", color=colour, markersize=9, markeredgewidth=1.4)
        axes.plot(own["correlation"], -10, "D", color=SEVERAL_COLOURS[2], markersize=6)
        axes.set_title(f"{question.given}: {own['n_tested']} features, {own['n_runs']} runs")
        axes.set(xlim=(-0.02, 1), ylim=(-18, 103), yticks=range(0, 101, 20))
        axes.set_xlabel("correlation of innovations (size, 0 to 1)")
    panels[0].set_ylabel("found (%)")
    keys = [
        Line2D([], [], color=SEVERAL_COLOURS[0], marker="o", markersize=3, label="found of\nsimulated"),
        mark_key("measured,\nnot found", color=MUTED, marker="|", markersize=8),
        mark_key("measured,\nfound", color=STRIKING, marker="|", markersize=8),
        mark_key("positive\ncontrol", color=SEVERAL_COLOURS[2], marker="D"),
    ]
    key_legend(figure, keys, "")
    return figure
