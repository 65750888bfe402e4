"""From a loss curve to the advice in one call: `toposcale.advise`, and the same in a terminal."""

import argparse
import json
import re
import subprocess
import sys
import time
from inspect import signature

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

import toposcale
from planted_laws import FINAL, law, run, wsd
from toposcale.__main__ import main
from toposcale.forecasting import Provenance
from toposcale.forecasting import advise as advise_on_curve
from toposcale.forecasting.amounts import amount
from toposcale.forecasting.decision.advice import advise_on
from toposcale.forecasting.decision.advise import add_arguments
from toposcale.forecasting.decision.candidates import Request
from toposcale.forecasting.runs.facts import FACTS
from toposcale.io.errors import UserError

SCHEDULE = {"shape": "wsd", "warmup_steps": 200, "decay_start": 3200, "final": 0.1}
PLAN = ("--schedule", "wsd", "--warmup-steps", "200", "--decay-start", "3200", "--final", "0.1", "--steps", str(FINAL))
RUN = ("--n-parameters", "1e8", "--tokens-per-step", "500000", *PLAN)


def columns(size=100_000_000, until=0.5, every=50):
    rates = wsd()
    steps = np.arange(250, int(until * FINAL) + 1, every)
    noise = 0.002 * np.random.default_rng(size).normal(size=len(steps))
    return {"step": steps, "loss": law(size, rates, steps) + noise, "learning_rate": rates[steps]}


@pytest.fixture
def curve(tmp_path):
    path = tmp_path / "losses.csv"
    pd.DataFrame(columns()).to_csv(path, index=False)
    return path


def told(capsys, *arguments):
    """The exit status, the output, and the last line that went wrong."""
    status = main(["advise", *map(str, arguments)])
    output = capsys.readouterr()
    return status, output.out, output.err.strip().splitlines()[-1:]


def test_advise_forecasts_alike_from_columns_and_files(curve):
    given = {"n_parameters": 1e8, "tokens_per_step": 500_000, "schedule": SCHEDULE, "steps": FINAL}
    found = [toposcale.advise(source, **given) for source in (columns(), pd.DataFrame(columns()), curve, str(curve))]
    truth = law(100_000_000, wsd(), [FINAL])[0]
    for advice in found:
        assert advice["forecast_low"] < truth < advice["forecast_high"]
        assert advice["forecast"] == pytest.approx(truth, abs=0.03)
        assert {row["candidate"] for row in advice["candidates"]} == {
            "continue",
            "scale up to 2 x this run",
            "scale up to 4 x this run",
        }
    assert [dict(one) for one in found[1:]] == [dict(found[0])] * 3


@pytest.mark.parametrize(
    "form",
    [
        lambda frame: frame.set_index("step")["loss"],
        lambda frame: frame[["step", "loss"]].to_numpy(),
        lambda frame: frame[["step", "loss"]].to_dict("records"),
    ],
    ids=["series", "array", "rows"],
)
def test_a_series_an_array_and_a_list_of_rows_are_the_columns(form):
    frame = pd.DataFrame(columns())
    given = {"n_parameters": 1e8, "tokens_per_step": 500_000, "schedule": SCHEDULE | {"steps": FINAL}}
    expected = toposcale.advise(frame[["step", "loss"]], **given)
    assert dict(toposcale.advise(form(frame), **given)) == dict(expected)


def test_it_is_the_advice_on_the_training(curve):
    """One way from a training to advice: that of the workflow, too."""
    live = run("this run", 100_000_000, until=0.5)
    log = {"step": live.checkpoint_steps, "loss": live.checkpoint_losses}
    advice = toposcale.advise(log, n_parameters=1e8, tokens_per_step=500_000, schedule=SCHEDULE, steps=FINAL)
    whole = advise_on(advice.run, [], Request())
    assert advice == whole


def test_sizes_that_could_be_started_and_known_runs_take_part(curve):
    given = {"n_parameters": 1e8, "tokens_per_step": 500_000, "schedule": SCHEDULE, "steps": FINAL}
    alone = toposcale.advise(curve, **given, sizes=[4e8])
    assert {row["candidate"] for row in alone["candidates"]} == {"continue", "scale up to 400M"}
    other = {"curve": columns(400_000_000, until=1.0), "n_parameters": 4e8, "schedule": SCHEDULE, "steps": FINAL}
    beside = toposcale.advise(curve, **given, sizes=[4e8], known=[other])
    start = [
        next(row for row in advice["candidates"] if row["candidate"] == "scale up to 400M")
        for advice in (alone, beside)
    ]
    assert start[1]["loss_high"] - start[1]["loss_low"] < start[0]["loss_high"] - start[0]["loss_low"]


def test_advise_command_takes_under_three_seconds(curve, capsys):
    start = time.process_time()
    status, output, _ = told(capsys, curve, *RUN, "--sizes", "4e8")
    assert time.process_time() - start < 3
    assert status == 0
    for shown in ("scale up to 400M", "continue", f"{FINAL:,}", "nats"):
        assert shown in output
    status, text, _ = told(capsys, curve, *RUN, "--sizes", "4e8", "--json")
    given = {"n_parameters": 1e8, "tokens_per_step": 500_000, "schedule": SCHEDULE, "steps": FINAL}
    assert json.loads(text) == toposcale.advise(curve, **given, sizes=[4e8])


