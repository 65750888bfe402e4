"""Which of several runs is better: planted differences, replicates, and what must not be claimed."""

import json

import numpy as np
import pandas as pd
import pytest

import toposcale
from paths import ROOT
from planted_laws import law
from toposcale.__main__ import main
from toposcale.forecasting import results
from toposcale.forecasting.decision import differences
from toposcale.forecasting.decision.compare_runs import sentences
from toposcale.forecasting.decision.differences import Axis, Difference
from toposcale.forecasting.runs.curves import Curve
from toposcale.io.errors import UserError

STEPS = np.arange(100, 10_001, 100)
RUN = {"n_parameters": 25e6, "tokens_per_step": 500_000}
FINISHED = {**RUN, "steps": 10_000}


def curve(scale=40.0, seed=0, noise=0.002, steps=STEPS):
    loss = 2.0 + scale * steps**-0.5
    return {"step": steps, "loss": loss + noise * np.random.default_rng(seed).normal(size=len(steps))}


def compared(one, other, **facts):
    """The comparison of two runs."""
    [pair] = toposcale.compare_runs(one, other, **facts).pairs
    return pair


def test_compare_runs_covers_planted_differences():
    comparison = compared(curve(), curve(36, seed=1), **RUN)
    [now] = comparison.now
    assert now.is_significant
    assert now.low < -0.04 < now.high
    assert comparison.speed_up.is_of_second
    assert comparison.speed_up.low < 0.81 < comparison.speed_up.high
    assert "B has the lower loss" in sentences(comparison)[0]


def test_exchanged_runs_have_the_opposite_difference():
    one, other = curve(), curve(36, seed=1)
    there, back = compared(one, other, **FINISHED), compared(other, one, **FINISHED)
    assert there.now[0].value == pytest.approx(-back.now[0].value)
    assert there.end.value == pytest.approx(-back.end.value)
    assert there.speed_up.share == back.speed_up.share
    assert there.speed_up.is_of_second != back.speed_up.is_of_second


def test_runs_that_differ_by_noise_alone_rarely_differ():
    found = [
        compared(curve(seed=2 * seed, noise=0.02), curve(seed=2 * seed + 1, noise=0.02), **RUN).now[0].is_significant
        for seed in range(60)
    ]
    assert np.mean(found) <= 0.1


@pytest.mark.parametrize("rows", [5, 12, 50])
def test_runs_of_few_noisy_rows_rarely_differ(rows):
    steps = np.linspace(10_000 / rows, 10_000, rows).round()
    pairs = [
        compared(*(curve(seed=2 * seed + which, noise=0.03, steps=steps) for which in (0, 1)), **FINISHED)
        for seed in range(60)
    ]
    assert np.mean([pair.now[0].is_significant for pair in pairs]) <= 0.1
    assert np.mean([pair.end.is_significant for pair in pairs]) <= 0.1


def test_compare_runs_cancels_shared_noise():
    steps = np.linspace(1000, 10_000, 10)
    shared = {"step": steps, "loss": curve(steps=steps, noise=0.05)["loss"]}
    lower = {"step": steps, "loss": shared["loss"] - 0.02}
    noise = differences._noise_of_difference(*(Curve(steps, run["loss"]) for run in (shared, lower)))
    assert noise == pytest.approx(0, abs=1e-12)
    assert np.isnan(differences._noise_of_difference(Curve(steps[:2], steps[:2]), Curve(steps, steps)))


def test_compare_runs_at_equal_tokens_and_compute():
    comparison = compared(
        curve(), {"curve": curve(36, seed=1), "tokens_per_step": 1e6}, n_parameters=25e6, tokens_per_step=5e5
    )
    steps, tokens = comparison.now
    assert (steps.axis, tokens.axis) == ("steps", "tokens")
    assert (steps.position, tokens.position) == (10_000, 5e9)
    # At 5e9 tokens B has made half of the steps: 2 + 36 / sqrt(5000) against 2 + 40 / sqrt(10000).
    assert tokens.low < 36 / np.sqrt(5000) - 40 / np.sqrt(10_000) < tokens.high
    larger = compared(curve(), {"curve": curve(36), "n_parameters": 50e6}, **RUN)
    assert [row.axis for row in larger.now] == ["steps", "compute"]


