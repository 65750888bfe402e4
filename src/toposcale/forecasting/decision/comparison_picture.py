"""Picture of a comparison of runs: their losses and forecasts, and the differences to the first one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from toposcale.forecasting.decision.differences import Difference
from toposcale.forecasting.decision.picture import INK, OTHERS, fill_intervals, finish, new_figure, set_range
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.runs.training_run import TrainingRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_comparison(
    runs: Sequence[TrainingRun], laws: Sequence[Joint | None], differences: Sequence[Sequence[Difference]], text: str
) -> "Figure":
    """Draw the curves of runs with their forecasts, and their differences to the first run.

    Parameters
    ----------
    runs : sequence of TrainingRun
        The runs.
    laws : sequence of Joint or None
        Law of each run that has a forecast.
    differences : sequence of sequence of Difference
        Of each other run to the first one.
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
    known = [(colour, row) for colour, rows in zip(OTHERS * len(runs), differences, strict=False) for row in rows]
    known = [(colour, row) for colour, row in known if not row.reason]
    figure = new_figure(9.6, max(3.6, 0.3 * len(known)))
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
            fill_intervals(left, ahead, forecasts, colour, 0.15)
            shown += [value for forecast in forecasts for value in (forecast.low, forecast.high)]
    if any(laws):
        left.set_title("dashed: forecasts, 95% intervals", fontsize=8)
    set_range(left, shown)
    left.set(xlabel="tokens" if are_tokens else "step", ylabel="loss (nats per token)")
    left.legend(frameon=False, fontsize=8)
    for place, (colour, row) in enumerate(known):
        right.plot([row.low, row.high], [place, place], color=colour)
        right.plot(row.value, place, "o", color=colour)
    right.axvline(0, color=INK, linewidth=0.8)
    right.set_yticks(range(len(known)), [row.label for _, row in known], fontsize=8)
    right.set_ylim(max(len(known), 1) - 0.5, -0.5)
    right.set_xlabel("difference (nats per token)")
    right.set_title(f"loss minus that of {runs[0].model}, 95% intervals", fontsize=8)
    finish(figure, text)
    return figure
