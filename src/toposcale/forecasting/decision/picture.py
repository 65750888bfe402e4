"""Pictures of an advice and of a comparison: the losses so far, forecasts, and candidates or differences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toposcale.forecasting.decision.candidates import WeighedCandidate
from toposcale.forecasting.decision.decay import DecayDecision
from toposcale.forecasting.laws.law import ForecastCurve
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import needs_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from toposcale.forecasting.decision.differences import Difference
    from toposcale.forecasting.laws.joint import Joint

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
    """Draw a run, its forecast, its candidates, and the final loss by the start of the decay; into `ax` only the run."""
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


def draw_comparison(
    runs: Sequence[TrainingRun],
    laws: "Sequence[Joint | None]",
    differences: "Sequence[Sequence[Difference]]",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw runs with the forecasts of their laws, and their differences to the first one; into `ax` only the runs."""
    colours = (INK, *OTHERS * len(runs))
    if ax is not None:
        _draw_runs(ax, runs, laws, colours)
        return ax
    rows = [(colour, row) for colour, of_run in zip(colours[1:], differences, strict=False) for row in of_run]
    drawn = [(colour, row) for colour, row in rows if not row.reason]
    figure = new_figure(9.6, max(3.6, 0.3 * len(drawn)))
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    _draw_runs(left, runs, laws, colours)
    for index, (colour, row) in enumerate(drawn):
        right.plot([row.low, row.high], [index, index], color=colour)
        right.plot(row.value, index, "o", color=colour)
    right.axvline(0, color=INK, linewidth=0.8)
    right.set_yticks(range(len(drawn)), [row.label for _, row in drawn], fontsize=8)
    right.set_ylim(max(len(drawn), 1) - 0.5, -0.5)
    right.set_xlabel("difference (nats per token)")
    right.set_title(f"loss minus that of {runs[0].model}, 95% intervals", fontsize=8)
    finish(figure)
    return left


def _draw_runs(
    axes: "Axes", runs: Sequence[TrainingRun], laws: "Sequence[Joint | None]", colours: Sequence[str]
) -> None:
    """Draw the losses of runs and their forecasts."""
    tokens = [run.tokens_per_step for run in runs]
    # At equal tokens, where a step reads more of them in one run than in another.
    are_tokens = len(set(tokens)) > 1 and bool(np.all(np.isfinite(tokens)))
    shown: list[float] = []
    for run, law, colour in zip(runs, laws, colours, strict=False):
        unit = run.tokens_per_step if are_tokens else 1.0
        shown += plot_losses(axes, run, colour, run.model, unit)
        if law is not None:
            shown += plot_forecast(axes, law.forecast_curve(run), colour, unit)
    if any(laws):
        axes.set_title("dashed: forecasts, 95% intervals", fontsize=8)
    set_range(axes, shown)
    axes.set(xlabel="tokens" if are_tokens else "step", ylabel="loss (nats per token)")
    axes.legend(frameon=False, fontsize=8)
