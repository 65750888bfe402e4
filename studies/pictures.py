"""The picture of the advice on the README's first screen: `python -m studies.pictures` draws it anew.

It is the advice on examples/losses.csv, with the arguments of the command that the README prints.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from toposcale.__main__ import advice_of
from toposcale.features.registry import LOSS_UNIT
from toposcale.figures import panels
from toposcale.figures.style import save, styled
from toposcale.forecasting.advice import Advice

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/images/advice.svg"
SEEN, AHEAD = "#0b2f6b", "#b0347a"


def command() -> list[str]:
    """The arguments of the README's `python -m toposcale advise ...`."""
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    [line] = re.findall(r"^python -m toposcale (advise .*)$", text, re.MULTILINE)[:1]
    return shlex.split(line)


@styled
def picture(advice: Advice) -> Figure:
    """The curve with its forecast, and the candidates with the loss at their end, under the sentence of the advice."""
    figure = panels.new_figure(3.3, advice.sentence)
    curve, ends = figure.subplots(1, 2, width_ratios=(3, 2))
    steps, losses = advice.training.loss_curve
    curve.plot(steps, losses, ".", color=SEEN, label="seen")
    ahead = np.array([(step, end.value, end.low, end.high) for step, end in advice.course])
    curve.fill_between(ahead[:, 0], ahead[:, 2], ahead[:, 3], color=AHEAD, alpha=0.2, linewidth=0)
    curve.plot(ahead[:, 0], ahead[:, 1], color=AHEAD, label="forecast under the plan, with 95% interval")
    curve.set_xlabel("training step")
    curve.set_ylabel(f"{advice.training.metric} ({LOSS_UNIT})")
    curve.legend()
    options = advice.decision.options if advice.decision else ()
    heights = list(range(len(options)))[::-1]
    values, low, high = (
        np.array([getattr(option.loss, end) for option in options]) for end in ("value", "low", "high")
    )
    ends.errorbar(values, heights, xerr=[values - low, high - values], fmt="o", color=AHEAD, capsize=3)
    ends.set_yticks(heights, [option.candidate.name for option in options])
    ends.set_ylim(-0.7, len(options) - 0.3)
    ends.set_xlabel("loss at the end of the same compute")
    return figure


if __name__ == "__main__":
    save(picture(advice_of(command())), PICTURE.with_suffix(""))