def test_a_known_run_in_a_terminal(curve, tmp_path, capsys):
    other = tmp_path / "other.csv"
    pd.DataFrame(columns(400_000_000, until=1.0)).to_csv(other, index=False)
    status, text, _ = told(capsys, curve, *RUN, "--sizes", "4e8", "--known", f"{other}:4e8", "--json")
    assert (status, json.loads(text)["models_read"]) == (0, 2)
    for wrong in (str(other), "4e8", f"{other}:big", f"{other}:4e8:steps=3"):
        status, _, [line] = told(capsys, curve, *RUN, "--known", wrong)
        assert status == 1
        assert f"--known {wrong}" in line
        assert "CURVE:PARAMETERS" in line


@pytest.mark.parametrize(
    ("missing", "asked"),
    [("--n-parameters", "n_parameters"), ("--tokens-per-step", "tokens_per_step"), ("--steps", "steps")],
)
def test_advise_asks_for_what_is_not_known(curve, capsys, missing, asked):
    at = RUN.index(missing)
    status, _, [line] = told(capsys, curve, *RUN[:at], *RUN[at + 2 :])
    assert status == 1
    assert asked in line


def test_a_trainers_folder_needs_its_size_alone(tmp_path, capsys):
    log = [
        {"step": int(step), "loss": float(loss), "learning_rate": float(rate)}
        for step, loss, rate in zip(*columns().values(), strict=True)
    ]
    state = {"log_history": log, "max_steps": FINAL, "global_step": 2000}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    status, text, _ = told(capsys, tmp_path, "--n-parameters", "1e8", "--tokens-per-step", "500000", "--json")
    assert (status, json.loads(text)["final_step"]) == (0, FINAL)
    status, _, [line] = told(capsys, tmp_path / "trainer_state.json", "--tokens-per-step", "500000")
    assert status == 1
    assert "n_parameters" in line


def test_a_curve_longer_than_the_plan_is_refused(curve, capsys):
    status, _, [line] = told(capsys, curve, "--n-parameters", "1e8", "--tokens-per-step", "500000", "--steps", "1000")
    assert status == 1
    assert "step 2,000" in line
    assert "step 1,000" in line


def test_a_curve_that_rises_gets_no_advice(capsys, tmp_path):
    rising = columns()
    rising["loss"] = np.append(rising["loss"][:-15], np.linspace(3.5, 7.5, 15))
    path = tmp_path / "rising.csv"
    pd.DataFrame(rising).to_csv(path, index=False)
    status, output, _ = told(capsys, path, *RUN)
    assert status == 0
    assert "the loss is rising" in output
    assert "start" not in output.lower()


def test_a_finished_run_is_told_as_finished(capsys, tmp_path):
    path = tmp_path / "whole.csv"
    pd.DataFrame(columns(until=1.0)).to_csv(path, index=False)
    status, output, _ = told(capsys, path, *RUN)
    assert status == 0
    assert "finished" in output


@pytest.mark.parametrize(
    ("number", "text"), [(100e6, "100M"), (1.4e9, "1.4B"), (2936, "2.94K"), (12, "12"), (2e12, "2T")]
)
def test_sizes_are_named_as_people_write_them(number, text):
    assert amount(number) == text


def test_what_means_nothing_for_a_known_run_is_named():
    given = {"n_parameters": 1e8, "tokens_per_step": 500_000, "schedule": SCHEDULE, "steps": FINAL}
    with pytest.raises(UserError, match="known run 1: unknown field colour; a run has aspect_ratio, count_parameters"):
        toposcale.advise(columns(), **given, known=[{"curve": columns(), "colour": 3}])


GIVEN = {"n_parameters": 1e8, "tokens_per_step": 500_000, "schedule": SCHEDULE, "steps": FINAL}


def changed(loss):
    """The columns with other losses: what `loss` makes of them."""
    found = columns()
    return found | {"loss": loss(found["loss"].copy())}


def with_end(*values):
    def change(losses):
        losses[-len(values) :] = values
        return losses

    return lambda: changed(change)


@pytest.mark.parametrize(
    ("curve", "reason"),
    [
        (lambda: changed(lambda losses: np.full_like(losses, 3.5)), "does not decrease as in published runs: by 0.0%"),
        (
            lambda: changed(lambda losses: 10.8 + 0.02 * np.random.default_rng(0).normal(size=len(losses))),
            "the loss does not decrease",
        ),
        (with_end(7.0), "the log ends in a spike of 1 row, up to 7"),
        (with_end(5.0, 7.0), "the log ends in a spike of 2 rows, up to 7"),
        # pandas writes a NaN as an empty cell, which is what a row without a loss looks like.
        (with_end(np.nan, np.nan, np.nan), "the last 3 logged losses are not numbers"),
    ],
)
def test_a_curve_that_does_not_bear_it_gets_no_advice(curve, reason, tmp_path):
    pd.DataFrame(curve()).to_csv(tmp_path / "losses.csv", index=False)
    for source in (pd.DataFrame(curve()), tmp_path / "losses.csv"):
        advice = toposcale.advise(source, **GIVEN)
        assert reason in advice["no_advice_because"]
        assert not advice["candidates"]


def test_rows_that_are_logged_without_a_loss_are_no_lost_losses():
    """A loss in every third row, and the plan written out to its end."""
    sparse = columns()
    sparse["loss"][np.arange(len(sparse["loss"])) % 3 > 0] = np.nan
    assert toposcale.advise(sparse, **GIVEN)["candidates"]
    rates, own = wsd(), columns()
    ahead = np.arange(own["step"][-1] + 50, FINAL + 1, 50)
    whole = {
        "step": np.append(own["step"], ahead),
        "loss": np.append(own["loss"], np.full(len(ahead), np.nan)),
        "learning_rate": np.append(own["learning_rate"], rates[ahead]),
    }
    assert toposcale.advise(whole, n_parameters=1e8, tokens_per_step=500_000, steps=FINAL, warmup_steps=200)[
        "candidates"
    ]


