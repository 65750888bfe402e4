"""Figures of the analyses: correlation heat map, scaling."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from toposcale.analysis.controls import NOTHING
from toposcale.analysis.series import whole_model
from toposcale.features import names
from toposcale.features.registry import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.figures import panels
from toposcale.figures.style import DIVERGING, MUTED, mark_of
from toposcale.io.schemas import METRIC_SOURCE

MAX_ROWS = 36


def correlation_heat_map(correlations: pd.DataFrame, models: pd.DataFrame, *, metric: str | None = None) -> Figure:
    """Draw the Spearman correlations of whole-model features with a metric: features by models, the lowest on top."""
    metric = panels.chosen_metric(correlations["metric"], metric)
    title = names.metric_name(metric)
    chosen = whole_model(correlations[(correlations["metric"] == metric) & (correlations["control"] == NOTHING)])
    if panels.finite(chosen, ["spearman"]).empty:
        return panels.missing_figure(f"no correlations with {names.metric_name(metric)}", title)
    order = [name for name, _ in panels.in_order(chosen["model"], models)]
    table = chosen.pivot_table(index=["source", "feature"], columns="model", values="spearman", dropna=False)
    table = table.reindex(columns=order).dropna(how="all")
    strength = table.abs().mean(axis=1)
    norm = (WEIGHT_NORM.source, WEIGHT_NORM.feature)
    if norm in table.index:
        strength.loc[norm] = np.inf  # the yardstick is always there
    shown = table.loc[strength.nlargest(MAX_ROWS).index]
    shown = shown.loc[shown.mean(axis=1).sort_values(kind="stable").index]
    figure = panels.new_figure(1.4 + 0.215 * len(shown), title)
    axes = figure.subplots()
    panels.heat_map(
        axes, shown, {"label": names.SPEARMAN_LABEL, "aspect": 40, "pad": 0.02}, cmap=DIVERGING, vmin=-1, vmax=1,
        yticklabels=[names.series_name(*key) for key in shown.index],
        annot=_texts(shown.to_numpy()), fmt="", annot_kws={"fontsize": 7.5},
    )  # fmt: skip
    axes.set_xticks(np.arange(len(order)) + 0.5, order)
    axes.tick_params(length=0)
    undefined = int(shown.isna().sum().sum())
    empty = f"{undefined} correlations undefined (constant or missing series): empty cells."
    panels.add_note(figure, [panels.strongest_note(len(shown), len(table)), empty if undefined else ""])
    return figure


def _texts(values: np.ndarray) -> np.ndarray:
    """Return the signed number in each cell; zero has no sign."""
    signed = np.vectorize(lambda value: f"{value:+.2f}".replace("-", "−"), otypes=[object])(values)
    signed[np.abs(values) < 0.005] = "0.00"
    return signed


SCALED = {
    (METRIC_SOURCE, names.VALIDATION_LOSS): "Final validation loss",
    ("weights", "h0_total"): "H₀ total persistence",
    ("weights", NEURAL_PERSISTENCE.feature): "Neural persistence",
    ("weights", WEIGHT_NORM.feature): "Weight norm",
}
"""Panel title of each source and feature, or metric, that is drawn against model size."""


def scaling(features: pd.DataFrame, metrics: pd.DataFrame, scaling: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw final loss, H0, neural persistence and weight norm against model size, with their power laws a N^b."""
    figure, axes_of = panels.new_grid(len(SCALED), 2, row_height=2.7)
    panels.lettered(axes_of, SCALED.values())
    drawn: set[str] = set()
    laws = whole_model(scaling[scaling["law"] == "power_law"])
    left_out = 0
    for axes, (source, name) in zip(axes_of, SCALED, strict=True):
        series, label = panels.labelled({"metrics": metrics, "features": features}, source, name)
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
        for axis in (axes.xaxis, axes.yaxis):
            panels.plain_log_ticks(axis)
        _draw_power_law(axes, points, laws[(laws["source"] == source) & (laws["feature"] == name)])
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
    (METRIC_SOURCE, names.TRAINING_LOSS),
    (METRIC_SOURCE, names.VALIDATION_LOSS),
    ("weights", WEIGHT_NORM.feature),
    ("weights", NEURAL_PERSISTENCE.feature),
    ("weights", "h0_total"),
    ("weights", "h1_total"),
)
"""Source and feature (or metric) of the rows of the transition figure."""


def transitions(transitions: pd.DataFrame, change_points: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """When each series changes most and when it settles, and its change points."""
    wanted = [*reversed(TRANSITIONING)]
    rows, points = (_of_series(table, wanted) for table in (transitions, change_points))
    rows = panels.finite(rows, ["transition_step"])
    if rows.empty and points.empty:
        return panels.missing_figure("no transition of the losses, norms or persistences was found")
    present = panels.in_order([*rows["model"], *points["model"]], models)
    places = [key for key in wanted if key in {*rows["key"], *points["key"]}]
    figure = panels.new_figure(1.4 + len(places) * max(0.55, 0.13 * len(present)))
    axes = figure.subplots()
    offsets = np.linspace(0.32, -0.32, len(present)) if len(present) > 1 else np.zeros(1)
    for (model, look), offset in zip(present, offsets, strict=True):
        changes, kinks = rows[rows["model"] == model], points[points["model"] == model]
        height, kink = (part["key"].map(places.index).to_numpy(dtype=float) + offset for part in (changes, kinks))
        mark: dict[str, Any] = {"color": look.color, "gid": mark_of(model)}
        axes.hlines(height, changes["transition_step"], changes["settled_step"], linewidth=1.6, **mark)
        axes.plot(changes["transition_step"], height, look.marker, **mark)
        axes.plot(kinks["step"], kink, "|", markersize=7, markeredgewidth=1.2, **mark)
    panels.name_rows(axes, [names.series_name(*key) for key in places])
    panels.stripe_rows(axes, len(places))
    panels.step_axis(axes, [*rows["transition_step"], *rows["settled_step"].dropna(), *points["step"]])
    panels.model_legend(figure, [model for model, _ in present], models, linestyle="")
    keys = [
        Line2D([], [], color=MUTED, marker="o", markevery=[0], label="largest change,\nuntil settled"),
        panels.mark_key("change point", color=MUTED, marker="|", markersize=7),
    ]
    panels.key_legend(figure, keys, "")
    return figure


def _of_series(table: pd.DataFrame, wanted: list[tuple[str, str]]) -> pd.DataFrame:
    """Whole-model rows of the wanted (source, feature), with both in a column `key`."""
    rows = whole_model(table)
    keys = pd.Series([*zip(rows["source"], rows["feature"], strict=True)], index=rows.index, dtype=object)
    return rows.assign(key=keys)[keys.isin(wanted)]
