"""Figures of the forecasts, and of the decision to continue or to scale up."""

from itertools import repeat

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from toposcale.analysis.methods import DEFAULTS, JOINT
from toposcale.analysis.series import configurations_of
from toposcale.features.names import STEP_LABEL
from toposcale.figures import panels
from toposcale.figures.style import INK, MUTED, STRIKING
from toposcale.forecasting.runs.metrics import LOSS_UNIT, TRAINING_LOSS, VALIDATION_LOSS

_MAX_PANELS = 12
_COLOURS = ("#e08e0b", STRIKING, "#0b2f6b", "#3a7d44")
"""Colours of the shares of training that forecasts read."""


def forecast_comparison(forecast_evaluation: pd.DataFrame) -> Figure:
    """Draw the mean absolute error of each method at each fraction of training, with its interval; best on top."""
    usable = panels.finite(forecast_evaluation, ["mae"])
    if usable.empty:
        return panels.missing_figure("no forecast could be scored")
    fractions = sorted(usable["fraction"].unique())
    order = usable.groupby("method")["mae"].mean().sort_values(kind="stable", ascending=False).index
    position = {method: index for index, method in enumerate(order)}
    figure = panels.new_figure(1.6 + 0.42 * len(order))
    axes = figure.subplots()
    offsets = np.linspace(0.24, -0.24, len(fractions)) if len(fractions) > 1 else np.zeros(1)
    for index, (fraction, offset) in enumerate(zip(fractions, offsets, strict=True)):
        rows = usable[usable["fraction"] == fraction]
        look = {"color": _COLOURS[index % len(_COLOURS)], "marker": "os^D"[index % 4], "label": f"{fraction:.0%}"}
        heights, ends = rows["method"].map(position).to_numpy() + offset, (rows["mae_low"], rows["mae_high"])
        panels.draw_intervals(axes, heights, rows["mae"], *ends, **look)
    axes.set_yticks(range(len(order)), [method.replace("_", " ") for method in order])
    axes.set_xscale("log")
    panels.plain_log_ticks(axes.xaxis)
    axes.set_xlabel(f"mean absolute error over models ({LOSS_UNIT}), with 95% interval")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside right upper", title="training read", alignment="left")
    unscored = sorted(set(forecast_evaluation["method"]) - set(usable["method"]))
    panels.add_note(figure, [f"No score for: {', '.join(unscored)}." if unscored else ""])
    return figure


def forecast_fans(
    forecasts: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, schedules: pd.DataFrame
) -> Figure:
    """Draw each model's loss, the forecasts of its end from where they were made, and the learning rate beneath."""
    validation, training = panels.metric_series(metrics, VALIDATION_LOSS), panels.metric_series(metrics, TRAINING_LOSS)
    losses = panels.finite(pd.concat([validation, training[~training["model"].isin(validation["model"])]]))
    usable = forecasts[(forecasts["fraction"] > 0) & forecasts["method"].isin(DEFAULTS)]
    usable = panels.finite(usable, ["forecast", "low", "high"])
    names = [name for name, _ in panels.in_order(usable["model"], models)]
    if not names:
        return panels.missing_figure("no forecast could be made")
    panel_models = _panel_models(names, models)
    drawn_forecasts = usable[usable["model"].isin(panel_models)].sort_values(
        "method", key=lambda names: names.map(DEFAULTS.index)
    )
    drawn_forecasts = drawn_forecasts.drop_duplicates(["model", "fraction"]).sort_values("fraction")
    columns = min(3, len(panel_models))
    rows = -(-len(panel_models) // columns)
    figure = panels.new_figure(0.6 + 2.9 * rows)
    grid = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=[2.6, 0.8] * rows, sharex=False)
    fractions = sorted(usable["fraction"].unique())
    are_distinct = len(fractions) <= len(_COLOURS)
    colours = dict(zip(fractions, _COLOURS if are_distinct else repeat(_COLOURS[0]), strict=False))
    pairs = list(zip(grid[::2].flat, grid[1::2].flat, strict=True))
    for (upper, lower), model in zip(pairs, panel_models, strict=False):
        final_step = int(models.loc[models["model"] == model, "final_step"].iloc[0])
        curve = losses[(losses["model"] == model) & (losses["step"] > 0)]
        _fans(upper, curve, drawn_forecasts[drawn_forecasts["model"] == model], final_step, colours)
        upper.set_title(model, fontsize=9)
        _rate(lower, schedules[schedules["model"] == model], final_step)
    for axes in (axes for pair in pairs[len(panel_models) :] for axes in pair):
        axes.set_axis_off()
    if are_distinct:
        keys = [Line2D([], [], color=colour, label=f"at {share:.0%}") for share, colour in colours.items()]
        panels.key_legend(figure, [Line2D([], [], color=INK, label="loss"), *keys], "forecast")
    n_missing = int(drawn_forecasts["n_missing"].sum()) if "n_missing" in drawn_forecasts else 0
    missing = f"Forecasts of single runs that are missing, left out of the medians: {n_missing}." if n_missing else ""
    panels.add_note(figure, [_more_models_note(names, "forecasts"), missing])
    return figure


