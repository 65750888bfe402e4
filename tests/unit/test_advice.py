"""The advice on a run under way: one forecast, one choice, in plain words; and none where no forecast is plausible."""

import json
from dataclasses import replace

import numpy as np
import pytest

from made_runs import changed
from planted_laws import FINAL, SIZES, run, wsd
from toposcale.forecasting.decision.advice import advise_on
from toposcale.forecasting.decision.candidates import Request
from toposcale.forecasting.decision.wording import run_of_another_size
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.runs.training_run import Target

TWICE = Request(multiples=(2,))


def test_advise_on_counts_the_decay_to_come():
    """The loss seems to stand still at 70% of a wsd plan; its end is known from the plan, and it is finished."""
    live = run("100M", 100_000_000, until=0.7)
    advice = advise_on(live, SIZES[1:], TWICE)
    assert (advice["choice"], advice["confident"]) == ("continue", True)
    assert advice["forecast_low"] < SIZES[0].progress.loss < advice["forecast_high"]
    assert advice["forecast"] < advice["loss"] - 0.04
    assert advice["loss_noise"] == pytest.approx(0.002, rel=0.4)
    assert advice.sentence.startswith("Continue; ")
    assert advice.sentence.endswith(", confident.")


def test_advise_on_narrows_by_a_decayed_run():
    live = run("100M", 100_000_000, until=0.7)
    alone, beside = (advise_on(live, others, TWICE) for others in ([], SIZES[1:]))
    for advice in (alone, beside):
        assert advice["forecast_low"] < SIZES[0].progress.loss < advice["forecast_high"] < advice["loss"]
    assert beside["forecast_high"] - beside["forecast_low"] < alone["forecast_high"] - alone["forecast_low"]


def test_early_on_a_far_larger_budget_belongs_to_a_larger_size():
    live = run("100M", 100_000_000, until=0.2)
    advice = advise_on(live, SIZES[1:], Request(40 * live.flop_left, (2,)))
    assert advice["choice"].startswith("scale up to ")
    assert advice["gain"] > 0
    assert {"continue", "extend"} <= {row["candidate"] for row in advice["candidates"]}
    assert "nats better than continuing (" in advice.sentence


@pytest.mark.parametrize("others", [(), ("400M",), ("400M", *"abcdef")])
def test_advice_end_is_the_forecast_of_continuing(others):
    live = run("100M", 100_000_000, until=0.6)
    finished = [run(name, 400_000_000, seed=i) for i, name in enumerate(others)]
    advice = advise_on(live, finished, TWICE)
    finish = next(row for row in advice["candidates"] if row["candidate"] == "continue")
    for end in ("", "_low", "_high"):
        assert finish[f"loss{end}"] == pytest.approx(advice[f"forecast{end}"], rel=1e-12)
    assert advice["forecast_curve"]["loss"][-1] == pytest.approx(advice["forecast"], rel=1e-12)
    assert advice["models_read"] == 1 + min(len(others), 2)
    pressed = advise_on(live, finished, Request(0.5 * live.flop_left, (2,)))
    shorter = next(row for row in pressed["candidates"] if row["candidate"] == "continue")
    assert pressed["forecast"] == advice["forecast"] < shorter["loss"]


def test_advice_is_json_and_reads_nothing_to_come():
    live, other = (run("100M", 100_000_000, until=0.5) for _ in range(2))
    advice = advise_on(live, SIZES[1:], TWICE)
    assert advice == advise_on(other, SIZES[1:], TWICE)
    assert json.loads(json.dumps(dict(advice), allow_nan=False)) == advice


def test_without_a_plan_the_advice_is_not_sure_and_asks_for_it():
    why = "the rates after 2,000 are not known"
    live = changed(run("100M", 100_000_000, until=0.7), learning_rates=wsd()[:2801], unknown_because=why)
    advice = advise_on(live, [], TWICE)
    assert advice["probability"] > 0.9
    assert not advice["confident"]
    assert advice.sentence.startswith("Continue; ")
    assert "not confident" in advice.sentence
    assert "give that of 100M" in advice["find_out_first"]
    assert why in str(advice)
    assert "a decay to come is in no forecast" in str(advice)


def test_without_tokens_there_is_a_forecast_and_no_decision():
    live = changed(run("100M", 100_000_000, until=0.5), tokens_per_step=np.nan)
    advice = advise_on(live, [], TWICE)
    assert advice["forecast"] is not None
    assert advice["spent_flop"] is None
    assert str(advice).splitlines()[-1].strip().startswith("=> No advice: give tokens_per_step of 100M")


def test_one_candidate_is_nothing_to_choose_between():
    advice = advise_on(run("100M", 100_000_000, until=0.5), [], Request(multiples=()))
    assert [row["candidate"] for row in advice["candidates"]] == ["continue"]
    assert (advice["choice"], advice["probability"], advice["expected_regret"]) == ("continue", None, None)
    assert "Continue: there is nothing to choose between." in advice.sentence
    assert "`kind: planned`" in advice.sentence


def test_one_size_says_little_of_another_and_two_say_more():
    live = run("100M", 100_000_000, until=0.3)
    one, two = (Joint().fit(live, others).predict([Target(8e8, wsd(), FINAL, 5e5)])[0] for others in ([], SIZES[1:]))
    assert two.high - two.low < 0.5 * (one.high - one.low)


