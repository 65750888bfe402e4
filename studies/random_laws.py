"""Empirical coverage of the forecast intervals for runs of no published family: a Chinchilla law with annealing.

What a decay gains, how fast the loss falls within a run, and the exponents of time and decay are drawn from the prior of
the joint law for AdamW. The level, the noise and the form of a decay, an exponential lag behind the rate, are not its own.

`python -m studies.random_laws` forecasts the ends of runs with random constants from 20, 30 and 50%, each run alone: of the
360 laws that were looked at while the joint law was made, and of 240 on which nothing was chosen. A few minutes. It
writes studies/tables/random_laws.csv.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from studies import small_tables
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.priors import PUBLISHED, SECOND_WEIGHT
from toposcale.forecasting.runs.facts import RunFacts
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule, ScheduleProvenance
from toposcale.forecasting.runs.schedules import Schedule
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import NoForecast

SHARES = (0.2, 0.3, 0.5)
SEEDS = {"looked at": range(360), "others": range(360, 600)}
"""Seeds of the laws that were looked at while the joint law was made, and of those that were not."""


def random_run(seed: int) -> TrainingRun:
    """Return a run whose end is L = E + A N^-a + B D^-b, plus a decay that lags behind the rate."""
    rng = np.random.default_rng([7, seed])
    size = float(np.exp(rng.uniform(np.log(3e6), np.log(2e9))))
    steps = int(rng.integers(4_000, 60_000))
    warmup = int(rng.uniform(0.005, 0.05) * steps)
    shape = str(rng.choice(["cosine", "linear", "wsd"]))
    decay = round(steps * rng.uniform(0.6, 0.9)) if shape == "wsd" else None
    peak = float(10 ** rng.uniform(-3.7, -2.3))
    final = float(rng.choice([0.0, 0.1])) * peak
    rates = Schedule(shape, peak, steps, warmup, final, decay).rates()
    tokens = float(np.exp(rng.uniform(np.log(1e5), np.log(2e6))))
    floor, of_size, of_tokens = rng.uniform(1.5, 1.9), rng.uniform(300, 500), rng.uniform(350, 500)
    alpha, beta = rng.uniform(0.32, 0.36), rng.uniform(0.27, 0.31)
    prior = PUBLISHED.second_model if rng.random() < SECOND_WEIGHT else PUBLISHED
    gain, lag = float(np.exp(rng.normal(*prior.log_b_of(peak, tokens, size)))), rng.uniform(0.01, 0.05) * steps
    level = rates / rates.max()
    lagged = np.empty_like(level)
    lagged[0] = level[0]
    for step, target in enumerate(level[1:] ** prior.decay_exponent, 1):
        lagged[step] = lagged[step - 1] + 1 / lag * (target - lagged[step - 1])
    rows = np.unique(np.geomspace(max(warmup, 20), steps, 120).round().astype(int))
    progress = np.cumsum(level**prior.time_exponent)[rows]
    falling = (progress / progress[-1]) ** -np.exp(rng.normal(*prior.log_alpha))
    reducible = of_tokens * (tokens * steps) ** -beta * falling
    losses = floor + of_size * size**-alpha + reducible + gain * lagged[rows]
    losses = losses * (1 + rng.uniform(0.0005, 0.003) * rng.standard_normal(len(rows)))
    return TrainingRun(
        RunFacts(f"law {seed}", round(size), tokens, optimizer="adamw"),
        LearningRateSchedule(steps, rates, ScheduleProvenance.GIVEN),
        steps=rows,
        losses=losses,
        checkpoint_steps=rows,
        checkpoint_losses=losses,
    )


def forecasts(seeds: Iterable[int]) -> pd.DataFrame:
    """Return a row for each run and share: error of the forecast in nats and whether the interval covers the end.

    Both are NaN where there is no forecast.
    """
    rows = []
    for seed in seeds:
        whole = random_run(seed)
        for share in SHARES:
            row = {"seed": seed, "share": share, "error": np.nan, "covered": np.nan}
            now = whole.first(share)
            try:
                end = Joint().fit(now).forecast(now)
                covered = end.low <= whole.progress.loss <= end.high
                row |= {"error": end.value - whole.progress.loss, "covered": float(covered)}
            except NoForecast:
                pass
            rows.append(row)
    return pd.DataFrame(rows)


def summary(table: pd.DataFrame) -> dict[str, float]:
    """Return the number of forecasts, the share that is refused, the mean absolute error and the empirical coverage."""
    refused = table["error"].isna()
    return {
        "forecasts": len(table),
        "refused": float(refused.mean()),
        "mean_error": float(table["error"].abs().mean()),
        "coverage": float(table["covered"].mean()),
    }


if __name__ == "__main__":
    tables = {name: forecasts(seeds) for name, seeds in SEEDS.items()}
    tables["all"] = pd.concat(tables.values())
    rows = [
        {"laws": name, "share": share} | summary(part)
        for name, table in tables.items()
        for share, part in table.groupby("share")
    ]
    small_tables.write(pd.DataFrame(rows), small_tables.TABLES / "random_laws.csv")
