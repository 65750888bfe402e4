"""From a loss curve to the advice in one call: `toposcale.advise`, and the same in a terminal."""

import json
import time

import numpy as np
import pandas as pd
import pytest

import toposcale
from planted_laws import FINAL, law, run, wsd
from toposcale.__main__ import main
from toposcale.forecasting import advice as of_histories
from toposcale.forecasting.curve_advice import amount, chart
from toposcale.io.errors import UserError

SCHEDULE = {"shape": "wsd", "warmup_steps": 200, "decay_start": 3200, "final": 0.1}
PLAN = (
    "--schedule",
    "wsd",
    "--warmup",
    "200",
    "--decay-start",
    "3200",
    "--final",
    "0.1",
    "--steps",
    str(FINAL),
)
RUN = ("--parameters", "1e6", "--tokens-per-step", "1000", *PLAN)


def columns(size=1_000_000, until=0.5, every=50):
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


def test_the_end_under_the_plan_is_forecast_from_columns_a_frame_and_a_file_alike(curve):
    given = {"n_parameters": 1e6, "tokens_per_step": 1000, "schedule": SCHEDULE, "steps": FINAL}
    found = [
        toposcale.advise(source, **given)
        for source in (columns(), pd.DataFrame(columns()), curve, str(curve))
    ]
    truth = law(1_000_000, wsd(), [FINAL])[0]
    for advice in found:
        assert advice["forecast_low"] < truth < advice["forecast_high"]
        assert advice["forecast"] == pytest.approx(truth, abs=0.03)
        assert {row["candidate"] for row in advice["candidates"]} == {
            "finish",
            "start 2 x this run",
            "start 4 x this run",
        }
    assert [dict(one) for one in found[1:]] == [dict(found[0])] * 3


def test_it_is_the_advice_of_the_history(curve):
    """One way from a history to advice: that of the workflow, too."""
    live = run("this run", 1_000_000, until=0.5)
    log = {"step": live.checkpoint_steps, "loss": live.checkpoint_losses}
    advice = toposcale.advise(log, n_parameters=1e6, tokens_per_step=1000, schedule=SCHEDULE, steps=FINAL)
    whole = of_histories.advise(advice.history, [], of_histories.Question())
    assert dict(advice) == whole


def test_sizes_that_could_be_started_and_known_runs_take_part(curve):
    given = {"n_parameters": 1e6, "tokens_per_step": 1000, "schedule": SCHEDULE, "steps": FINAL}
    alone = toposcale.advise(curve, **given, sizes=[4e6])
    assert {row["candidate"] for row in alone["candidates"]} == {"finish", "start 4M"}
    other = {
        "curve": columns(4_000_000, until=1.0),
        "n_parameters": 4e6,
        "schedule": SCHEDULE,
        "steps": FINAL,
    }
    beside = toposcale.advise(curve, **given, sizes=[4e6], known=[other])
    start = [
        next(row for row in advice["candidates"] if row["candidate"] == "start 4M")
        for advice in (alone, beside)
    ]
    assert start[1]["loss_high"] - start[1]["loss_low"] < start[0]["loss_high"] - start[0]["loss_low"]


def test_in_a_terminal_there_are_a_chart_a_table_and_the_sentence_in_less_than_three_seconds(curve, capsys):
    start = time.process_time()
    status, output, _ = told(capsys, curve, *RUN, "--size", "4e6")
    assert time.process_time() - start < 3
    assert status == 0
    for shown in ("start 4M", "finish", "step 250", f"{FINAL:,}", "nats"):
        assert shown in output
    status, text, _ = told(capsys, curve, *RUN, "--size", "4e6", "--json")
    given = {"n_parameters": 1e6, "tokens_per_step": 1000, "schedule": SCHEDULE, "steps": FINAL}
    assert json.loads(text) == toposcale.advise(curve, **given, sizes=[4e6])


