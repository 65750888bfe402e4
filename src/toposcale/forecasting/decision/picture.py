"""Picture of an advice: the losses so far, the forecast of the rest, and what follows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from toposcale.forecasting.decision.decay import DecayDecision
from toposcale.forecasting.decision.expected_regret import WeighedCandidate
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, CONTINUED, OTHERS = "#222222", "#0b2f6b", ("#b0347a", "#e08e0b", "#3a7d44", "#6b6b6b")


def draw(
    run: TrainingRun,
    forecast: Sequence[tuple[int, Prediction]],
    candidates: Sequence[WeighedCandidate],
    sentence: str,
    decay: DecayDecision | None = None,
) -> "Figure":
    """Draw a run, its forecast and its candidates, and the final loss against the start of the decay.

    Parameters
    ----------
    run : TrainingRun
        The run of the decision.
    forecast : sequence of (int, Prediction)
        Future steps and their forecasts.
    candidates : sequence of WeighedCandidate
        Candidates with their final losses.
    sentence : str
        The advice, the title of the picture.
    decay : DecayDecision, optional
        Decays that end with the training.

    Returns
    -------
    Figure
        Picture of 7.2 x 3.6 inches, wider with decays.

    Raises
    ------
    UserError
        If matplotlib is not installed.
    """
    figure = new_figure(9.6 if decay else 7.2)
    left, right, *rest = figure.subplots(1, 3 if decay else 2, width_ratios=[3, 1, 2][: 3 if decay else 2])
    right.sharey(left)
    right.tick_params(labelleft=False)
    left.plot(run.steps, run.losses, color=INK, alpha=0.25, linewidth=0.8)
    left.plot(*run.loss_curve, color=INK, label=run.metric)
    if forecast:
        steps, ends = zip(*forecast, strict=True)
        left.plot(steps, [end.value for end in ends], color=CONTINUED, linestyle="--", label="forecast, 95% interval")
        fill_intervals(left, steps, ends, CONTINUED, 0.2)
        # The steep fall of the first steps is left out of the range of the axis.
        shown = run.loss_curve.losses[run.loss_curve.steps >= 0.05 * run.final_step]
        values = [*shown, *(value for end in ends for value in (end.low, end.high))]
        values += [value for weighed in candidates for value in (weighed.loss.low, weighed.loss.high)]
        set_range(left, values)
    left.set(xlabel="step", ylabel="loss (nats per token)")
    left.legend(frameon=False, fontsize=8)
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
    finish(figure, f"{run.model}: {sentence}")
    return figure


def new_figure(width: float, height: float = 3.6) -> "Figure":
    """Return an empty figure; raise UserError if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("a picture needs matplotlib: pip install matplotlib") from error
    return Figure(figsize=(width, height), layout="constrained")


def set_range(axes: "Axes", values: Sequence[float]) -> None:
    """Set the range of the losses to these, with some room."""
    if len(values):
        room = 0.05 * (max(values) - min(values)) or 1.0
        axes.set_ylim(min(values) - room, max(values) + room)


def finish(figure: "Figure", text: str) -> None:
    """Remove the upper and right lines of every panel, and set the title."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    title = figure.suptitle(text.replace("$", r"\$"), x=0.01, ha="left", fontsize=9, wrap=True)
    title.set_parse_math(False)


def _draw_decays(axes: "Axes", decay: DecayDecision) -> None:
    """Draw the final loss against the start of the decay, one line per shape, with the interval of the best shape."""
    for shape, colour in zip(sorted({row.shape for row in decay.candidates}), OTHERS, strict=False):
        rows = sorted((row for row in decay.candidates if row.shape == shape), key=lambda row: row.start)
        starts, losses = [row.start for row in rows], [row.loss for row in rows]
        axes.plot(starts, [loss.value for loss in losses], color=colour, label=shape)
        if shape == decay.best.shape:
            fill_intervals(axes, starts, losses, colour, 0.15)
    axes.plot(decay.best.start, decay.best.loss.value, "o", color=INK)
    axes.set(xlabel="step at which the decay begins")
    axes.set_title("at the end, by decay", fontsize=8)
    axes.legend(frameon=False, fontsize=8)


def fill_intervals(
    axes: "Axes", x: Sequence[int] | np.ndarray, losses: Sequence[Prediction], colour: str, alpha: float
) -> None:
    """Fill the 95% intervals of losses."""
    axes.fill_between(x, [loss.low for loss in losses], [loss.high for loss in losses], color=colour, alpha=alpha, lw=0)