def test_advise_from_too_few_points_is_not_confident():
    few = {name: values[:14:2] for name, values in columns().items()}
    advice = toposcale.advise(few, **GIVEN, sizes=[1.5e6, 100e6])
    assert advice["candidates"]
    assert not advice["confident"]
    assert any("too few points" in said for said in advice["assumed"])


def test_a_known_run_that_rises_is_named():
    rising = with_end(*np.linspace(3.5, 7.5, 15))()
    with pytest.raises(UserError, match=r"known run 1: the loss is rising: .*; leave it out"):
        toposcale.advise(columns(), **GIVEN, known=[{"curve": rising, "n_parameters": 4e8}])


def test_advise_on_a_finished_run_gives_one_reason():
    advice = toposcale.advise(columns(until=1.0), **GIVEN)
    assert advice["no_advice_because"] == str(advice).splitlines()[0]
    assert "finished at step" in str(advice)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--n-parameters", "-5"), "n_parameters: -5, but it must be at least 1"),
        (("--n-parameters", "inf"), "n_parameters: inf"),
        (("--tokens-per-step", "1e30"), "tokens_per_step: 1e+30"),
        (("--steps", "nan"), "steps: nan"),
        (("--steps", "1e18"), "steps: 1e+18"),
        (("--steps", "4000.7"), "steps: 4000.7, but it must be a whole number"),
        (("--warmup-steps", "nan"), "warmup_steps: nan"),
        (("--sizes", "0"), "sizes (--sizes): 0, but it must be at least 1"),
        (("--sizes", "100"), "sizes (--sizes): 100 parameters make no language model; write 25e6 or 25M"),
        (("--remaining", "-1"), "remaining: -1"),
        (("--target-loss", "nan"), "target_loss: nan"),
        (("--n-parameters", "25"), "n_parameters: 25 parameters make no language model; write 25e6 or 25M"),
        (("--warmup-steps", "4000"), "it lies between the end of the warm-up, 4000, and the end, 4000"),
        (("--schedule", "cosine"), "decay_start: not used by cosine"),
        (("--schedule", "cosin"), "cosin: neither a shape (constant, linear, cosine, wsd) nor a file"),
    ],
)
def test_a_number_that_fits_no_training_is_one_line(curve, capsys, arguments, line):
    status, _, [last] = told(capsys, curve, *RUN, *arguments)
    assert status == 1
    assert line in last


def test_numbers_may_be_written_as_people_do(curve, capsys):
    plain, *others = (
        told(capsys, curve, *RUN, "--sizes", size, "--json")[1] for size in ("4e8", "400M", "400,000,000")
    )
    assert others == [plain] * 2
    advices = [toposcale.advise(curve, **GIVEN | {"n_parameters": text}) for text in (1e8, "100M", "100,000,000")]
    assert [dict(advice) for advice in advices] == [dict(advices[0])] * 3
    with pytest.raises(UserError, match="n_parameters: '1,00' is not a number"):
        toposcale.advise(curve, **GIVEN | {"n_parameters": "1,00"})
    assert main(["advise", str(curve), "--n-parameters", "many"]) == 1
    assert "n_parameters: 'many' is not a number, for example 25e6" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("curve", "given", "line"),
    [
        (np.ones((2, 3)), {}, "an array (n, 2) of steps and losses, or a list of rows by name, but it is a ndarray"),
        ("", {}, "curve: a file, a folder, columns by name such as a data frame, a series"),
        (None, {"known": ["f.csv"]}, 'known run 1: a mapping such as {"curve": "losses.csv"'),
        (None, {"schedule": pd.DataFrame({"step": [1]})}, "a mapping of its fields, or a file, but it is a DataFrame"),
        (None, {"schedule": SCHEDULE | {"shape": "constant", "decay_start": None}}, "final: not used by constant"),
        (None, {"schedule": SCHEDULE | {"shape": "linear"}}, "decay_start: not used by linear"),
        (None, {"schedule": None, "warmup_steps": 9000}, "warmup_steps: 9,000, but the schedule ends at step 4,000"),
        ([1, 2], {}, "curve: a file, a folder, columns by name such as a data frame, a series"),
        ({"step": [1, 2], "loss": [1.0]}, {}, "not of one length: step 2, loss 1"),
        ({"step": [1, 2], "loss": ["a", "b"]}, {}, "column loss contains values that are not numbers"),
        (None, {"n_parameters": "many"}, "n_parameters: 'many' is not a number"),
        (
            None,
            {"n_parameters": pd.Series([1e7, 2e7])},
            "n_parameters: 0 10000000.0 1 20000000.0 dtype: float64 is not a",
        ),
        (None, {"n_parameters": 10**400}, "is not a number"),
        (None, {"target_loss": True}, "target_loss: True is not a number"),
        (None, {"name": ["a"]}, "name: a name such as"),
        (None, {"schedule": {"at": [0, 4000]}}, "schedule: unknown field at"),
        (
            None,
            {"schedule": {"at": [0, 4000], "values": [1e-3]}},
            "schedule: step: ascending from 0 or 1, in two rows at least, and a",
        ),
        (None, {"known": {"n_parameters": 4e8}}, "known run 1: a run has a curve and n_parameters"),
        (None, {"schedule": {"shape": "cosine", "warmup": 2}}, "schedule: unknown field warmup"),
        (None, {"schedule": {"warmup_steps": 2}}, "schedule: shape is missing"),
    ],
)
def test_what_a_caller_gets_wrong_is_one_line(curve, given, line):
    with pytest.raises(UserError) as error:
        toposcale.advise(columns() if curve is None else curve, **GIVEN | given)
    assert line in str(error.value)