def test_a_known_run_in_a_terminal(curve, tmp_path, capsys):
    other = tmp_path / "other.csv"
    pd.DataFrame(columns(4_000_000, until=1.0)).to_csv(other, index=False)
    status, text, _ = told(capsys, curve, *RUN, "--size", "4e6", "--known", f"{other}:4e6", "--json")
    assert (status, json.loads(text)["models_read"]) == (0, 2)
    for wrong in (str(other), f"{other}:big", f"{other}:4e6:colour=3"):
        status, _, [line] = told(capsys, curve, *RUN, "--known", wrong)
        assert status == 1
        assert f"--known {wrong}" in line
        assert "CURVE:PARAMETERS" in line


@pytest.mark.parametrize(
    ("missing", "asked"),
    [("--parameters", "n_parameters"), ("--tokens-per-step", "tokens_per_step"), ("--steps", "steps")],
)
def test_what_is_not_given_and_not_in_the_curve_is_asked_for_in_one_line(curve, capsys, missing, asked):
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
    status, text, _ = told(capsys, tmp_path, "--parameters", "1e6", "--tokens-per-step", "1000", "--json")
    assert (status, json.loads(text)["final_step"]) == (0, FINAL)
    status, _, [line] = told(capsys, tmp_path / "trainer_state.json", "--tokens-per-step", "1000")
    assert status == 1
    assert "n_parameters" in line


def test_a_curve_longer_than_the_plan_is_refused(curve, capsys):
    status, _, [line] = told(
        capsys, curve, "--parameters", "1e6", "--tokens-per-step", "1000", "--steps", "1000"
    )
    assert status == 1
    assert "step 2,000" in line
    assert "step 1,000" in line


def test_a_curve_that_rises_gets_no_chart_and_no_advice(capsys, tmp_path):
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


def test_the_chart_shows_every_point_and_the_forecast_up_to_the_end(curve):
    advice = toposcale.advise(curve, n_parameters=1e6, tokens_per_step=1000, schedule=SCHEDULE, steps=FINAL)
    rows = [line.partition("|")[2] for line in chart(advice, width=40, height=8).splitlines()[:8]]
    assert len(rows) == 8
    seen = [max(row.rfind("o") for row in rows), max(len(row) for row in rows)]
    assert 0 < seen[0] < seen[1] == 40
    # The loss falls: the first point stands higher than the last.
    first, last = (next(at for at, row in enumerate(rows) if "o" in row), rows[::-1])
    assert first == 0
    assert any("-" in row for row in last[:4])


@pytest.mark.parametrize(
    ("number", "text"), [(100e6, "100M"), (1.4e9, "1.4B"), (2936, "2.94K"), (12, "12"), (2e12, "2T")]
)
def test_sizes_are_named_as_people_write_them(number, text):
    assert amount(number) == text


def test_what_means_nothing_for_a_known_run_is_named():
    given = {"n_parameters": 1e6, "tokens_per_step": 1000, "schedule": SCHEDULE, "steps": FINAL}
    with pytest.raises(UserError, match="known: colour means nothing; a run has curve"):
        toposcale.advise(columns(), **given, known=[{"curve": columns(), "colour": 3}])


