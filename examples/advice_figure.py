"""The picture of README: the advice on losses-wsd.csv, and where the run ended, which the advice does not see."""

import matplotlib

matplotlib.use("agg")

import toposcale

LAST_STEP, LAST_LOSS = 24_000, 3.278  # as published: README.md of this folder

advice = toposcale.advise(
    "examples/losses-wsd.csv",
    n_parameters="25M",
    tokens_per_step=524_288,
    optimizer="adamw",
    schedule={"shape": "wsd", "steps": LAST_STEP, "warmup_steps": 2160, "decay_start": 20_000, "final": 0.1},
)
axes = advice.plot()
axes.plot(LAST_STEP, LAST_LOSS, "*", color="black", markersize=11, label="where the run ended")
axes.legend(frameon=False, fontsize="small")
axes.figure.savefig("docs/images/advice.png", dpi=110)