def test_without_tokens_the_seeds_are_unknown_unless_stated():
    unknown = compared(curve(), curve(36))
    assert np.isnan(unknown.now[0].low)
    assert not unknown.now[0].is_significant
    assert "noise within the curves or between seeds is unknown" in sentences(unknown)[0]
    json.dumps(unknown.as_dict(), allow_nan=False)
    assert compared(curve(), curve(36), seed_noise=0.002).now[0].is_significant
    assert not compared(curve(), curve(36), seed_noise=0.1).now[0].is_significant


def test_compare_runs_under_different_rates():
    steps = np.arange(250, 3001, 50)
    constant = np.full(3001, 1e-3)
    one = {"step": steps, "loss": law(1e8, constant, steps), "learning_rate": constant[steps]}
    decaying = np.concatenate([np.full(2001, 1e-3), np.linspace(1e-3, 1e-4, 1000)])
    other = {"step": steps, "loss": law(1e8, decaying, steps), "learning_rate": decaying[steps]}
    comparison = compared(one, other, n_parameters=1e8, tokens_per_step=1000, warmup_steps=250)
    assert comparison.now[0].value < 0
    assert "part of the gap is annealing" in comparison.note


def test_compare_runs_forecasts_ends_ahead():
    ahead = {**RUN, "steps": 20_000}
    assert "not known to the end" in compared(curve(), curve(36), **ahead).end.reason
    forecast = compared(curve(), curve(36), **ahead, schedule="cosine").end
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
        compared(one, other, **RUN)


def test_the_command_tells_what_python_does(tmp_path, capsys):
    for name, scale in (("a.csv", 40), ("b.csv", 36)):
        pd.DataFrame(curve(scale)).to_csv(tmp_path / name, index=False)
    arguments = ["curves", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--tokens-per-step", "5e5"]
    assert main(arguments) == 0
    expected = toposcale.compare_runs(tmp_path / "a.csv", tmp_path / "b.csv", tokens_per_step=5e5)
    assert capsys.readouterr().out == f"{expected}\n"
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(dict(expected)))
    assert main([*arguments, "--n-parameters", "1e6", "2e6", "3e6"]) == 1
    assert "one for each of the 2 curves (- for none)" in capsys.readouterr().err
    assert main(arguments[:2]) == 1
    assert "give two or more" in capsys.readouterr().err
    assert main(["curves", *[str(tmp_path / "a.csv")] * 27]) == 1
    assert "give at most 26, one for each letter; here are 27" in capsys.readouterr().err
    assert main([*arguments, "--steps", "10000", "--schedule", "cosine", "-", "--final", "0.1"]) == 1
    assert "b.csv: --final: not used without --schedule" in capsys.readouterr().err


def test_what_is_equal_and_the_steps_of_both_runs_are_said():
    pair = compared(curve(), {"curve": curve(36, seed=1), "tokens_per_step": 1e6}, **RUN | {"steps": 10_000})
    assert sentences(pair)[1].startswith("At 5e+09 tokens (step 10,000 of A, 5,000 of B): A has the lower loss")
    assert sentences(pair)[-1].startswith("At the ends (step 10,000): B is better")


def test_a_last_row_is_no_end_unless_the_last_step_is_known():
    longer = curve(36, steps=np.arange(100, 16_001, 100))
    pair = compared(curve(), longer, **RUN)
    assert pair.now[0].position == 10_000
    assert np.isnan(pair.end.value)
    assert "A: its rows end at step 10,000" in pair.end.reason
    assert "B: its rows end at step 16,000" in pair.end.reason
    assert not pair.is_confident
    ended = compared({"curve": curve(), "steps": 10_000}, {"curve": longer, "steps": 16_000}, **RUN)
    assert ended.end.low < 36 * 16_000**-0.5 - 40 * 10_000**-0.5 < ended.end.high
    assert sentences(ended)[-1].startswith("At the ends (step 10,000 of A, 16,000 of B): B is better")


