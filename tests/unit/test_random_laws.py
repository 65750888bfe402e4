"""Trainings of no published family: a Chinchilla law with annealing, of random constants; the intervals hold its ends."""

import numpy as np
import pytest

from made_runs import training_run
from toposcale.io.errors import NoForecast
from toposcale.laws.checked_law import checked_law
from toposcale.training.schedules import Schedule

SHARES = (0.2, 0.3, 0.5)
LAWS = 60


def random_training(seed):
    """E + A N^-a + B D^-b, and a gain that follows the fall of the rate with a delay: not the law that forecasts it."""
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
    gain, delay = rng.uniform(0.08, 0.2), rng.uniform(0.01, 0.05) * steps
    at = np.arange(steps + 1)
    level = rates / rates.max()
    followed = np.empty_like(level)  # the rate, as the loss follows it
    followed[0] = level[0]
    weight = 1 / delay
    for step in at[1:]:
        followed[step] = followed[step - 1] + weight * (level[step] - followed[step - 1])
    rows = np.unique(np.geomspace(max(warmup, 20), steps, 120).round().astype(int))
    progress = np.cumsum(level)[rows]
    losses = floor + of_size * size**-alpha + of_tokens * (tokens * progress) ** -beta + gain * followed[rows]
    losses = losses * (1 + rng.uniform(0.0005, 0.003) * rng.standard_normal(len(rows)))
    return training_run(
        f"law {seed}",
        round(size),
        tokens,
        steps,
        steps=rows,
        losses=losses,
        checkpoint_steps=rows,
        checkpoint_losses=losses,
        learning_rates=rates,
        provenance="given",
    )


@pytest.fixture(scope="module")
def judged():
    """(forecasts, 2): the error of every forecast, and whether its interval holds the end."""
    rows = []
    for seed in range(LAWS):
        whole = random_training(seed)
        for share in SHARES:
            now = whole.first(share)
            try:
                end = checked_law(now, []).forecast(now)
            except NoForecast:
                continue
            rows.append((end.value - whole.final_loss, end.low <= whole.final_loss <= end.high))
    return np.array(rows, dtype=float)


def test_random_laws_are_held(judged):
    assert len(judged) > 0.9 * LAWS * len(SHARES)
    assert judged[:, 1].mean() >= 0.93


def test_their_ends_are_forecast_to_a_twentieth_of_a_nat(judged):
    assert np.abs(judged[:, 0]).mean() < 0.05
