"""Shifts of the level of a loss curve that no schedule explains: found where they are, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.random_laws import random_run
from toposcale.forecasting.decision.reasons import forecast_reasons
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.runs.curves import find_level_shift
from toposcale.forecasting.runs.facts import RunFacts
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.schedules import Schedule
from toposcale.forecasting.runs.training_run import TrainingRun

FINAL = 20_000
CONSTANT = LearningRateSchedule(FINAL, np.full(FINAL + 1, 1e-3))
STEPS = np.arange(100.0, 12_001, 100)


def curve(noise: float = 0.003, seed: int = 1) -> np.ndarray:
    """Losses at `STEPS` of a smooth curve with noise in nats."""
    return 2.5 + 20 * STEPS**-0.5 + noise * np.random.default_rng(seed).standard_normal(len(STEPS))


def training(losses: np.ndarray, steps: np.ndarray = STEPS, rates: np.ndarray | None = None) -> TrainingRun:
    rates = Schedule("cosine", 1e-3, FINAL, 200, 1e-4).rates() if rates is None else rates
    facts = RunFacts("run", 124_000_000, 524_288.0, optimizer="adamw")
    return TrainingRun(facts, LearningRateSchedule(FINAL, rates), steps=steps, losses=losses)


@given(st.integers(4000, 11_000), st.sampled_from([-0.3, -0.06, 0.06, 0.3]), st.integers(0, 50))
def test_find_level_shift_of_a_planted_shift(at, change, seed):
    shift = find_level_shift(STEPS, curve(seed=seed) + change * (at < STEPS), CONSTANT)
    assert shift is not None
    assert abs(shift.before - at) <= 200
    assert shift.change == pytest.approx(change, rel=0.1, abs=0.02)


def test_find_level_shift_of_random_laws_finds_none():
    runs = [random_run(seed).first(share) for seed in range(60) for share in (0.3, 0.5, 1.0)]
    assert [run.model for run in runs if find_level_shift(run.steps, run.losses, run.schedule)] == []


@pytest.mark.parametrize("shape", ["wsd", "linear", "cosine"])
def test_find_level_shift_of_a_decay_finds_none(shape):
    decay = 8_000 if shape == "wsd" else None
    rates = Schedule(shape, 1e-3, 12_000, 200, 0.0, decay).rates()
    annealed = 0.15 * (rates[STEPS.astype(int)] / rates.max() - 1)
    assert find_level_shift(STEPS, curve() + annealed, LearningRateSchedule(12_000, rates)) is None


def test_find_level_shift_of_a_step_of_the_rate_finds_none():
    rates = np.where(np.arange(FINAL + 1) > 6000, 1e-4, 1e-3)
    dropped = curve() - 0.1 * (STEPS > 6000)
    assert find_level_shift(STEPS, dropped, LearningRateSchedule(FINAL, rates)) is None
    assert find_level_shift(STEPS, dropped, CONSTANT) is not None


def test_find_level_shift_of_a_spike_or_a_last_row_finds_none():
    spiked, last = curve(), curve()
    spiked[60:63] += 0.4
    last[-1] -= 0.2
    assert find_level_shift(STEPS, spiked, CONSTANT) is None
    assert find_level_shift(STEPS, last, CONSTANT) is None


@pytest.mark.parametrize("n_rows", [0, 1, 6])
def test_find_level_shift_of_few_rows_finds_none(n_rows):
    assert find_level_shift(STEPS[:n_rows], curve()[:n_rows], CONSTANT) is None


def test_loss_curve_joins_the_levels_of_a_recent_shift():
    smooth = curve()
    shifted = training(smooth + 0.1 * (STEPS <= 10_000))
    assert shifted.rests_on_shift
    np.testing.assert_allclose(shifted.loss_curve.losses, training(smooth).loss_curve.losses, atol=0.03)
    law = Joint().fit(shifted)
    assert shifted.shift_remark in forecast_reasons(shifted, law)
    assert "-0.1" in shifted.shift_remark
    assert "10,000" in shifted.shift_remark
    assert law.inflation_ >= 1.5


def test_loss_curve_starts_after_an_old_shift():
    run = training(curve() + 0.1 * (STEPS <= 3000))
    assert run.level_shift is not None
    assert run.loss_curve.steps[0] > 3000
    assert not run.rests_on_shift
    assert run.shift_remark not in forecast_reasons(run, Joint().fit(run))


def test_level_shift_of_a_run_without_one_is_none():
    run = training(curve())
    assert run.level_shift is None
    assert run.shift_remark == ""
    assert not run.rests_on_shift


def test_level_shift_is_found_in_a_metric_without_a_log():
    smooth = 2.8 + 20 * STEPS[::4] ** -0.5
    metric = replace(
        training(np.empty(0), np.empty(0)),
        checkpoint_steps=STEPS[::4],
        checkpoint_losses=smooth - 0.08 * (STEPS[::4] > 8000),
    )
    assert metric.level_shift is not None
    assert metric.level_shift.change == pytest.approx(-0.08, abs=0.02)