def test_a_column_that_nobody_needs_may_hold_anything():
    frame = pd.DataFrame(columns()).assign(run="a")
    one, other = (toposcale.advise(source, **GIVEN, sizes=4e8) for source in (frame, columns()))
    assert one == other


def test_a_plan_that_the_log_contradicts_is_named(curve):
    longer = GIVEN | {"schedule": {"shape": "cosine", "warmup_steps": 200, "final": 0.1}}
    with pytest.raises(UserError, match=r"schedule: it gives a learning rate of .* but the log has"):
        toposcale.advise(curve, **longer)


def test_advise_on_a_finished_run_with_more_compute():
    advice = toposcale.advise(columns(until=1.0), **GIVEN, remaining=6e8 * 500_000 * FINAL, sizes=[4e8])
    assert advice["candidates"]
    assert not advice["no_advice_because"]
    assert "scale up to 400M" in str(advice)


# ---- what not used is refused, and what is assumed is said


@pytest.mark.parametrize("option", [("--final", "0.1"), ("--peak", "1e-3"), ("--decay-start", "3200")])
def test_advise_refuses_a_part_without_a_schedule(curve, capsys, option):
    plan = ("--n-parameters", "1e8", "--tokens-per-step", "500000", "--steps", str(FINAL))
    status, _, [line] = told(capsys, curve, *plan, *option)
    assert status == 1
    assert f"{option[0]}: not used without --schedule" in line


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.csv"
    pd.DataFrame({"step": np.arange(FINAL + 1), "lr": wsd()}).to_csv(path, index=False)
    return path


def test_a_schedule_file_is_the_whole_schedule(curve, plan_file, capsys):
    size = ("--n-parameters", "1e8", "--tokens-per-step", "500000")
    status, text, _ = told(capsys, curve, *size, "--schedule", plan_file, "--json")
    assert (status, json.loads(text)["final_step"]) == (0, FINAL)
    for option in ("--steps", "--warmup-steps", "--final", "--peak", "--decay-start"):
        status, _, [line] = told(capsys, curve, *size, "--schedule", plan_file, option, "200")
        assert status == 1
        assert option in line
        assert "not used with" in line
    with pytest.raises(UserError, match=r"steps \(--steps\): not used with the schedule file"):
        toposcale.advise(curve, **GIVEN | {"schedule": plan_file})


WITHOUT_RATES = {name: values for name, values in columns().items() if name != "learning_rate"}


@pytest.mark.parametrize(
    ("plan", "is_assumed"),
    [
        ({"shape": "cosine"}, True),
        ({"shape": "cosine", "warmup_steps": 0}, False),
        ({"shape": "cosine", "warmup_steps": 200}, False),
    ],
)
def test_unstated_warmup_is_a_reason_for_low_confidence(plan, is_assumed):
    advice = toposcale.advise(WITHOUT_RATES, **GIVEN | {"schedule": plan})
    reason = "whether the learning rate had a warm-up is unknown"
    assert (reason in advice["low_confidence_reasons"]) == is_assumed
    assert any("there was no warm-up: none was stated" in clause for clause in advice["assumed"]) == is_assumed
    assert not (advice["confident"] and is_assumed)


def test_logged_rates_tell_the_warmup():
    plan = {"shape": "constant"}
    flat = columns() | {"learning_rate": np.full(len(columns()["step"]), 1e-3)}
    advice = toposcale.advise(flat, **GIVEN | {"schedule": plan})
    assert not any("warm-up" in reason for reason in advice["low_confidence_reasons"])


# ---- which loss is read


def with_validation(*rows):
    """The columns with validation losses at some steps, 0.5 above what was logged, or the values given."""
    frame = pd.DataFrame(columns())
    frame["val_loss"] = np.nan
    for step, value in rows:
        frame.loc[frame["step"] == step, "val_loss"] = value
    return frame


@pytest.mark.parametrize("rows", [[(250, 10.9)], [(250, 10.9), (600, 9.0), (950, 8.0)]])
def test_a_stale_validation_loss_is_not_the_present_one(rows):
    """The log goes on to step 2,000."""
    stale, plain = toposcale.advise(with_validation(*rows), **GIVEN), toposcale.advise(columns(), **GIVEN)
    assert stale["metric"] == "training loss"
    for key in ("loss", "forecast", "choice", "expected_regret"):
        assert stale[key] == plain[key]
    said = f"the validation loss was not read: its last is of step {rows[-1][0]:,}, in the first half of the log"
    assert said in stale["assumed"]
    assert "the training loss that was read, up to step 2,000, is in nats per token" in stale["assumed"]


def test_advise_says_the_step_of_the_validation_loss():
    rows = [(step, 0.5 + loss) for step, loss in zip(columns()["step"], columns()["loss"], strict=True) if step <= 1500]
    advice = toposcale.advise(with_validation(*rows), **GIVEN)
    assert (advice["metric"], advice["loss"]) == ("validation loss", rows[-1][1])
    assert "the validation loss that was read, up to step 1,500, is in nats per token" in advice["assumed"]
    assert "at step 1,500" in str(advice).splitlines()[0]


def test_a_column_of_no_numbers_is_not_what_was_read(tmp_path):
    frame = pd.DataFrame(columns()).assign(val_loss="nan")
    frame.to_csv(tmp_path / "losses.csv", index=False)
    for source in (frame.assign(val_loss=np.nan), tmp_path / "losses.csv"):
        advice = toposcale.advise(source, **GIVEN)
        assert advice["metric"] == "training loss"
        assert advice["forecast"] == toposcale.advise(columns(), **GIVEN)["forecast"]


