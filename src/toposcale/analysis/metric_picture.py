"""Picture of `test_metric`: a metric and the loss, their residuals, and the estimates with the power of the tests."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from toposcale.analysis.correlations import ControlledRun
from toposcale.forecasting.decision import picture
from toposcale.statistics.coefficients import Floats, standardised
from toposcale.statistics.prewhitening import prewhiten, with_squares

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRIC, LOSS = picture.OTHERS[0], picture.INK


def draw(answers: pd.DataFrame, runs: Sequence[ControlledRun], ax: "Axes | None" = None) -> "Figure":
    """Draw the first metric: series, residuals and estimates, or the estimates alone into `ax`."""
    metric = answers["metric"].iloc[0]
    rows = answers[answers["metric"] == metric]
    if ax is not None:
        draw_estimates(ax, rows)
        return ax.get_figure(root=True)  # type: ignore[return-value]
    figure = picture.new_figure(11.0, 3.6)
    series, residuals, estimates = figure.subplots(1, 3, width_ratios=[3, 3, 2.4])
    run = next((run for run in runs if run.test and metric in run.group.keys["feature"]), None)
    first = rows.iloc[0]
    if run is None:
        for axes in (series, residuals):
            axes.text(0.5, 0.5, "not tested", ha="center", transform=axes.transAxes)
    else:
        names = (metric, first["target"])
        draw_pair(series, run, names)
        series.set_title(
            f"{run.group.model}; over {first['n_runs']} runs a rank correlation of {first['spearman']:.2f}\n"
            f"(placebos, which share the drift alone, {first['spearman_placebo']:.2f})",
            fontsize=8,
        )
        metric_residuals, loss_residuals = prewhitened_pair(run, metric)
        residuals.plot(loss_residuals, metric_residuals, ".", color=METRIC, markersize=4)
        residuals.set(xlabel=names[1], ylabel=metric)
        residuals.set_title(
            f"its prewhitened residuals, given {first['given']};\nover the runs a correlation of {first['estimate']:.2f}",
            fontsize=8,
        )
    draw_estimates(estimates, rows)
    picture.finish(figure, f"{metric} and {first['target']}")
    return figure


def prewhitened_pair(run: ControlledRun, metric: str) -> Floats:
    """Return the residuals (2, m) of a metric and the loss of a run."""
    rows = np.vstack([run.segment.values[run.group.keys["feature"] == metric], run.segment.targets])
    return prewhiten(rows, with_squares(run.segment.controls), half_cosine=True).values


def draw_pair(axes: "Axes", run: ControlledRun, names: tuple[str, str]) -> None:
    """Draw a metric and the loss of a run in units of their standard deviations."""
    steps, metric = run.group.steps, run.group.values[run.group.keys["feature"] == names[0]]
    for values, name, colour in zip((run.group.targets, metric), names[::-1], (LOSS, METRIC), strict=True):
        axes.plot(steps, standardised(values)[0] * np.sqrt(len(steps)), color=colour, linewidth=1.1, label=name)
    axes.set(xlabel="step", ylabel="standard deviations")
    axes.legend(frameon=False, fontsize=8)


def draw_estimates(axes: "Axes", rows: pd.DataFrame) -> None:
    """Draw the estimate of each question with its interval; grey: what the test finds in less than 80% of cases."""
    for place, row in enumerate(rows.to_dict("records")):
        if np.isfinite(row["detectable"]):
            axes.barh(place, 2 * row["detectable"], left=-row["detectable"], height=0.6, color="0.9")
        if np.isfinite(row["estimate"]):
            axes.plot([row["low"], row["high"]], [place, place], color=METRIC)
            axes.plot(row["estimate"], place, "o", color=METRIC)
        axes.text(-0.97, place - 0.36, f"{row['question']}: {row['answer']}", fontsize=8, va="bottom")
    axes.axvline(0, color=LOSS, linewidth=0.8)
    axes.set(xlim=(-1, 1), ylim=(len(rows) - 0.4, -0.8), yticks=[], xlabel="correlation, 95% interval")
    axes.set_title("grey: found in less than 80% of cases", fontsize=8)
