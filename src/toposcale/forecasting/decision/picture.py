"""Pictures of an advice and of a comparison of runs: the losses so far, the forecast of the rest, and what follows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from toposcale.forecasting.decision.decay import DecayDecision
from toposcale.forecasting.decision.expected_regret import WeighedCandidate
from toposcale.forecasting.laws.joint import Joint
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
    figure = _figure(9.6 if decay else 7.2)
    left, right, *rest = figure.subplots(1, 3 if decay else 2, width_ratios=[3, 1, 2][: 3 if decay else 2])
    right.sharey(left)
    right.tick_params(labelleft=False)
    left.plot(run.steps, run.losses, color=INK, alpha=0.25, linewidth=0.8)
    left.plot(*run.loss_curve, color=INK, label=run.metric)
    if forecast:
        steps, ends = zip(*forecast, strict=True)
        left.plot(steps, [end.value for end in ends], color=CONTINUED, linestyle="--", label="forecast, 95% interval")
        _fill(left, steps, ends, CONTINUED, 0.2)
        # The steep fall of the first steps is left out of the range of the axis.
        shown = run.loss_curve.losses[run.loss_curve.steps >= 0.05 * run.final_step]
        values = [*shown, *(value for end in ends for value in (end.low, end.high))]
        values += [value for weighed in candidates for value in (weighed.loss.low, weighed.loss.high)]
        _show(left, values)
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
    _finish(figure, f"{run.model}: {sentence}")
    return figure


class Interval(NamedTuple):
    """Difference of a run, by its index, to the first one, with its interval, nats per token."""

    label: str
    run: int
    value: float
    low: float
    high: float


def draw_comparison(
    runs: Sequence[TrainingRun], laws: Sequence[Joint | None], differences: Sequence[Interval], text: str
) -> "Figure":
    """Draw the curves of runs with their forecasts, and their differences to the first run.

    Parameters
    ----------
    runs : sequence of TrainingRun
        The runs.
    laws : sequence of Joint or None
        Law of each run that has a forecast.
    differences : sequence of Interval
        Differences to the first run.
    text : str
        The answer, the title of the picture.

    Returns
    -------
    Figure
        Picture 9.6 inches wide.

    Raises
    ------
    UserError
        If matplotlib is not installed.
    """
    figure = _figure(9.6, max(3.6, 0.3 * len(differences)))
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    tokens = [run.tokens_per_step for run in runs]
    # At equal tokens, where a step reads more of them in one run than in another.
    are_tokens = len(set(tokens)) > 1 and bool(np.all(np.isfinite(tokens)))
    colours = (INK, *OTHERS * len(runs))
    shown: list[float] = []
    for run, law, colour in zip(runs, laws, colours, strict=False):
        unit = run.tokens_per_step if are_tokens else 1.0
        steps, losses = run.loss_curve
        left.plot(run.steps * unit, run.losses, color=colour, alpha=0.2, linewidth=0.8)
        left.plot(steps * unit, losses, color=colour, label=run.model)
        shown += [*losses[steps >= 0.05 * run.final_step]]
        if law is not None:
            steps_ahead, forecasts = zip(*law.forecast_curve(run), strict=True)
            ahead = np.multiply(steps_ahead, unit)
            left.plot(ahead, [forecast.value for forecast in forecasts], color=colour, linestyle="--")
            _fill(left, ahead, forecasts, colour, 0.15)
            shown += [value for forecast in forecasts for value in (forecast.low, forecast.high)]
    if any(laws):
        left.set_title("dashed: forecasts, 95% intervals", fontsize=8)
    _show(left, shown)
    left.set(xlabel="tokens" if are_tokens else "step", ylabel="loss (nats per token)")
    left.legend(frameon=False, fontsize=8)
    for place, row in enumerate(differences):
        right.plot([row.low, row.high], [place, place], color=colours[row.run])
        right.plot(row.value, place, "o", color=colours[row.run])
    right.axvline(0, color=INK, linewidth=0.8)
    right.set_yticks(range(len(differences)), [row.label for row in differences], fontsize=8)
    right.set_ylim(max(len(differences), 1) - 0.5, -0.5)
    right.set_xlabel("difference (nats per token)")
    right.set_title(f"loss minus that of {runs[0].model}, 95% intervals", fontsize=8)
    _finish(figure, text)
    return figure


def _figure(width: float, height: float = 3.6) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("a picture needs matplotlib: pip install matplotlib") from error
    return Figure(figsize=(width, height), layout="constrained")


def _show(axes: "Axes", values: Sequence[float]) -> None:
    """Set the range of the losses to these, with some room."""
    if len(values):
        room = 0.05 * (max(values) - min(values)) or 1.0
        axes.set_ylim(min(values) - room, max(values) + room)


def _finish(figure: "Figure", text: str) -> None:
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
            _fill(axes, starts, losses, colour, 0.15)
    axes.plot(decay.best.start, decay.best.loss.value, "o", color=INK)
    axes.set(xlabel="step at which the decay begins")
    axes.set_title("at the end, by decay", fontsize=8)
    axes.legend(frameon=False, fontsize=8)


def _fill(axes: "Axes", x: Sequence[int] | np.ndarray, losses: Sequence[Prediction], colour: str, alpha: float) -> None:
    """Fill the 95% intervals of losses."""
    axes.fill_between(x, [loss.low for loss in losses], [loss.high for loss in losses], color=colour, alpha=alpha, lw=0)