def test_validation_losses_alone_are_forecast():
    alone = {"step": columns()["step"], "val_loss": columns()["loss"]}
    advice = toposcale.advise(alone, **GIVEN)
    assert advice["metric"] == "validation loss"
    assert advice["forecast_low"] < law(100_000_000, wsd(), [FINAL])[0] < advice["forecast_high"]


def test_steps_that_were_logged_again_are_said():
    once = columns()
    again = {
        name: np.concatenate([values[:20] * (1.02 if name == "loss" else 1), values[10:]])
        for name, values in once.items()
    }
    advice = toposcale.advise(again, **GIVEN)
    said = f"the log goes back to step {once['step'][10]:,.0f}, as after a restart: 10 rows before that were left out"
    assert said in advice["assumed"]
    assert said in advice.text()


def test_columns_of_other_names_may_be_named(tmp_path, capsys):
    renamed = pd.DataFrame(columns()).rename(columns={"loss": "nll", "step": "batch"})
    renamed.to_csv(tmp_path / "losses.csv", index=False)
    names = ("--loss-column", "nll", "--step-column", "batch")
    status, text, _ = told(capsys, tmp_path / "losses.csv", *RUN, *names, "--json")
    assert status == 0
    assert json.loads(text) == toposcale.advise(columns(), **GIVEN)
    status, _, [line] = told(capsys, tmp_path / "losses.csv", *RUN)
    assert status == 1
    assert "no column for step and loss" in line
    assert "--step-column" in line


def test_tokens_in_the_place_of_steps_are_named():
    tokens = columns() | {"step": columns()["step"] * 1000}
    with pytest.raises(UserError, match=r"its steps are tokens: .*--tokens-per-step"):
        toposcale.advise(tokens, **GIVEN | {"tokens_per_step": 1000})


def test_a_log_that_starts_in_mid_run_needs_no_peak():
    """The peak of a cosine follows from any stretch of it."""
    at = np.arange(FINAL + 1)
    rates = 3e-4 * np.where(at < 200, (at + 1) / 200, 0.55 + 0.45 * np.cos(np.pi * (at - 200) / (FINAL - 200)))
    steps = np.arange(800, 2001, 25)
    late = {"step": steps, "loss": law(100_000_000, rates, steps), "learning_rate": rates[steps]}
    plan = {"shape": "cosine", "warmup_steps": 200}
    advice = toposcale.advise(late, **GIVEN | {"schedule": plan | {"final": 0.1}})
    stated = toposcale.advise(late, **GIVEN | {"schedule": plan | {"final": 3e-5, "peak": 3e-4}})
    assert advice["learning_rate_at_the_end"] == pytest.approx(3e-5, rel=1e-6)
    assert advice["forecast"] == pytest.approx(stated["forecast"], rel=1e-6)


def test_known_run_has_the_name_of_its_file_with_colons(curve, tmp_path, capsys):
    other = tmp_path / "lr=3e-4:seed=1:done.csv"
    pd.DataFrame(columns(400_000_000, until=1.0)).to_csv(other, index=False)
    status, text, _ = told(capsys, curve, *RUN, "--known", f"{other}:4e8")
    assert status == 0
    assert "from this run and 1 other" in text
    assert f"scale up to {other.name}" in text


def test_advise_on_a_trainer_whose_log_ends_before_its_end(tmp_path, capsys):
    """130 steps, of which every 50th is logged."""
    log = [{"step": step, "loss": 5.0 - step / 100} for step in (50, 100)]
    state = {"log_history": log, "max_steps": 130, "global_step": 130, "num_input_tokens_seen": 13_000}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    status, output, _ = told(capsys, tmp_path, "--n-parameters", "1e8")
    assert status == 0
    assert "finished at step 130" in output


def test_no_line_is_longer_than_the_terminal(curve, capsys, monkeypatch):
    whole = told(capsys, curve, *RUN, "--sizes", "4e8")[1]
    monkeypatch.setenv("COLUMNS", "60")
    narrow = told(capsys, curve, *RUN, "--sizes", "4e8")[1]
    assert max(map(len, whole.splitlines())) > 60
    assert max(map(len, narrow.splitlines())) <= 60
    numbers = [text.split("=>")[1].split() for text in (whole, narrow)]
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize("port", ["-1", "99999"])
def test_a_port_that_is_none_is_one_line(tmp_path, capsys, port):
    assert main(["watch", str(tmp_path), "--port", port]) == 1
    assert f"--port {port}: a port is a number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--sizes", "50e6", "100e6"), "--sizes 50e6 --sizes 100e6"),
        (("--lr", "3e-4"), "did you mean --peak?"),
        (("--learning-rate=3e-4",), "did you mean --peak?"),
        (("--n-paramters", "5"), "did you mean --n-parameters?"),
        (("--tokens-per-stap", "5"), "did you mean --tokens-per-step?"),
    ],
)
def test_an_option_that_there_is_not_names_the_right_one(arguments, hint, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["advise", "losses.csv", *arguments])
    assert hint in capsys.readouterr().err.splitlines()[-1]


def test_a_text_costs_no_forecast_of_every_step():
    """Most of the time of a log of a million steps; a picture and JSON have it."""
    advice = toposcale.advise(columns(), **GIVEN)
    assert "At its end" in str(advice)
    assert "forecast_curve" not in vars(advice)
    assert len(advice["forecast_curve"]["step"]) > 10


def with_tokens(per_step=500_000):
    return (table := columns()) | {"tokens": per_step * table["step"]}


