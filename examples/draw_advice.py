"""Draws the advice on the curve of examples/losses.csv: the losses so far, the forecast of the rest, and the candidates.

    python examples/draw_advice.py [PICTURE]

The picture of README is made so. It shows what `toposcale.advise` returns: `course` is the forecast step by step, and each
of `candidates` has its loss at the end with a 95% interval.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

import toposcale

CURVE = Path(__file__).with_name("losses.csv")
PLAN = {"shape": "cosine", "warmup_steps": 2160, "final": 0.1}
COLOURS = {"finish": "#0b2f6b", "start 100M": "#b0347a"}


def draw(picture: Path) -> None:
    """Write the picture; its ending names the format."""
    losses = pd.read_csv(CURVE)
    advice = toposcale.advise(
        CURVE, n_parameters=25e6, tokens_per_step=524288, steps=24000, sizes=[100e6], schedule=PLAN
    )
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 1], sharey=True)
    left.plot(losses["step"], losses["loss"], color="#222222", label="losses so far")
    course = advice["course"]
    left.plot(course["step"], course["loss"], color=COLOURS["finish"], linestyle="--", label="forecast")
    left.fill_between(course["step"], course["low"], course["high"], color=COLOURS["finish"], alpha=0.2)
    left.set(xlabel="step", ylabel="loss (nats per token)", title=advice.sentence)
    left.legend(frameon=False)
    for place, row in enumerate(advice["candidates"]):
        colour = COLOURS[row["candidate"]]
        right.plot([place, place], [row["loss_low"], row["loss_high"]], color=colour)
        right.plot(place, row["loss"], "o", color=colour)
    right.set_xticks(range(len(advice["candidates"])), [row["candidate"] for row in advice["candidates"]])
    right.set(xlim=(-0.5, len(advice["candidates"]) - 0.5), title="at the end")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    left.title.set(size=10, ha="left", x=0)
    right.title.set_size(10)
    figure.savefig(picture, dpi=144, metadata={"Date": None} if picture.suffix == ".svg" else None)


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "advice.png"))
