"""A run that has not started: the advice is the published scaling law's, with its scatter, and never confident."""

import numpy as np
import pytest

import toposcale
from toposcale.__main__ import main
from toposcale.io.errors import UserError

PLAN = {"n_parameters": 1e9, "tokens_per_step": 5e5, "steps": 20_000}


def surface(n, d):
    return 1.69 + 406.4 * n**-0.34 + 410.7 * d**-0.28


def test_the_losses_are_those_of_hoffmann_at_equal_compute():
    advice = toposcale.advise(**PLAN)
    rows = {row["n_parameters"]: row for row in advice["candidates"]}
    assert set(rows) == {250_000_000, 500_000_000, 10**9, 2 * 10**9, 4 * 10**9}
    for size, row in rows.items():
        tokens = 1e9 * 1e10 / size
        assert row["steps"] * 5e5 == pytest.approx(tokens, rel=1e-3)
        assert row["loss"] == pytest.approx(surface(size, tokens), abs=1e-3)
        assert row["gain"] == pytest.approx(surface(1e9, 1e10) - surface(size, tokens), abs=1e-3)
    assert advice["choice"] == "start 0.5 x this run"
    assert not advice["confident"]
    assert "has not started" in advice["low_confidence_reasons"][0]


def test_differences_are_better_known_than_losses():
    rows = toposcale.advise(**PLAN)["candidates"]
    for row in rows[1:]:
        assert row["loss_high"] - row["loss_low"] > 1.2
    half = [row["gain_high"] - row["gain"] for row in rows if row["kind"] != "continue"]
    np.testing.assert_allclose(half, 1.96 * np.sqrt(2) * 0.106, rtol=1e-3)


def test_a_small_model_on_very_many_tokens_is_to_be_larger():
    advice = toposcale.advise(n_parameters=25e6, tokens_per_step=5e5, steps=400_000)
    assert advice["choice"] == "scale up to 4 x this run"


def test_the_command_needs_no_curve(capsys):
    arguments = ["--n-parameters", "1e9", "--tokens-per-step", "5e5", "--steps", "20000", "--sizes", "500M"]
    assert main(["advise", *arguments]) == 0
    out = capsys.readouterr().out
    assert "law of Hoffmann et al. 2022" in out
    assert "=> Start 500M" in out


def test_what_it_needs_is_asked_for():
    with pytest.raises(UserError, match="tokens_per_step"):
        toposcale.advise(n_parameters=1e9, steps=1000)
    assert toposcale.advise(**PLAN, remaining=1.0)["no_advice_because"]


def test_its_picture_and_its_target_need_no_curve():
    advice = toposcale.advise(**PLAN, target_loss=2.8)
    assert advice.plot().has_data()
    losses = [surface(1e9, 5e5 * step) for step in (advice["target_step"] - 210, advice["target_step"])]
    assert losses[0] > 2.8 >= losses[1]
