"""Schedules that no published run has, on the noisy quadratic model: the intervals of the joint law cover the ends."""

import numpy as np
import pytest

from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.runs.facts import RunFacts
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule, ScheduleProvenance
from toposcale.forecasting.runs.training_run import TrainingRun

STEPS, WARMUP, PEAK, MODES = 6000, 200, 1e-3, 1000
SEEDS, SHARES = range(7), (0.3, 0.5)
SHARE = np.arange(STEPS + 1) / STEPS
WARM = np.minimum(np.arange(STEPS + 1) / WARMUP, 1.0)


def several_decays():
    """WSD-S (Wen et al. 2024): the rate decays tenfold three times, and between these it is constant again."""
    rates = np.ones(STEPS + 1)
    for start, end in ((0.22, 0.25), (0.4, 0.45), (0.9, 1.0)):
        decays = (start <= SHARE) & (end > SHARE)
        rates[decays] = 0.1 ** ((SHARE[decays] - start) / (end - start))
    rates[-1] = 0.1
    return rates


RATES = {
    "1-sqrt": WARM * (1 - np.sqrt(np.clip(5 * SHARE - 4, 0, 1))),
    "WSD-S": WARM * several_decays(),
    "schedule-free": WARM,
}


def simulated_losses(schedule, random):
    """SGD on a quadratic whose curvatures and energies are power laws (Zhang et al. 2019), each mode on its own.

    Schedule-free (Defazio et al. 2024): gradients are taken between the iterate and its average, which is evaluated.
    """
    modes = np.arange(1, MODES + 1)
    spectrum = random.uniform(1.2, 1.5)
    curvature, energy = modes**-spectrum, modes ** -(1 + spectrum * random.uniform(0.35, 0.55))
    energy *= random.uniform(5, 8) / energy.sum()
    steps = random.uniform(200, 500) * PEAK * RATES[schedule]
    gain = random.uniform(0.08, 0.2)  # what the noise adds to the loss at the peak, nats
    noise = np.sqrt(gain / np.sum(curvature * steps.max() / (4 - 2 * steps.max() * curvature)) * curvature)
    iterate = average = np.sqrt(2 * energy / curvature)
    is_averaged, total, losses = schedule == "schedule-free", 0.0, np.empty(STEPS + 1)
    for number, step in enumerate(steps):
        losses[number] = np.sum(curvature * average**2) / 2
        at = 0.1 * iterate + 0.9 * average if is_averaged else iterate
        iterate = iterate - step * (curvature * at + noise * random.standard_normal(MODES))
        total += step**2
        weight = step**2 / total if is_averaged and total else 1.0
        average = (1 - weight) * average + weight * iterate
    return 2.8 + losses


def simulated_run(schedule, seed):
    random = np.random.default_rng([3, seed])
    rows = np.arange(50, STEPS + 1, 50)
    losses = simulated_losses(schedule, random)[rows]
    # The optimizer is not stated: the model has none of those from which the prior was learnt.
    return TrainingRun(
        RunFacts(f"{schedule} {seed}", 124_000_000, 5e5),
        LearningRateSchedule(STEPS, PEAK * RATES[schedule], ScheduleProvenance.GIVEN),
        steps=rows,
        losses=losses * (1 + 0.002 * random.standard_normal(len(rows))),
        checkpoint_steps=rows,
        checkpoint_losses=losses,
    )


@pytest.mark.parametrize("schedule", RATES)
def test_the_ends_of_runs_under_other_schedules_are_covered(schedule):
    covered = []
    for seed in SEEDS:
        run = simulated_run(schedule, seed)
        for share in SHARES:
            end = Joint().fit(run.first(share)).forecast(run.first(share))
            covered.append(end.low <= run.progress.loss <= end.high)
    assert np.mean(covered) >= 0.93
