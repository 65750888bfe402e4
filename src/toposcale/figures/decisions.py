"""Figures of a run's forecasts over its curve, and of what could be done with the compute that is left."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from toposcale.features.names import STEP_LABEL
from toposcale.features.registry import LOSS_UNIT
from toposcale.figures import panels
from toposcale.figures.forecasting import final_losses
from toposcale.figures.gallery import title_of
from toposcale.figures.style import INK, MUTED, STRIKING, model_appearances, styled
from toposcale.forecasting.methods import DEFAULTS

MOST_PANELS = 12
_COLOURS = ("#e08e0b", STRIKING, "#0b2f6b", "#3a7d44")


@styled
def forecast_fans(
    forecasts: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, schedules: pd.DataFrame
) -> Figure:
    """Each model's loss with the forecasts of its end as fans from where they were made, and the plan's rate beneath."""
    title = title_of("forecast_fans")
    losses = panels.finite(final_losses(metrics))
    made = forecasts[(forecasts["fraction"] > 0) & forecasts["method"].isin(DEFAULTS)]
    made = panels.finite(made, ["forecast", "low", "high"])
    names = _names(made, models)
    if not names:
        return panels.missing_figure(title, "no forecast could be made")
    shown = names[:MOST_PANELS]
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    figure = panels.new_figure(0.6 + 2.9 * rows, title)
    grid = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=[2.6, 0.8] * rows, sharex=False)
    fractions = sorted(made["fraction"].unique())
    colours = {fraction: _COLOURS[place % 4] for place, fraction in enumerate(fractions)}
    if len(fractions) > len(_COLOURS):
        colours = dict.fromkeys(fractions, _COLOURS[0])
    pairs = list(zip(grid[::2].flat, grid[1::2].flat, strict=True))
    for (upper, lower), model in zip(pairs, shown, strict=False):
        final = int(models.loc[models["model"] == model, "final_step"].iloc[0])
        curve = losses[(losses["model"] == model) & (losses["step"] > 0)]
        _fans(upper, curve, made[made["model"] == model], final, colours)
        upper.set_title(model, fontsize=9)
        _rate(lower, schedules[schedules["model"] == model], final)
    for axes in (axes for pair in pairs[len(shown) :] for axes in pair):
        axes.set_axis_off()
    if len(set(colours.values())) == len(colours):
        keys = [Line2D([], [], color=colour, label=f"at {share:.0%}") for share, colour in colours.items()]
        panels.key_legend(figure, [Line2D([], [], color=INK, label="loss"), *keys], "forecast")
    panels.add_note(figure, [_more(names, "forecasts")])
    return figure


def _names(rows: pd.DataFrame, models: pd.DataFrame) -> list[str]:
    return [name for name, _ in panels.in_order(rows["model"], model_appearances(models))]


def _more(names: list[str], table: str) -> str:
    more = len(names) - MOST_PANELS
    return f"{more} more models are in the table {table}." if more > 0 else ""


def _fans(axes: Axes, losses: pd.DataFrame, forecasts: pd.DataFrame, final: int, colours: dict[float, str]) -> None:
    axes.plot(losses["step"], losses["value"], color=INK, linewidth=1.0)
    tail = losses[losses["step"] >= 0.1 * final]["value"]
    lowest, highest = tail.min(), tail.max()
    by_default = forecasts.sort_values("method", key=lambda names: names.map(DEFAULTS.index))
    for row in by_default.drop_duplicates("fraction").sort_values("fraction").to_dict("records"):
        colour, start = colours[row["fraction"]], row["fraction"] * final
        at = float(np.interp(start, losses["step"], losses["value"])) if len(losses) > 1 else np.nan
        axes.fill([start, final, final], [at, row["high"], row["low"]], color=colour, alpha=0.2, linewidth=0)
        axes.plot([start, final], [at, row["forecast"]], color=colour, linewidth=0.9)
        lowest, highest = min(lowest, row["low"]), max(highest, min(row["high"], 1.1 * highest))
    if np.isfinite([lowest, highest]).all() and lowest < highest:
        margin = 0.05 * (highest - lowest)
        axes.set_ylim(lowest - margin, highest + margin)
    axes.set_xlim(0, 1.02 * final)
    axes.set_ylabel("loss (nats)")
    axes.tick_params(labelbottom=False)


def _rate(axes: Axes, schedule: pd.DataFrame, final: int) -> None:
    axes.set_xlim(0, 1.02 * final)
    axes.set_xlabel(STEP_LABEL)
    axes.set_ylabel("rate\n(per step)")
    if schedule.empty:
        axes.text(0.5, 0.5, "plan not known", transform=axes.transAxes, ha="center", va="center", color=MUTED)
        axes.set_yticks([])
        return
    axes.plot(schedule["step"], schedule["learning_rate"], color=MUTED, linewidth=1.2)
    axes.set_ylim(0, 1.1 * schedule["learning_rate"].max())
    axes.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))


@styled
def decision_candidates(candidates: pd.DataFrame, models: pd.DataFrame) -> Figure:
    """For each run, the loss at the end of every candidate against its compute, with intervals; live runs come alone."""
    title = title_of("decision_candidates")
    usable = panels.finite(candidates, ["loss", "loss_low", "loss_high", "compute"])
    live = usable[usable["is_live"].astype(bool)]
    usable, when = (live, "") if len(live) else (usable, " (finished since)")
    names = _names(usable, models)
    if not names:
        return panels.missing_figure(
            title, "no run has anything to decide, or its curve allows no forecast: the table decisions says why"
        )
    shown = names[:MOST_PANELS]
    heights = [0.75 + 0.27 * int((usable["model"] == name).sum()) for name in shown]
    figure = panels.new_figure(0.7 + sum(heights), title)
    rows_of = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, model in zip(rows_of, shown, strict=True):
        rows = usable[usable["model"] == model].sort_values("loss", ascending=False)
        _candidates(axes, rows)
        axes.set_title(f"{model} at {rows['fraction'].iloc[0]:.0%}{when}", fontsize=9, loc="left")
    rows_of[-1].set_xlabel(f"loss at the end of the remaining compute ({LOSS_UNIT}), the law's 95% interval")
    panels.add_note(figure, [_more(names, "candidates")])
    return figure


def _candidates(axes: Axes, rows: pd.DataFrame) -> None:
    place = np.arange(len(rows))
    colours = [STRIKING if best else MUTED for best in rows["at_stake"] == rows["at_stake"].min()]
    axes.hlines(place, rows["loss_low"], rows["loss_high"], color=colours, linewidth=1.6)
    axes.scatter(rows["loss"], place, color=colours, zorder=3, s=22)
    panels.name_rows(
        axes,
        [f"{row.candidate}  ({row.compute:.1e} FLOP, best with {row.probability:.0%})" for row in rows.itertuples()],
    )
