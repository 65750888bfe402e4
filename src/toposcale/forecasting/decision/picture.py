"""Picture of an advice: the losses so far, the forecast of the rest, and what follows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toposcale.forecasting.decision.decay import DecayDecision
from toposcale.forecasting.decision.expected_regret import WeighedCandidate
from toposcale.forecasting.laws.law import ForecastCurve
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import needs_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#222222"
"""Colour of the losses of the run."""
CONTINUED = "#0b2f6b"
"""Colour of the forecast of the run."""
OTHERS = ("#b0347a", "#e08e0b", "#3a7d44", "#6b6b6b")
"""Colours of other runs and candidates."""


def draw(
    run: TrainingRun,
    forecast: ForecastCurve | None,
    candidates: Sequence[WeighedCandidate],
    decay: DecayDecision | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw a run, its forecast, its candidates, and the final loss by the start of the decay; into `ax` the run alone."""
    if ax is not None:
        _draw_run(ax, run, forecast, candidates)
        return ax
    figure = new_figure(9.6 if decay else 7.2)
    left, right, *rest = figure.subplots(1, 3 if decay else 2, width_ratios=[3, 1, 2][: 3 if decay else 2])
    right.sharey(left)
    right.tick_params(labelleft=False)
    _draw_run(left, run, forecast, candidates)
    colours = iter(OTHERS * len(candidates))
    for index, weighed in enumerate(candidates):
        colour = next(colours) if weighed.candidate.from_scratch else CONTINUED
        right.plot([index, index], [weighed.loss.low, weighed.loss.high], color=colour)
        right.plot(index, weighed.loss.value, "o", color=colour)
    names = [weighed.candidate.name.replace("scale up to ", "from scratch:\n") for weighed in candidates]
    right.set_xticks(range(len(candidates)), names, rotation=90 if len(candidates) > 2 else 0, fontsize=8)
    right.set(xlim=(-0.5, max(len(candidates), 1) - 0.5))
    right.set_title("at the end", fontsize=8)
    if decay:
        _draw_decays(rest[0], decay)
    finish(figure)
    return left


def _draw_run(
    axes: "Axes", run: TrainingRun, forecast: ForecastCurve | None, candidates: Sequence[WeighedCandidate]
) -> None:
    """Draw the losses of a run and its forecast."""
    shown = plot_losses(axes, run, INK, label=run.metric)
    if forecast:
        shown += plot_forecast(axes, forecast, CONTINUED, label="forecast, 95% interval")
        set_range(axes, shown + [value for weighed in candidates for value in (weighed.loss.low, weighed.loss.high)])
    axes.set(xlabel="step", ylabel="loss (nats per token)")
    axes.legend(frameon=False, fontsize=8)


def new_figure(width: float, height: float = 3.6) -> "Figure":
    """Return an empty figure; raise UserError if matplotlib is not installed."""
    with needs_extra("plot", "a picture"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def plot_losses(axes: "Axes", run: TrainingRun, colour: str, label: str, unit: float = 1.0) -> list[float]:
    """Plot the losses of a run; return those to be shown, without the steep fall of the first steps. unit: of a step."""
    steps, losses = run.loss_curve
    axes.plot(run.steps * unit, run.losses, color=colour, alpha=0.25, linewidth=0.8)
    axes.plot(steps * unit, losses, color=colour, label=label)
    return [*losses[steps >= 0.05 * run.final_step]]


def plot_forecast(axes: "Axes", forecast: ForecastCurve, colour: str, unit: float = 1.0, **line: Any) -> list[float]:
    """Plot a forecast and its intervals; return their ends."""
    steps = np.multiply(forecast.step, unit)
    axes.plot(steps, forecast.loss, color=colour, linestyle="--", **line)
    axes.fill_between(steps, forecast.low, forecast.high, color=colour, alpha=0.2, lw=0)
    return [*forecast.low, *forecast.high]


def set_range(axes: "Axes", values: Sequence[float]) -> None:
    """Set the range of the losses to these, with some room."""
    if len(values):
        room = 0.05 * (max(values) - min(values)) or 1.0
        axes.set_ylim(min(values) - room, max(values) + room)


def finish(figure: "Figure") -> None:
    """Remove the upper and right lines of every panel."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)


def _draw_decays(axes: "Axes", decay: DecayDecision) -> None:
    """Draw the final loss against the start of the decay, one line per shape, with the interval of the best shape."""
    for shape, colour in zip(sorted({row.candidate.name for row in decay.candidates}), OTHERS, strict=False):
        rows = [row for row in decay.candidates if row.candidate.name == shape]
        rows.sort(key=lambda row: row.candidate.decay_start)
        starts, losses = [row.candidate.decay_start for row in rows], [row.loss for row in rows]
        axes.plot(starts, [loss.value for loss in losses], color=colour, label=shape)
        if shape == decay.best.candidate.name:
            ends = [loss.low for loss in losses], [loss.high for loss in losses]
            axes.fill_between(starts, *ends, color=colour, alpha=0.15, lw=0)
    axes.plot(decay.best.candidate.decay_start, decay.best.loss.value, "o", color=INK)
    axes.set(xlabel="step at which the decay begins")
    axes.set_title("at the end, by decay", fontsize=8)
    axes.legend(frameon=False, fontsize=8)