def test_what_the_log_states_need_not_be_stated(tmp_path, capsys):
    """And says where it comes from."""
    given = {key: value for key, value in GIVEN.items() if key != "tokens_per_step"}
    advice = toposcale.advise(with_tokens(), **given)
    assert advice["forecast"] == toposcale.advise(columns(), **GIVEN)["forecast"]
    assert "500,000 tokens per step, as the log states" in advice["assumed"]
    stated = toposcale.advise(with_tokens(), **GIVEN)
    assert (stated["forecast"], "as the log states" in str(stated)) == (advice["forecast"], False)
    pd.DataFrame(with_tokens()).to_csv(file := tmp_path / "losses.csv", index=False)
    assert main(["advise", str(file), "--n-parameters", "1e8", "--steps", str(FINAL)]) == 0
    assert "500,000 tokens per step, as the log states" in capsys.readouterr().out


@pytest.mark.parametrize("share", [0.5, 2])
def test_tokens_per_step_that_contradict_the_log_are_refused(tmp_path, share, capsys):
    told = (
        r"tokens_per_step \(--tokens-per-step\) is 500,000, but the log has (1,0|2)[05]0,000; leave the wrong one out"
    )
    table = with_tokens(round(500_000 * share))
    with pytest.raises(UserError, match=told):
        toposcale.advise(table, **GIVEN)
    with pytest.raises(UserError, match=told):
        toposcale.compare_runs(table, columns(), tokens_per_step=500_000)
    pd.DataFrame(table).to_csv(file := tmp_path / "losses.csv", index=False)
    assert main(["advise", str(file), "--n-parameters", "1e8", "--tokens-per-step", "5e5", "--steps", str(FINAL)]) == 1
    assert re.search(told, capsys.readouterr().err)


def test_advise_accepts_rounded_tokens_per_step():
    assert toposcale.advise(with_tokens(524_288), **GIVEN).run.tokens_per_step == 500_000
    [known] = toposcale.advise(columns(), **GIVEN, known=[{"curve": with_tokens(250_000), "n_parameters": 1e7}]).others
    assert known.tokens_per_step == 250_000
    others = [{"curve": columns(), "n_parameters": 1e7, "epochs": 8}]
    [known] = toposcale.advise(columns(), **GIVEN, unique_tokens=1e9, known=others).others
    assert (known.tokens_per_step, known.facts.unique_tokens) == (500_000, FINAL * 500_000 / 8)


def test_parameters_that_contradict_the_log_are_refused():
    told = r"n_parameters \(--n-parameters\) is 100,000,000, but the log has 25,000,000; leave the wrong one out"
    with pytest.raises(UserError, match=told):
        toposcale.advise(columns() | {"n_parameters": np.full(len(columns()["step"]), 25e6)}, **GIVEN)


def test_epochs_that_contradict_the_unique_tokens_are_refused(curve, capsys):
    tokens = FINAL * 500_000
    for epochs in (2, 8):
        with pytest.raises(UserError, match=rf"epochs \(--epochs\) is {epochs}, .* makes 4 epochs of unique_tokens"):
            toposcale.advise(columns(), **GIVEN, epochs=epochs, unique_tokens=tokens / 4)
    assert toposcale.advise(columns(), **GIVEN, epochs=4, unique_tokens=tokens / 4.2).choice
    plan = ["--n-parameters", "1e8", "--tokens-per-step", "5e5", "--steps", str(FINAL)]
    assert main(["advise", str(curve), *plan, "--epochs", "8", "--unique-tokens", str(tokens / 4)]) == 1
    assert "makes 4 epochs of unique_tokens (--unique-tokens)" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--n-parameters", "--tokens-per-step", "--peak", "--remaining"])
def test_a_negative_number_is_refused_as_a_number(curve, option, capsys):
    """Not as an option that lacks its argument."""
    plan = ["--tokens-per-step", "5e5", "--n-parameters", "25e6", "--steps", str(FINAL)]
    plan += ["--schedule", "constant"] if option == "--peak" else []
    assert main(["advise", str(curve), *plan, option, "-25e6"]) == 1
    assert re.search(r": -2\.5e\+07, but it must be (at least (0|1|64)|above 0)\b", capsys.readouterr().err)


def test_a_command_that_there_is_not_names_the_right_one(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["curve", "a.csv", "b.csv"])
    assert capsys.readouterr().err.splitlines()[-1].endswith("did you mean curves?")


@pytest.mark.parametrize("optimizer", [3, ["adamw"]])
def test_an_optimizer_is_a_name(optimizer):
    with pytest.raises(UserError, match='optimizer: a name such as "adamw", but it is'):
        toposcale.advise(columns(), **GIVEN, optimizer=optimizer)
    known = [{"curve": columns(), "n_parameters": 1e7, "optimizer": 3}]
    with pytest.raises(UserError, match='optimizer: a name such as "adamw", but it is 3'):
        toposcale.advise(columns(), **GIVEN, known=known)


@pytest.mark.parametrize("column", [1, ["loss"], b"loss"])
@pytest.mark.parametrize("argument", ["loss_column", "step_column"])
def test_a_column_is_a_name(argument, column):
    with pytest.raises(UserError, match=rf'^{argument}: the name of a column such as "train/loss", but it is '):
        toposcale.advise(columns(), **GIVEN, **{argument: column})


def test_more_epochs_than_a_run_can_make_are_refused():
    with pytest.raises(UserError, match=r"^epochs: 1e\+308, but it must be at least 0\.01 and at most 1e\+06$"):
        toposcale.advise(columns(), **GIVEN, epochs=1e308)


