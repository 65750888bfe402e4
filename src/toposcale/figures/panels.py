"""Parts that figures share: selections from the tables, lines per model, step axes, legends, notes."""

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from toposcale.analysis.series import all_in_nats, headline_metric, whole_model
from toposcale.features.feature import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.features.names import SPEARMAN_LABEL, STEP_LABEL, feature_label, metric_label, unit_of
from toposcale.figures.style import MUTED, SEVERAL_LOOKS, UNKNOWN_MODEL, WIDTH, Appearance, mark_of, model_appearances
from toposcale.forecasting.runs.metrics import VALIDATION_LOSS
from toposcale.io.schemas import METRIC_SOURCE

MAX_LEGEND = 24
COMPARED = dict(zip(("h0_total", WEIGHT_NORM.feature, NEURAL_PERSISTENCE.feature), SEVERAL_LOOKS, strict=False))
"""Features of the weights that figures set side by side, and how they are drawn there."""


def metric_series(metrics: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the rows (model, step, value, maybe low and high of a band) of a metric, by model and step."""
    return _over_training(metrics[metrics["metric"] == metric])


class LabelledSeries(NamedTuple):
    """Rows of one quantity, as `metric_series`, its axis label and its unit."""

    rows: pd.DataFrame
    label: str
    unit: str


def labelled(tables: Mapping[str, pd.DataFrame], source: str, name: str) -> LabelledSeries:
    """Return the series of a feature of the whole model or, for source "metric", of a metric."""
    in_nats = all_in_nats(tables.get("models", pd.DataFrame()))
    unit = unit_of(source, name, in_nats=in_nats)
    if source == METRIC_SOURCE:
        return LabelledSeries(metric_series(tables["metrics"], name), metric_label(name, in_nats=in_nats), unit)
    rows = whole_model(tables["features"])
    rows = _over_training(rows[(rows["feature"] == name) & (rows["source"] == source)])
    return LabelledSeries(rows, feature_label(name, source), unit)


def _over_training(table: pd.DataFrame) -> pd.DataFrame:
    names = [name for name in ("model", "step", "value", "low", "high") if name in table]
    return table[names].sort_values(["model", "step"])


def rows_of_largest_model(table: pd.DataFrame, models: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the rows of the largest model in the table, and its name; no rows and "" if there is none."""
    names = [name for name, _ in in_order(table["model"], models)]
    in_table = [name for name in names if name in set(models["model"])]
    largest = (in_table or names or [""])[-1]
    return table[table["model"] == largest], largest


def rows_of_last_checkpoint(table: pd.DataFrame, models: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the rows of the last step of the largest model, and a subtitle with both."""
    rows, model = rows_of_largest_model(table, models)
    last = rows[rows["step"] == rows["step"].max()]
    return last, f"{model}, step {last['step'].iloc[0]}" if len(last) else "no model"


def chosen_metric(present: Iterable[str], tasks: Sequence[str] = ()) -> str:
    """Return the metric of a figure, the headline metric of the verdicts."""
    return headline_metric(present, tasks) or VALIDATION_LOSS


def finite(table: pd.DataFrame, columns: Sequence[str] = ("value",)) -> pd.DataFrame:
    """Return the rows in which all the columns are finite."""
    return table[np.isfinite(table[list(columns)].to_numpy(dtype=float)).all(axis=1)]


def new_figure(height: float, title: str = "", *, width: float = WIDTH) -> Figure:
    """Create a figure of the report's width. `title`: what follows the title of its entry in the gallery."""
    figure = Figure(figsize=(width, height))
    set_title(figure, title)
    return figure


def set_title(figure: Figure, title: str) -> None:
    """Write the title of the figure at its left."""
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")


def missing_figure(reason: str, title: str = "") -> Figure:
    """Create a figure that says what is missing; its label is the reason with which the report leaves it out."""
    figure = new_figure(2.2, title)
    figure.set_label(reason)
    say_missing(figure.add_subplot(), reason)
    return figure


def say_missing(axes: Axes, reason: str) -> None:
    """Replace the content of a panel by the reason why there is none."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", va="center", color=MUTED, wrap=True)


def add_note(figure: Figure, notes: Iterable[str]) -> None:
    """Add small print beneath a figure, if there is any."""
    if text := "\n".join(note for note in notes if note):
        figure.supxlabel(text, x=0.01, ha="left", fontsize=8, color=MUTED)


def left_out_note(count: int) -> str:
    """Return the note on values that cannot be drawn."""
    if not count:
        return ""
    return f"{count} value{'s' if count > 1 else ''} not finite (NaN or infinite), left out of the lines."


def draw_lines(axes: Axes, series: pd.DataFrame, models: pd.DataFrame, **style: Any) -> tuple[list[str], int]:
    """Draw a line with its band per model; return the models drawn, in order, and the number of values left out."""
    drawn: list[str] = []
    left_out = 0
    for model, appearance, rows in by_model(series, models):
        values = rows["value"].to_numpy(dtype=float)
        bad = ~np.isfinite(values)
        left_out += int(bad.sum())
        if bad.all():
            continue
        spacing = max(1, len(values) // 12)
        marks = {"markevery": (len(drawn) % spacing, spacing), "label": model, "gid": mark_of(model)}
        axes.plot(rows["step"].to_numpy(), np.where(bad, np.nan, values), **(appearance.line | marks | style))
        draw_band(axes, rows["step"], rows, appearance.color)
        drawn.append(model)
    return drawn, left_out


def draw_band(axes: Axes, x: pd.Series, rows: pd.DataFrame, color: str) -> None:
    """Draw the band between the columns low and high of `rows`, if they have them."""
    if "low" in rows:
        axes.fill_between(x, rows["low"], rows["high"], color=color, alpha=0.15, linewidth=0)


def in_order(names: Iterable[str], models: pd.DataFrame) -> list[tuple[str, Appearance]]:
    """Return the names with the appearance of their model, smallest first; those not in `models` last, in grey."""
    present, appearances = set(names), model_appearances(models)
    shown = [(model, appearance) for model, appearance in appearances.items() if model in present]
    return shown + [(model, UNKNOWN_MODEL) for model in sorted(present - set(appearances))]


def by_model(table: pd.DataFrame, models: pd.DataFrame) -> list[tuple[str, Appearance, pd.DataFrame]]:
    """Return each model of a table, in this order, with its appearance and its rows."""
    return [
        (model, appearance, table[table["model"] == model]) for model, appearance in in_order(table["model"], models)
    ]


def new_grid(
    count: int, columns: int = 0, *, title: str = "", row_height: float = 2.6, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Create a figure with `count` panels in rows of at most `columns`, or all in one row."""
    columns = columns or count
    rows = -(-count // columns)
    figure = new_figure(row_height * rows + 0.8, title)
    panels = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for axes in panels[count:]:
        axes.set_axis_off()
    return figure, panels[:count]


def lettered(panels: Iterable[Axes], titles: Iterable[str], **style: Any) -> None:
    """Prepend a letter to each of the titles of panels."""
    for axes, letter, title in zip(panels, ascii_lowercase, titles, strict=False):
        axes.set_title(f"{letter}  {title}", **style)


def step_axis(axes: Axes, steps: Iterable[int]) -> None:
    """Set a linear step axis, or a logarithmic one if the steps span decades (symlog with a step 0)."""
    steps = np.unique(np.asarray(list(steps), dtype=float))
    axes.set_xlabel(STEP_LABEL)
    if spans_decades(steps):
        positive = steps[steps > 0]
        if len(positive) < len(steps):
            axes.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
        else:
            axes.set_xscale("log")
        decades = np.arange(np.ceil(np.log10(positive[0])), np.floor(np.log10(positive[-1])) + 1)
        axes.set_xticks(np.concatenate([steps[steps == 0], 10.0 ** decades[:: 2 if len(decades) > 5 else 1]]))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(short_number))


def spans_decades(steps: Iterable[float]) -> bool:
    """Return whether checkpoints are spaced by ratios, not differences: half of them in the first tenth."""
    steps = np.unique(np.asarray(list(steps), dtype=float))
    return len(steps) > 3 and bool(np.median(steps) < 0.1 * steps[-1])


def short_number(value: float, position: float | None = None) -> str:
    """Abbreviate a number: 12000 -> 12k, 143000 -> 143k, 3e9 -> 3G; small numbers as they are."""
    for power, letter in ((9, "G"), (6, "M"), (3, "k")):
        if abs(value) >= 10**power:
            return f"{value / 10**power:g}{letter}"
    return f"{value:g}"


def model_legend(
    figure: Figure, drawn: Iterable[str], models: pd.DataFrame, extra: Sequence[Line2D] = (), **style: Any
) -> None:
    """Add one legend for the whole figure at its right: the models drawn, smallest first, then `extra`."""
    entries = in_order(drawn, models)
    if len(entries) > MAX_LEGEND:
        # Models of one size have one colour, and share an entry.
        by_colour: dict[str, list[tuple[str, Appearance]]] = {}
        for model, appearance in entries:
            by_colour.setdefault(appearance.color, []).append((model, appearance))
        entries = [(f"{members[0][0]} and {len(members) - 1} more", members[0][1]) for members in by_colour.values()]
    handles = [Line2D([], [], label=model, **(appearance.line | style)) for model, appearance in entries]
    if handles or extra:
        figure.legend(handles=[*handles, *extra], loc="outside right upper", title="model", alignment="left")


def mark_key(label: str, **appearance: Any) -> Line2D:
    """Return a legend entry that is a marker without a line."""
    return Line2D([], [], linestyle="", label=label, **appearance)


def key_legend(figure: Figure, handles: Sequence[Any], title: str) -> None:
    """Add a second legend at the lower right, for entries that are not models."""
    if handles:
        figure.legend(handles=handles, loc="outside right lower", title=title, alignment="left")


def draw_intervals(axes: Axes, position: Any, estimate: Any, low: Any, high: Any, *, color: str, **style: Any) -> None:
    """Draw estimates as markers at heights `position`, and their finite intervals as horizontal bars."""
    axes.hlines(position, np.asarray(low), np.asarray(high), color=color, linewidth=1.2)
    axes.plot(estimate, position, linestyle="", color=color, **style)


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of a panel, the first at the bottom."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="y", visible=False)


def correlation_axis(axes: Axes, spread: str) -> None:
    """Set a horizontal axis of Spearman correlations, with a line at 0."""
    axes.axvline(0, color=MUTED, linewidth=0.8)
    axes.set(xlim=(-1.05, 1.05), xlabel=f"{SPEARMAN_LABEL}, {spread}")


def stripe_rows(axes: Axes, count: int) -> None:
    """Shade every second row."""
    for row in range(0, count, 2):
        axes.axhspan(row - 0.5, row + 0.5, color="#f5f5f5", zorder=0, linewidth=0)


def plain_log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis with 2 and 0.5 instead of powers of ten; call it after drawing."""
    low, high = axis.get_view_interval()
    narrow = high < 10 * low
    axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]) if narrow else LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(short_number))
    axis.set_minor_formatter(NullFormatter())