def test_compare_runs_names_unknown_learning_rates():
    unknown = compared(curve(), curve(36, seed=1), **RUN)
    assert unknown.note.startswith(
        "at step 10,000 the learning-rate schedule of A and of B is unknown (no learning rates are logged), so confidence"
    )
    known = {**curve(36), "learning_rate": np.full(len(STEPS), 1e-3)}
    assert " of A is unknown" in compared(curve(), {"curve": known, "warmup_steps": 100}, **RUN).note
    begun_late = {name: np.asarray(values)[30:] for name, values in known.items()}
    note = compared(begun_late, begun_late, **RUN).note
    assert "(the learning rates before step " in note
    assert "give the schedule, or warmup_steps if the warm-up ends there)" in note
    finished = compared(curve(), curve(36, seed=1), **FINISHED)
    assert finished.note == ""
    assert finished.is_confident
    assert sentences(finished)[-1].endswith("; confident.")


def test_reasons_of_a_forecast_are_those_of_its_comparison():
    ahead = {**RUN, "steps": 20_000, "schedule": "cosine", "optimizer": "adamw"}
    warmup_unknown, warmup_known = (
        compared(curve(), curve(30), **ahead, **more) for more in ({}, {"warmup_steps": 100})
    )
    assert [pair.end.is_significant for pair in (warmup_unknown, warmup_known)] == [True, True]
    assert "A: whether the learning rate had a warm-up is unknown" in warmup_unknown.reasons
    assert "not confident: A: whether the learning rate had a warm-up" in sentences(warmup_unknown)[-1]
    assert (warmup_unknown.is_confident, warmup_known.is_confident) == (False, True)


def test_a_schedule_without_its_last_step_is_refused():
    with pytest.raises(UserError, match="A: schedule: steps, the last step of the run, is missing"):
        compared(curve(), curve(36), **RUN, schedule="cosine")


def test_an_end_without_the_number_of_parameters_is_unknown():
    pair = compared(curve(), curve(36), tokens_per_step=5e5, steps=20_000, schedule="cosine")
    assert "A: its number of parameters is unknown" in pair.end.reason


def test_ends_of_different_losses_are_not_subtracted():
    validated = {**curve(), "validation_loss": curve()["loss"] + 0.3}
    ahead = {**RUN, "steps": 20_000, "schedule": "cosine", "warmup_steps": 100}
    pair = compared(validated, curve(), **ahead)
    assert pair.now[0].value == pytest.approx(0, abs=1e-9)
    assert "training loss" in pair.end.reason
    assert np.isnan(pair.end.value)


def test_compare_runs_of_more_than_two():
    scales = (40, 36, 40, 38)
    runs = [curve(scale, seed=seed) for seed, scale in enumerate(scales)]
    together = toposcale.compare_runs(*runs, **FINISHED)
    assert [pair.second.model for pair in together.pairs] == ["B", "C", "D"]
    for other, pair in zip(runs[1:], together.pairs, strict=True):
        alone = compared(runs[0], other, **FINISHED)
        for one, both in ((alone.now[0], pair.now[0]), (alone.end, pair.end)):
            assert both.value == one.value
            # Bonferroni: the normal quantile of .05 / 6 on each side, compared with that of .05 / 2.
            assert (both.high - both.low) / (one.high - one.low) == pytest.approx(2.39398 / 1.95996, rel=1e-5)
    assert "The intervals of the 3 comparisons with A hold together." in str(together)
    assert json.loads(json.dumps(dict(together), allow_nan=False))["pairs"][2]["b"] == "D"
    with pytest.raises(TypeError, match="from 2 to 26 curves, got 1"):
        toposcale.compare_runs(curve())


def test_among_many_replicates_a_run_that_differs_is_rare():
    found = [
        any(
            pair.now[0].is_significant
            for pair in toposcale.compare_runs(*(curve(seed=5 * i + j, noise=0.02) for j in range(5)), **RUN).pairs
        )
        for i in range(40)
    ]
    assert np.mean(found) <= 0.15


