"""What is wrong with a loss under way: found, given once, and not cried where nothing is wrong."""

import numpy as np
import pytest

from toposcale.monitor.alerts import PATIENCE, Alert, AlertKind, Watch, alerts

STEPS = np.arange(1, 3001)


def noisy(seed=0, spread=0.02):
    return (2 + 20 * STEPS**-0.5) * np.exp(spread * np.random.default_rng(seed).normal(size=len(STEPS)))


def followed(losses, steps=STEPS):
    watch = Watch()
    return [(step, alert) for step, loss in zip(steps, losses, strict=True) for alert in watch.add(int(step), loss)]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_not_finite_is_told_at_its_row(value):
    losses = noisy()
    losses[1233:] = value
    assert followed(losses) == [(1234, Alert(AlertKind.NOT_FINITE, 1234, "the loss is not a finite number"))]


def test_a_kind_is_told_again_when_it_was_over():
    losses = noisy()
    losses[[1000, 1050, 1051, 2000]] = np.nan
    assert [step for step, _ in followed(losses)] == [1001, 2001]


def test_a_loss_that_stays_high_is_a_spike_since_its_first_step():
    losses = noisy()
    losses[1500:] += 0.5
    [(step, alert)] = followed(losses)
    assert alert.kind is AlertKind.SPIKE
    assert 1500 < alert.step <= 1505
    assert 1500 + PATIENCE / 2 < step <= 1500 + PATIENCE
    assert "has not come back" in alert.message


def test_a_spike_that_comes_back_and_a_curve_without_one_are_silent():
    losses = noisy()
    losses[1500 : 1500 + PATIENCE // 3] *= 3
    assert followed(losses) == []
    assert [found for seed in range(8) for found in followed(noisy(seed, 0.1))] == []


def test_rows_that_are_far_apart_need_five_of_them():
    steps, losses = 500 * np.arange(1, 61), np.full(60, 3.0)
    losses[50:] = 3.5
    assert [step for step, _ in followed(losses, steps)] == [int(steps[52])]
    assert alerts(steps, losses)[0].step == steps[50]


def test_what_has_no_rows_has_no_alerts():
    assert alerts([], []) == []
    assert alerts([1], [2.0]) == []