@pytest.mark.parametrize(
    ("stated", "error", "hint"),
    [
        ({"parameters": 1e8}, TypeError, "did you mean n_parameters?"),
        ({"schedule": SCHEDULE | {"peak": 3e-4, "final": 0.1}}, UserError, "such as 3e-05"),
        ({"schedule": SCHEDULE | {"final": 3e-5}}, UserError, "give the peak too"),
        ({"tokens_per_step": 8}, UserError, "sequences x tokens per sequence"),
    ],
)
def test_number_that_means_something_else_is_refused(stated, error, hint):
    with pytest.raises(error, match=re.escape(hint)):
        toposcale.advise(columns(), **GIVEN | stated)


def test_a_file_without_names_of_columns_is_told_as_that(tmp_path):
    file = tmp_path / "losses.csv"
    file.write_text("0,4.2\n100,3.9\n200,3.8\n")
    with pytest.raises(
        UserError, match="its first line holds numbers; begin it with the names of the columns: step,loss"
    ):
        toposcale.advise(file, **GIVEN)


def state_of(folder, step, losses, **files):
    """Write the state of a Trainer, and other files as JSON next to it."""
    folder.mkdir(parents=True)
    history = [{"step": 10 * (at + 1), "loss": float(loss)} for at, loss in enumerate(losses)]
    state = {"log_history": history, "global_step": step, "max_steps": 900}
    for name, content in {"trainer_state": state, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def test_a_folder_of_two_trainings_is_refused(tmp_path):
    state_of(tmp_path / "checkpoint-30", 30, [5, 4, 3])
    state_of(tmp_path / "checkpoint-40", 40, [6, 5, 4, 3])
    with pytest.raises(
        UserError, match=r"checkpoint-30/trainer_state\.json and checkpoint-40/trainer_state\.json are of two trainings"
    ):
        toposcale.advise(tmp_path, n_parameters=1e8, tokens_per_step=1e5)


def test_an_adapter_does_not_tell_the_parameters_of_its_model(tmp_path):
    weights = {"h.0.lora_A.weight": np.zeros((8, 768), np.float32)}
    state_of(tmp_path / "run", 30, [5, 4, 3], adapter_config={"base_model_name_or_path": "gpt2"})
    save_file(weights, tmp_path / "run/adapter_model.safetensors")
    with pytest.raises(UserError, match=r"n_parameters of gpt2, of which the weights there are an adapter"):
        toposcale.advise(tmp_path / "run", tokens_per_step=1e5)
    (tmp_path / "base").mkdir()
    save_file({"w": np.zeros((3000, 10), np.float32)}, tmp_path / "base/model.safetensors")
    state_of(tmp_path / "other", 30, [5, 4, 3], adapter_config={"base_model_name_or_path": str(tmp_path / "base")})
    run = toposcale.advise(tmp_path / "other", tokens_per_step=1e5).run
    assert run.n_parameters == 30_000
    assert run.facts.provenance("n_parameters") is Provenance.WEIGHTS


def test_weights_are_counted_from_outside_of_the_curve_half(tmp_path):
    """By the function that a caller gives, also for the known runs; without one they are left unread."""
    for name in ("run", "other"):
        state_of(tmp_path / name, 800, 3.0 + 10 * np.arange(10, 801, 10) ** -0.3)
        save_file({"w": np.zeros((3000, 10), np.float32)}, tmp_path / name / "model.safetensors")
    given = {"tokens_per_step": 1e5, "warmup_steps": 0}
    with pytest.raises(UserError, match="not known and not in the curve: n_parameters"):
        advise_on_curve(tmp_path / "run", **given)

    def ask(checkpoint):
        asked.append(checkpoint.name)
        return 50_000_000, 40_000_000

    asked = []
    known = [{"curve": tmp_path / "other", "n_parameters": 49e6}]
    assert advise_on_curve(tmp_path / "run", **given, count_parameters=ask, known=known).run.n_parameters == 50e6
    assert set(asked) == {"run", "other"}
    assert toposcale.advise(tmp_path / "run", **given).run.n_parameters == 30_000
    checked = "\n".join(toposcale.check_curve(tmp_path / "run", "run"))
    assert "parameters 30,000 (from the checkpoint)" in checked


@pytest.mark.parametrize("is_adapter", [True, False])
def test_advise_on_an_adapter_is_not_confident(tmp_path, is_adapter):
    beside = {"adapter_config": {"base_model_name_or_path": "gpt2"}} if is_adapter else {}
    state_of(tmp_path / "run", 800, 3.0 + 10 * np.arange(10, 801, 10) ** -0.3, **beside)
    advice = toposcale.advise(tmp_path / "run", n_parameters=1e8, tokens_per_step=1e5, warmup_steps=0)
    assert any("an adapter" in reason for reason in advice.reasons) is is_adapter


def test_each_fact_has_its_provenance():
    [known] = toposcale.advise(
        with_tokens(524_288), **GIVEN, optimizer="adamw", known=[{"curve": columns(), "n_parameters": 1e7}]
    ).others
    assert {
        name: known.facts.provenance(name) for name in ("n_parameters", "tokens_per_step", "optimizer", "epochs")
    } == {
        "n_parameters": Provenance.STATED,
        "tokens_per_step": Provenance.ASSUMED,
        "optimizer": Provenance.ASSUMED,
        "epochs": None,
    }
    unstated = {name: value for name, value in GIVEN.items() if name != "tokens_per_step"}
    advice = toposcale.advise(with_tokens(524_288), **unstated)
    assert advice.run.facts.provenance("tokens_per_step") is Provenance.LOGGED
    assert "524,288 tokens per step, as the log states" in advice["assumed"]


def test_known_run_ends_at_its_last_row():
    other = columns() | {"learning_rate": np.linspace(1e-3, 9e-4, len(columns()["step"]))}
    [known] = toposcale.advise(columns(), **GIVEN, known=[{"curve": other, "n_parameters": 1e7}]).others
    assert known.final_step == other["step"][-1] < FINAL
    assert known.facts.provenance("final_step") is Provenance.ASSUMED


def test_known_run_under_another_schedule_ends_by_its_log(tmp_path):
    rows = pd.DataFrame(columns() | {"learning_rate": np.linspace(1e-3, 9e-4, len(columns()["step"]))})
    state = {"log_history": rows.to_dict("records"), "max_steps": 3000, "global_step": int(rows["step"].max())}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    other = {"curve": tmp_path / "trainer_state.json", "n_parameters": 1e7}
    [known] = toposcale.advise(columns(), **GIVEN, known=[other]).others
    assert known.final_step == 3000
    assert known.facts.provenance("final_step") is Provenance.LOGGED


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"known": 3}, "known run 1: a mapping such as .*, but it is 3"),
        ({"known": None}, "known run 1: a mapping such as .*, but it is None"),
        ({"known": "b.csv"}, "known run 1: a mapping such as .*, but it is 'b.csv'"),
        ({"sizes": None}, "sizes \\(--sizes\\): 'None' is not a number, for example 25e6"),
        ({"sizes": [4e8, None]}, "sizes \\(--sizes\\): 'None' is not a number, for example 25e6"),
        ({"sizes": {"large": 4e8}}, "sizes \\(--sizes\\): .*large.* is not a number"),
    ],
)
def test_advise_refuses_runs_and_sizes_of_a_wrong_type(wrong, told):
    with pytest.raises(UserError, match=told):
        toposcale.advise(columns(), **GIVEN, **wrong)


