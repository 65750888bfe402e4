"""Planted trainings under a multi-power law in the learning rate and a power law in the size."""

import numpy as np

from made_runs import training_run

FINAL = 4000


def wsd(steps=FINAL, warmup=200, decay=0.8):
    at = np.arange(steps + 1)
    down = np.clip((at / steps - decay) / (1 - decay), 0, 1)
    return 1e-3 * np.minimum((at + 1) / warmup, 1.0) * (1 - 0.9 * down)


def law(size, rates, steps, annealing=0.15):
    """L0 = 1.8 + 0.6 (N / 1e8)^-0.3, and a loss that falls by up to `annealing` as the rate decays to 0.

    0.15 nats are about what published curves show. A share of the fall is due to the decay, the rest to the progress
    under it.
    """
    units = rates / rates.max()
    spent, time = np.cumsum(units), np.cumsum(units**0.7)
    lost = np.array(
        [
            np.sum(np.diff(units)[:step] * annealing * (1 - (1 + 0.05 * (spent[step] - spent[:step])) ** -0.6))
            for step in steps
        ]
    )
    return 1.8 + 0.6 * (size / 1e8) ** -0.3 + 2.2 * (time[steps] / 100) ** -0.5 + lost


def run(name, size, rates=None, *, until=1.0, tokens=500_000, seed=0, annealing=0.15):
    rates = wsd() if rates is None else rates
    final = len(rates) - 1
    steps = np.arange(250, final + 1, max(final // 80, 1))
    steps = np.unique(np.append(steps, final))
    noise = 0.002 * np.random.default_rng([seed, size]).normal(size=len(steps))
    whole = training_run(
        name,
        size,
        tokens,
        final,
        checkpoint_steps=steps,
        checkpoint_losses=law(size, rates, steps, annealing) + noise,
        learning_rates=rates,
        family="planted",
        provenance="given",
    )
    return whole if until == 1 else whole.first(until)


SIZES = [run("100M", 100_000_000), run("400M", 400_000_000)]
