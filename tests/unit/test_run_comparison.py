"""Which of two runs is better: planted differences, replicates, and what must not be claimed."""

import json

import numpy as np
import pandas as pd
import pytest

import toposcale
from planted_laws import law
from toposcale.__main__ import main
from toposcale.io.errors import UserError

STEPS = np.arange(100, 10_001, 100)
RUN = {"n_parameters": 25e6, "tokens_per_step": 500_000}


def curve(scale=40.0, seed=0, noise=0.002, steps=STEPS):
    loss = 2.0 + scale * steps**-0.5
    return {"step": steps, "loss": loss + noise * np.random.default_rng(seed).normal(size=len(steps))}


def test_a_planted_difference_and_speed_up_lie_inside_their_intervals():
    comparison = toposcale.compare_runs(curve(), curve(36, seed=1), **RUN)
    [now] = comparison.now
    assert now.is_significant
    assert now.low < -0.04 < now.high
    assert comparison.speed_up.is_of_second
    assert comparison.speed_up.low < 0.81 < comparison.speed_up.high
    assert "B is better" in str(comparison)


def test_exchanged_runs_have_the_opposite_difference():
    one, other = curve(), curve(36, seed=1)
    there, back = toposcale.compare_runs(one, other, **RUN), toposcale.compare_runs(other, one, **RUN)
    assert there.now[0].value == pytest.approx(-back.now[0].value)
    assert there.end.value == pytest.approx(-back.end.value)
    assert there.speed_up.share == back.speed_up.share
    assert there.speed_up.is_of_second != back.speed_up.is_of_second


def test_runs_that_differ_by_noise_alone_rarely_differ():
    found = [
        toposcale.compare_runs(curve(seed=2 * seed, noise=0.02), curve(seed=2 * seed + 1, noise=0.02), **RUN)
        .now[0]
        .is_significant
        for seed in range(60)
    ]
    assert np.mean(found) <= 0.1


def test_equal_tokens_and_compute_differ_from_equal_steps_where_the_batch_or_size_does():
    comparison = toposcale.compare_runs(
        curve(), {"curve": curve(36, seed=1), "tokens_per_step": 1e6}, n_parameters=25e6, tokens_per_step=5e5
    )
    steps, tokens = comparison.now
    assert (steps.axis, tokens.axis) == ("steps", "tokens")
    assert (steps.position, tokens.position) == (10_000, 5e9)
    # At 5e9 tokens B has made half of the steps: 2 + 36 / sqrt(5000) against 2 + 40 / sqrt(10000).
    assert tokens.low < 36 / np.sqrt(5000) - 40 / np.sqrt(10_000) < tokens.high
    larger = toposcale.compare_runs(curve(), {"curve": curve(36), "n_parameters": 50e6}, **RUN)
    assert [row.axis for row in larger.now] == ["steps", "compute"]


def test_without_tokens_the_seeds_are_unknown_unless_stated():
    unknown = toposcale.compare_runs(curve(), curve(36))
    assert np.isnan(unknown.now[0].low)
    assert not unknown.now[0].is_significant
    assert "noise between seeds is unknown" in str(unknown)
    json.dumps(dict(unknown), allow_nan=False)
    assert toposcale.compare_runs(curve(), curve(36), seed_noise=0.002).now[0].is_significant
    assert not toposcale.compare_runs(curve(), curve(36), seed_noise=0.1).now[0].is_significant


def test_a_lower_loss_under_a_lower_rate_is_said_and_the_ends_are_compared():
    steps = np.arange(250, 3001, 50)
    constant = np.full(3001, 1e-3)
    one = {"step": steps, "loss": law(1e8, constant, steps), "learning_rate": constant[steps]}
    decaying = np.concatenate([np.full(2001, 1e-3), np.linspace(1e-3, 1e-4, 1000)])
    other = {"step": steps, "loss": law(1e8, decaying, steps), "learning_rate": decaying[steps]}
    comparison = toposcale.compare_runs(one, other, n_parameters=1e8, tokens_per_step=1000, warmup_steps=250)
    assert comparison.now[0].value < 0
    assert "lower rate is not progress" in comparison.note


def test_ends_that_are_ahead_are_forecast_or_not_known_with_the_reason():
    ahead = {**RUN, "steps": 20_000}
    assert "not known to the end" in toposcale.compare_runs(curve(), curve(36), **ahead).end.reason
    forecast = toposcale.compare_runs(curve(), curve(36), **ahead, schedule="cosine").end
    assert forecast.low < forecast.value < min(forecast.high, 0)


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (curve(), {"step": STEPS, "validation_loss": curve()["loss"]}, "only losses of one kind"),
        (curve(), {"curve": curve(), "parameters": 3}, "unknown field parameters"),
        (curve(), {"step": STEPS, "loss": np.linspace(3, 9, len(STEPS))}, "B: the loss is rising"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_line(one, other, message):
    with pytest.raises(UserError, match=message):
        toposcale.compare_runs(one, other, **RUN)


def test_the_command_tells_what_python_does(tmp_path, capsys):
    for name, scale in (("a.csv", 40), ("b.csv", 36)):
        pd.DataFrame(curve(scale)).to_csv(tmp_path / name, index=False)
    arguments = ["curves", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--tokens-per-step", "5e5"]
    assert main(arguments) == 0
    expected = toposcale.compare_runs(tmp_path / "a.csv", tmp_path / "b.csv", tokens_per_step=5e5)
    assert capsys.readouterr().out == f"{expected}\n"
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(dict(expected)))
    assert main([*arguments, "--parameters", "1e6", "2e6", "3e6"]) == 1
    assert "one for each of the two curves" in capsys.readouterr().err