def test_the_epoch_of_a_trainer_tells_how_often_its_text_is_read(tmp_path):
    """Epoch 2 at step 30 of 900: 60 epochs of 15 steps each."""
    state_of(tmp_path / "run", 30, [5, 4, 3])
    state = json.loads((tmp_path / "run/trainer_state.json").read_text()) | {"epoch": 2.0}
    (tmp_path / "run/trainer_state.json").write_text(json.dumps(state))
    read = [
        toposcale.advise(tmp_path / "run", n_parameters=1e8, tokens_per_step=1e5, **stated).run.facts.unique_tokens
        for stated in ({}, {"epochs": 3}, {"unique_tokens": "7M"})
    ]
    assert read == pytest.approx([15e5, 300e5, 7e6])


def test_the_options_are_the_arguments_of_the_call_from_python():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    of_the_picture_and_the_schedule = {"plot", "json", "csv", "latex", "decay_start", "peak", "final"}
    stated = set(vars(parser.parse_args([]))) - of_the_picture_and_the_schedule
    assert stated == {*signature(toposcale.advise).parameters} - {"count_parameters", "name", "facts"} | FACTS.keys()


def test_the_short_options_mean_the_same(curve, capsys):
    long = told(capsys, curve, *RUN, "--sizes", "4e8", "--target-loss", "2.9", "--json")
    short = {"--n-parameters": "--parameters", "--warmup-steps": "--warmup"}
    run = [short.get(word, word) for word in RUN]
    assert told(capsys, curve, *run, "--size", "4e8", "--target", "2.9", "--json") == long


def test_a_command_loads_what_it_calls_alone(curve):
    code = (
        "import sys; from toposcale.__main__ import main; main(sys.argv[1:]);"
        "print({'gudhi', 'torch', 'toposcale.features', 'toposcale.pages'} & sys.modules.keys(), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, "check", curve], capture_output=True, text=True, check=True)
    assert done.stderr == "set()\n"


def test_a_stated_objective_other_than_the_next_token_is_refused():
    advice = toposcale.advise(columns(), **GIVEN, objective="masked")
    assert advice.decision is None
    assert advice.no_advice_because == (
        "its objective (--objective) is masked; the law was learnt from next-token prediction"
    )
    assert toposcale.advise(**GIVEN, objective="span corruption").decision is None


@pytest.mark.parametrize("objective", ["next-token", "Next token prediction", "causal LM", "CLM"])
def test_names_of_next_token_prediction_change_nothing(objective):
    assert f"{toposcale.advise(columns(), **GIVEN, objective=objective)}" == f"{toposcale.advise(columns(), **GIVEN)}"


def classification(first=6.9, last=3.0, accuracy="val_acc"):
    losses = np.geomspace(first, last, len(columns()["step"]))
    return columns() | {"loss": losses, accuracy: np.linspace(0.0, 0.7, len(losses))}


@pytest.mark.parametrize("columns", [classification(), classification(10.0, 1.0), classification(accuracy="top-1")])
def test_advise_asks_about_the_losses_of_a_classification(columns):
    asked = "if it predicts the next token, say so with objective (--objective) next-token"
    assert asked in toposcale.advise(columns, **GIVEN).no_advice_because
    assert asked not in str(toposcale.advise(columns, **GIVEN, objective="next-token"))


@pytest.mark.parametrize("columns", [classification(10.0), classification(accuracy="grad_acc_steps")])
def test_advise_takes_other_losses_for_those_of_text(columns):
    assert "next-token" not in str(toposcale.advise(columns, **GIVEN))


@pytest.mark.parametrize(("ratio", "is_odd"), [(None, False), (64, False), (256, True), (4, True)])
def test_advise_is_not_confident_about_odd_aspect_ratios(ratio, is_odd):
    reasons = toposcale.advise(columns(), **GIVEN, aspect_ratio=ratio).reasons
    assert any("times as wide as it has layers" in reason for reason in reasons) == is_odd


def test_an_objective_is_a_name():
    with pytest.raises(UserError, match='objective: a name such as "next-token", but it is 3'):
        toposcale.advise(columns(), **GIVEN, objective=3)