def test_compare_runs_of_the_example_curves(tmp_path, capsys):
    files = [str(ROOT / "examples" / name) for name in ("losses.csv", "losses-wsd.csv")]
    options = "--n-parameters 25e6 --tokens-per-step 524288 --warmup-steps 2160 --steps 24000 --final 0.1"
    own = "--schedule cosine wsd --decay-start - 20000"
    picture = tmp_path / "curves.svg"
    assert main(["curves", *files, *options.split(), *own.split(), "--json", "--plot", str(picture)]) == 0
    [pair] = json.loads(capsys.readouterr().out)["pairs"]
    end = pair["differences"][-1]
    assert end["low"] < 3.278 - 3.304 < end["high"]  # the published ends (examples/README.md)
    assert picture.read_bytes().startswith(b"<?xml")


def test_comparison_picture_with_and_without_forecasts(tmp_path):
    runs = curve(), curve(36), curve(38)
    assert toposcale.compare_runs(*runs).plot().has_data()
    comparison = toposcale.compare_runs(*runs, **RUN, steps=20_000, schedule="cosine")
    results.write(comparison, tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(UserError, match=r"must be \.svg, \.png, \.pdf"):
        results.write(comparison, tmp_path / "curves.gif")


def few_validation_losses(seed, lower=0.0, rows=20):
    """A dozen or two of validation losses under a decay over the last two thirds, with noise of 0.0005 nats."""
    steps = np.linspace(0, 1500, rows + 1)[1:].round()
    decay = np.maximum(steps - 500, 0) / 1000
    losses = 2.9 + 12 * steps**-0.5 - 0.3 * decay**1.2 - lower
    noise = 0.0005 * np.random.default_rng(seed).normal(size=rows)
    return {"step": steps, "validation_loss": losses + noise}


@pytest.mark.parametrize(
    ("rows", "lower", "least", "most"), [(20, 0.01, 0.8, 1.0), (20, 0.0, 0.0, 0.05), (12, 0.01, 0.8, 1.0)]
)
def test_what_bends_a_curve_of_few_rows_is_no_noise(rows, lower, least, most):
    """A hundredth of a nat is found where the seeds scatter by two thousandths."""
    shifts = np.random.default_rng(1).normal(0.0, 0.002, (40, 2))
    found = []
    for seed, (one, other) in enumerate(shifts):
        a = few_validation_losses(2 * seed, one, rows)
        b = few_validation_losses(2 * seed + 1, other + lower, rows)
        pair = compared(a, b, n_parameters=124e6, tokens_per_step=524_288, steps=1500, seed_noise=0.002)
        found.append(pair.end.is_significant and (pair.end.value < 0 or not lower))
    assert least <= np.mean(found) <= most


UNDER_WAY = {**RUN, "steps": 20_000, "schedule": "cosine", "warmup_steps": 100}


def test_difference_of_ends_is_narrower_within_one_recipe():
    def width(**facts):
        end = compared(curve(), curve(seed=1), **{**UNDER_WAY, **facts}).end
        return end.high - end.low

    same = width(optimizer="adamw")
    other = toposcale.compare_runs(
        {"curve": curve(), "optimizer": "adamw"}, {"curve": curve(seed=1), "optimizer": "muon"}, **UNDER_WAY
    )
    [pair] = other.pairs
    assert width() > same
    assert pair.end.high - pair.end.low > same


def test_compare_runs_tells_the_power_where_it_finds_nothing():
    pair = compared(curve(), curve(seed=1), **UNDER_WAY)
    assert not pair.end.is_significant
    assert 0 < pair.end.power < 0.5
    last = sentences(pair)[-1]
    assert f"a difference of 0.05 nats would be found in {pair.end.power:.0%} of such comparisons" in last
    assert "cannot be told before the decay: ask again from step" in last


def test_power_of_a_difference_is_that_of_a_normal_test():
    simulated = 0.02 * np.random.default_rng(1).standard_normal(200_000) + 0.05
    difference = Difference(Axis.END, value=0.0, deviation=0.02)
    assert difference.power == pytest.approx(np.mean(simulated > 1.959964 * 0.02), abs=0.005)
    assert np.isnan(Difference(Axis.END, value=0.0, deviation=np.nan).power)