GIVEN = {"n_parameters": 1e6, "tokens_per_step": 1000, "schedule": SCHEDULE, "steps": FINAL}


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
        (lambda: changed(lambda losses: np.full_like(losses, 3.5)), "the loss does not fall: it was 3.5"),
        (
            lambda: changed(lambda losses: 10.8 + 0.02 * np.random.default_rng(0).normal(size=len(losses))),
            "the loss does not fall",
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
    assert toposcale.advise(whole, n_parameters=1e6, tokens_per_step=1000, steps=FINAL, warmup_steps=200)[
        "candidates"
    ]


def test_an_answer_from_points_too_few_to_check_the_law_is_never_sure():
    few = {name: values[:7] for name, values in columns().items()}
    advice = toposcale.advise(few, **GIVEN, sizes=[1.5e6, 100e6])
    assert advice["candidates"]
    assert not advice["sure"]
    assert any("too few points" in said for said in advice["assumed"])


def test_a_known_run_that_rises_is_named():
    rising = with_end(*np.linspace(3.5, 7.5, 15))()
    with pytest.raises(UserError, match=r"known run 1: the loss is rising: .*; leave it out"):
        toposcale.advise(columns(), **GIVEN, known=[{"curve": rising, "n_parameters": 4e6}])


def test_the_reason_of_a_finished_run_is_the_same_in_words_and_as_a_value():
    advice = toposcale.advise(columns(until=1.0), **GIVEN)
    assert advice["no_advice_because"] == str(advice)
    assert "finished at step" in str(advice)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--parameters", "-5"), "n_parameters: -5, but it must be at least 1"),
        (("--parameters", "inf"), "n_parameters: inf"),
        (("--tokens-per-step", "1e30"), "tokens_per_step: 1e+30"),
        (("--steps", "nan"), "steps: nan"),
        (("--steps", "1e18"), "steps: 1e+18"),
        (("--steps", "4000.7"), "steps: 4000.7, but it must be a whole number"),
        (("--warmup", "nan"), "warmup_steps: nan"),
        (("--size", "0"), "sizes: 0, but it must be above 0"),
        (("--remaining", "-1"), "remaining: -1"),
        (("--target", "nan"), "target_loss: nan"),
        (("--schedule", "cosin"), "cosin: neither a shape (constant, linear, cosine, wsd) nor a file"),
    ],
)
def test_a_number_that_fits_no_training_is_one_line(curve, capsys, arguments, line):
    status, _, [last] = told(capsys, curve, *RUN, *arguments)
    assert status == 1
    assert line in last


def test_numbers_may_be_written_as_people_do(curve, capsys):
    plain, short = (told(capsys, curve, *RUN, "--size", size, "--json")[1] for size in ("4e6", "4M"))
    assert plain == short
    with pytest.raises(SystemExit):
        main(["advise", str(curve), "--parameters", "many"])
    assert "'many' is no number; write for example 25e6 or 25M" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("curve", "given", "line"),
    [
        ([1, 2], {}, "curve: a file, a folder, or columns by name such as a data frame, but it is a list"),
        ({"step": [1, 2], "loss": [1.0]}, {}, "not of one length: step 2, loss 1"),
        ({"step": [1, 2], "loss": ["a", "b"]}, {}, "column loss contains values that are not numbers"),
        (None, {"n_parameters": "many"}, "n_parameters: 'many' is no number"),
        (None, {"known": {"n_parameters": 4e6}}, "known run 1: a run has a curve and n_parameters"),
        (None, {"schedule": {"shape": "cosine", "warmup": 2}}, "schedule: warmup means nothing there"),
        (None, {"schedule": {"warmup_steps": 2}}, "schedule: shape is missing"),
    ],
)
def test_what_a_caller_gets_wrong_is_one_line(curve, given, line):
    with pytest.raises(UserError) as error:
        toposcale.advise(columns() if curve is None else curve, **GIVEN | given)
    assert line in str(error.value)


def test_a_column_that_nobody_needs_may_hold_anything():
    frame = pd.DataFrame(columns()).assign(run="a")
    one, other = (toposcale.advise(source, **GIVEN, sizes=4e6) for source in (frame, columns()))
    assert one == other


def test_a_plan_that_the_log_contradicts_is_named(curve):
    longer = GIVEN | {"schedule": {"shape": "cosine", "warmup_steps": 200, "final": 0.1}}
    with pytest.raises(UserError, match=r"schedule: it gives a learning rate of .* but the log has"):
        toposcale.advise(curve, **longer)


def test_compute_that_is_added_to_a_finished_run_leaves_something_to_decide():
    advice = toposcale.advise(columns(until=1.0), **GIVEN, remaining=6e6 * 1000 * FINAL, sizes=[4e6])
    assert advice["candidates"]
    assert not advice["no_advice_because"]
    assert "start 4M" in str(advice)