def _panel_models(names: list[str], models: pd.DataFrame) -> list[str]:
    """Return the models with a panel, in order; of too many, one of each configuration takes precedence."""
    configurations = configurations_of(models)
    copies = pd.Series(names).groupby([configurations.get(name, name) for name in names]).cumcount()
    first_indices = copies.sort_values(kind="stable").index[:_MAX_PANELS]
    return [names[index] for index in sorted(first_indices)]


def _more_models_note(names: list[str], table: str) -> str:
    n_more = len(names) - _MAX_PANELS
    return f"{n_more} more models are in the table {table}." if n_more > 0 else ""


def _fans(
    axes: Axes, losses: pd.DataFrame, forecasts: pd.DataFrame, final_step: int, colours: dict[float, str]
) -> None:
    axes.plot(losses["step"], losses["value"], color=INK, linewidth=1.0)
    panels.draw_band(axes, losses["step"], losses, INK)
    tail = losses[losses["step"] >= 0.1 * final_step]["value"]
    lowest, highest = tail.min(), tail.max()
    for row in forecasts.to_dict("records"):
        colour, start = colours[row["fraction"]], row["fraction"] * final_step
        loss_at_start = float(np.interp(start, losses["step"], losses["value"])) if len(losses) > 1 else np.nan
        low = high = row["forecast"]
        if row["method"] == JOINT:  # the intervals of the power law cover too little to be drawn
            low, high = row["low"], row["high"]
            axes.fill([start, final_step, final_step], [loss_at_start, high, low], color=colour, alpha=0.2, linewidth=0)
        axes.plot([start, final_step], [loss_at_start, row["forecast"]], color=colour, linewidth=0.9)
        lowest, highest = min(lowest, low), max(highest, min(high, 1.1 * highest))
    if np.isfinite([lowest, highest]).all() and lowest < highest:
        margin = 0.05 * (highest - lowest)
        axes.set_ylim(lowest - margin, highest + margin)
    axes.set(xlim=(0, 1.02 * final_step), ylabel="loss (nats)")
    axes.tick_params(labelbottom=False)


def _rate(axes: Axes, schedule: pd.DataFrame, final_step: int) -> None:
    axes.set(xlim=(0, 1.02 * final_step), xlabel=STEP_LABEL, ylabel="rate\n(per step)")
    if schedule.empty:
        axes.text(0.5, 0.5, "schedule not known", transform=axes.transAxes, ha="center", va="center", color=MUTED)
        axes.set_yticks([])
        return
    axes.plot(schedule["step"], schedule["learning_rate"], color=MUTED, linewidth=1.2)
    axes.set_ylim(0, 1.1 * schedule["learning_rate"].max())
    axes.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))


def decision_candidates(candidates: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """Draw the final loss of every candidate of a run against its compute; only unfinished runs, if there are any."""
    usable = panels.finite(candidates, ["loss", "loss_low", "loss_high", "compute"])
    live = usable[usable["is_live"].astype(bool)]
    usable, suffix = (live, "") if len(live) else (usable, " (finished since)")
    names = [name for name, _ in panels.in_order(usable["model"], models)]
    if not names:
        return panels.missing_figure(
            "no run has anything to decide, or its curve allows no forecast: the table decisions says why"
        )
    panel_models = _panel_models(names, models)
    heights = [0.75 + 0.27 * int((usable["model"] == name).sum()) for name in panel_models]
    figure = panels.new_figure(0.7 + sum(heights))
    rows_of = figure.subplots(len(panel_models), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, model in zip(rows_of, panel_models, strict=True):
        rows = usable[usable["model"] == model].sort_values("loss", ascending=False)
        index = np.arange(len(rows))
        colours = [STRIKING if best else MUTED for best in rows["expected_regret"] == rows["expected_regret"].min()]
        axes.hlines(index, rows["loss_low"], rows["loss_high"], color=colours, linewidth=1.6)
        axes.scatter(rows["loss"], index, color=colours, zorder=3, s=22)
        labels = rows[["candidate", "compute", "probability"]].itertuples(index=False)
        panels.name_rows(axes, [f"{name}  ({flops:.1e} FLOP, best with {p:.0%})" for name, flops, p in labels])
        axes.set_title(f"{model} at {rows['fraction'].iloc[0]:.0%}{suffix}", fontsize=9, loc="left")
    rows_of[-1].set_xlabel(f"loss at the end ({LOSS_UNIT}), 95% interval of the law")
    panels.add_note(figure, [_more_models_note(names, "candidates")])
    return figure
