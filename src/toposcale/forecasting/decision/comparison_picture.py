"""Picture of a comparison of runs: their losses and forecasts, and the differences to the first one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from toposcale.forecasting.decision import picture
from toposcale.forecasting.decision.differences import Difference
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.runs.training_run import TrainingRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_comparison(
    runs: Sequence[TrainingRun],
    laws: Sequence[Joint | None],
    differences: Sequence[Sequence[Difference]],
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw runs with the forecasts of their laws, and their differences to the first one; into `ax` the runs alone."""
    colours = (picture.INK, *picture.OTHERS * len(runs))
    if ax is not None:
        _draw_runs(ax, runs, laws, colours)
        return ax
    rows = [(colour, row) for colour, of_run in zip(colours[1:], differences, strict=False) for row in of_run]
    known = [(colour, row) for colour, row in rows if not row.reason]
    figure = picture.new_figure(9.6, max(3.6, 0.3 * len(known)))
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    _draw_runs(left, runs, laws, colours)
    for place, (colour, row) in enumerate(known):
        right.plot([row.low, row.high], [place, place], color=colour)
        right.plot(row.value, place, "o", color=colour)
    right.axvline(0, color=picture.INK, linewidth=0.8)
    right.set_yticks(range(len(known)), [row.label for _, row in known], fontsize=8)
    right.set_ylim(max(len(known), 1) - 0.5, -0.5)
    right.set_xlabel("difference (nats per token)")
    right.set_title(f"loss minus that of {runs[0].model}, 95% intervals", fontsize=8)
    picture.finish(figure)
    return left


def _draw_runs(axes: "Axes", runs: Sequence[TrainingRun], laws: Sequence[Joint | None], colours: Sequence[str]) -> None:
    """Draw the losses of runs and their forecasts."""
    tokens = [run.tokens_per_step for run in runs]
    # At equal tokens, where a step reads more of them in one run than in another.
    are_tokens = len(set(tokens)) > 1 and bool(np.all(np.isfinite(tokens)))
    shown: list[float] = []
    for run, law, colour in zip(runs, laws, colours, strict=False):
        unit = run.tokens_per_step if are_tokens else 1.0
        shown += picture.plot_losses(axes, run, colour, run.model, unit)
        if law is not None:
            shown += picture.plot_forecast(axes, law.forecast_curve(run), colour, unit)
    if any(laws):
        axes.set_title("dashed: forecasts, 95% intervals", fontsize=8)
    picture.set_range(axes, shown)
    axes.set(xlabel="tokens" if are_tokens else "step", ylabel="loss (nats per token)")
    axes.legend(frameon=False, fontsize=8)
