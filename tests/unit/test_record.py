"""The record under an answer: how the forecasts of published runs like this one turned out."""

import csv

import numpy as np
import pytest

import toposcale
from made_runs import changed
from planted_laws import FINAL, law, run, wsd
from toposcale.forecasting.laws.record import MIN_FORECASTS, RECORD, record_of, size_decade

HALF = run("100M", 100_000_000, until=0.5)


@pytest.mark.parametrize(("n_parameters", "decade"), [(25e6, 7), (1e8, 8), (999e6, 8), (1e9, 9), (3000, 3)])
def test_size_decade_is_the_power_of_ten_below(n_parameters, decade):
    assert size_decade(n_parameters) == decade


def test_record_of_a_run_is_the_row_of_its_size_optimizer_and_share():
    rows = list(csv.DictReader(RECORD.read_text().splitlines()))
    [row] = [row for row in rows if (row["decade"], row["optimizer"], row["share"]) == ("8", "adamw", "0.5")]
    record = record_of(changed(HALF, optimizer="adamw"))
    assert (record.n, record.coverage) == (int(row["n"]), float(row["coverage"]))
    assert record.suffices
    assert f"{record.n} forecasts of published runs of 100M to 1B parameters under adamw at 50%" in str(record)


@pytest.mark.parametrize(("seen", "share"), [(0.1, 0.2), (0.24, 0.2), (0.26, 0.3), (0.9, 0.5)])
def test_record_of_a_run_is_that_of_the_nearest_share(seen, share):
    assert record_of(run("100M", 100_000_000, until=seen)).share == share


def test_record_of_an_unknown_optimizer_is_that_of_adamw():
    assert record_of(HALF) == record_of(changed(HALF, optimizer="adamw"))


@pytest.mark.parametrize("facts", [{"optimizer": "lion"}, {"n_parameters": 3_000}])
def test_record_of_runs_that_nobody_published_is_empty(facts):
    record = record_of(changed(HALF, **facts))
    assert (record.n, record.suffices, record.as_dict()["mean_error"]) == (0, False, None)
    assert str(record).startswith("no forecasts of published runs")


def test_advise_ends_with_the_record_and_is_confident_with_one_alone():
    steps = np.arange(250, FINAL // 2, 50)
    noise = 0.002 * np.random.default_rng(0).normal(size=len(steps))
    curve = {"step": steps, "loss": law(100_000_000, wsd(), steps) + noise, "learning_rate": wsd()[steps]}
    schedule = {"shape": "wsd", "warmup_steps": 200, "decay_start": 3200, "final": 0.1, "steps": FINAL}
    for optimizer, n_least in (("adamw", MIN_FORECASTS), ("lion", 0)):
        advice = toposcale.advise(curve, n_parameters=1e8, tokens_per_step=5e5, schedule=schedule, optimizer=optimizer)
        *_, record, last = str(advice).splitlines()
        assert record == f"  Runs like yours: {advice.record}."
        assert last.startswith("  =>")
        assert advice["record"]["n"] >= n_least
        short = "fewer than 20 forecasts of runs like this one"
        assert any(reason.startswith(short) for reason in advice.reasons) == (n_least == 0)