def test_the_best_size_is_told_where_two_sizes_are_known():
    live = run("100M", 100_000_000, until=0.3)
    assert advise_on(live, [], TWICE)["best_size"] is None
    found = advise_on(live, SIZES[1:], TWICE)
    assert found["best_size_low"] <= found["best_size"] <= found["best_size_high"]


def test_advise_on_ignores_runs_of_unknown_rates():
    live = run("100M", 100_000_000, until=0.5)
    blind = changed(run("400M", 400_000_000), learning_rates=np.empty(0))
    alone, beside = (advise_on(live, others, TWICE) for others in ([], [blind]))
    assert beside["forecast"] == pytest.approx(alone["forecast"], rel=1e-9)
    assert "not read, since the learning rates are not known: 400M" in str(beside)
    assert beside["models_read"] == 1


def test_a_rate_that_is_already_zero_has_a_plan_that_can_be_told():
    rates = np.append(np.linspace(1e-3, 0, 2001), np.zeros(2000))
    assert "constant to the end" in str(advise_on(run("100M", 100_000_000, rates, until=0.7)))


def test_a_target_is_told_as_what_is_known_of_it():
    live = run("100M", 100_000_000, until=0.5)
    reached = live.checkpoint_losses[-1] + 0.05
    assert "was reached at step" in str(advise_on(live, [], Request(target_loss=reached)))
    assert "is not reached by the planned end" in str(advise_on(live, [], Request(target_loss=0.1)))
    near = advise_on(live, SIZES[1:], Request(target_loss=2.9))
    assert near["target_step_earliest"] <= near["target_step"] <= near["target_step_latest"] <= FINAL


def test_compute_that_buys_nothing_ends_the_run():
    live = run("100M", 100_000_000, until=0.5)
    assert str(advise_on(live, [], Request(0.0))).endswith("The run ends here.")
    text = str(advise_on(live, [], Request(0.5 * live.flop_left, ())))
    assert "what is left does not pay for the whole schedule" in text


# ---- no advice


def spoiled(history, change, last=15):
    losses = history.checkpoint_losses.copy()
    losses[-last:] = change(losses[-last:])
    return replace(history, checkpoint_losses=losses)


def test_a_loss_that_rises_has_no_forecast():
    live = spoiled(run("100M", 100_000_000, until=0.7), lambda losses: np.linspace(losses[0], 7.5, len(losses)))
    advice = advise_on(live, SIZES[1:], TWICE)
    assert advice["forecast"] is None
    assert "the loss is rising: it is 7" in advice.sentence


def test_advise_on_a_log_that_ends_in_nan_says_so_first():
    whole = run("100M", 100_000_000, until=0.5)
    steps = np.arange(10, whole.progress.step + 1, 10)
    losses = np.interp(steps, whole.checkpoint_steps, whole.checkpoint_losses)
    losses[-12:] = np.inf
    live = replace(whole, steps=steps, losses=losses, gradient_norms=np.full(len(steps), np.nan))
    words = advise_on(live, SIZES[1:], TWICE).sentence
    assert "the last 12 logged losses are not numbers, since step" in words
    assert f"{steps[-12]:,}" in words


def test_a_forecast_above_the_present_loss_under_a_falling_rate_is_refused():
    live = spoiled(run("100M", 100_000_000, until=0.9), lambda losses: losses - 1.0, last=3)
    assert advise_on(live, [], TWICE)["forecast"] is None


def test_a_curve_that_falls_pauses_and_falls_again_is_never_sure():
    """Two drops with a pause between them, as small models on characters show."""
    steps = np.unique(np.geomspace(20, 1600, 60).astype(int))
    losses = 1.9 + 1.5 / (1 + np.exp((np.log(steps) - 4.0) * 3)) + 0.6 / (1 + np.exp((np.log(steps) - 6.6) * 8))
    live = replace(run("100M", 100_000_000, until=0.4), checkpoint_steps=steps, checkpoint_losses=losses)
    advice = advise_on(live, SIZES[1:], TWICE)
    assert not advice.is_confident
    assert "nats, larger than in published runs" in advice.sentence
    # Of a run that follows the law nothing is said against it.
    assert not any("model discrepancy" in reason for reason in advise_on(run("100M", 100_000_000, until=0.4)).reasons)


def test_a_run_in_its_warm_up_has_the_units_of_its_whole_plan():
    """The rates seen so far reach a tenth of the peak: the law fitted to them must not take that for the peak."""
    rates = wsd(warmup=2500)
    early = run("100M", 100_000_000, rates, until=0.3)
    advice = advise_on(early, [], TWICE)
    assert advice["forecast_curve"] == {} or advice["forecast_curve"]["loss"][0] == pytest.approx(
        advice["loss"], rel=0.02
    )


@pytest.mark.parametrize(
    ("n_parameters", "text"),
    [
        (400_000_000, "train a quarter of the size on a quarter of the tokens"),
        (25_000_000, "train half of the size on half of the tokens"),
        (12_000_000, "train twice the size on half of the tokens"),
    ],
)
def test_find_out_first_names_a_size_the_law_was_judged_on(n_parameters, text):
    now = run("now", n_parameters, until=0.5)
    assert text in run_of_another_size(now)
