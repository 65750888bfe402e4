"""What a curve says against its forecast: no answer is confident, or there is none, where nothing can be known."""

import numpy as np
import pandas as pd
import pytest

import toposcale
from made_runs import changed
from planted_laws import run, wsd
from toposcale.forecasting.decision.advice import advise_on
from toposcale.forecasting.decision.candidates import Request
from toposcale.forecasting.decision.reasons import CONFIDENT, looks_smoothed, smoothing_assumption
from toposcale.forecasting.laws.published_law import refuse_young
from toposcale.forecasting.runs.checks import metric_rises
from toposcale.forecasting.runs.curves import is_dip, is_excursion, is_moving_average, rise
from toposcale.forecasting.runs.facts import RunFacts
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.run_input import RunInput
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import NoForecast

FINAL = 9600
OPTIONS = {"n_parameters": 60e6, "tokens_per_step": 1e5, "steps": FINAL}
OPTIONS |= {"schedule": {"shape": "cosine", "warmup_steps": 200, "final": 0.1}}


def falling(steps, noise, seed=0):
    return 2.6 + 9 * steps**-0.5 + noise * np.random.default_rng(seed).normal(size=len(steps))


def advise(losses, steps, **changed):
    return toposcale.advise({"step": steps, "loss": losses}, **OPTIONS | changed)


STEPS = np.arange(250, FINAL // 2, 25)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_noise_around_a_level_is_no_fall(noise, seed):
    advice = advise(3.7 + noise * np.random.default_rng(seed).normal(size=len(STEPS)), STEPS)
    assert not advice.choice
    assert "does not decrease" in advice.sentence


def test_a_loss_that_has_hardly_begun_to_fall_gets_no_advice():
    advice = advise(np.linspace(10.8, 10.65, len(STEPS)), STEPS)
    assert "does not decrease as in published runs" in advice.sentence


def test_a_curve_that_falls_has_advice():
    """The positive control: the same noise on a fall is not a reason to say nothing."""
    for seed in range(5):
        assert advise(falling(STEPS, 0.05, seed), STEPS).choice


@pytest.mark.parametrize("size", [8_320, 1e5, 1e6, 1e11])
def test_advice_outside_published_sizes_is_not_confident(size):
    """Far outside there is no choice at all, but a forecast of the end."""
    advice = advise(falling(STEPS, 0.01), STEPS, n_parameters=size)
    assert not advice.choice
    assert advice.sentence.startswith(f"No advice: {size:,.0f} parameters are far outside the sizes of published runs")
    assert advice["forecast_low"] < advice["forecast"] < advice["forecast_high"]


@pytest.mark.parametrize("size", [4e6, 2e10])
def test_low_confidence_near_the_sizes_of_published_trainings(size):
    advice = advise(falling(STEPS, 0.01), STEPS, n_parameters=size)
    assert advice.choice
    assert not advice.is_confident
    assert any("outside the sizes of published runs" in reason for reason in advice.reasons)
    if advice["probability"] >= CONFIDENT:
        assert f"{size:,.0f} parameters" in advice.sentence


@pytest.mark.parametrize(("size", "is_said"), [(1e5, False), (1e6, True), (4e6, True), (4e7, False)])
def test_a_size_at_which_no_coverage_was_measured_is_said(size, is_said):
    advice = advise(falling(STEPS, 0.01), STEPS, n_parameters=size)
    told = " ".join([advice.sentence, *advice.reasons])
    assert ("the coverage of the intervals was never measured near" in told) == is_said


def test_advice_outside_published_sizes_with_three_sizes():
    live, larger, smaller = run("1M", 1_000_000, until=0.7), run("4M", 4_000_000), run("500K", 500_000)
    assert not advise_on(live, [larger]).choice
    advice = advise_on(live, [larger, smaller])
    assert advice.choice
    assert not any("outside the sizes" in reason for reason in advice.reasons)


def test_advice_is_confident_from_a_probability_on():
    live = (run("100M", 100_000_000, until=share) for share in (0.2, 0.4))
    early, late = (advise_on(one, [], Request(multiples=(1.25,))) for one in live)
    assert early.decision.best.probability < CONFIDENT < late.decision.best.probability
    assert late.is_confident
    assert f"its probability of being the best is {early.decision.best.probability:.1%}, below 90%" in early.reasons


@pytest.mark.parametrize("scale", [12.0, 1000.0])
def test_refuse_curve_asks_whether_a_loss_is_a_perplexity(scale):
    assert "perplexity?" in advise(scale * falling(STEPS, 0.01), STEPS).sentence


def test_a_perplexity_is_never_sure():
    assert not advise(np.exp(falling(STEPS, 0.01)), STEPS).is_confident


def test_a_loss_near_zero_is_never_sure():
    advice = advise(falling(STEPS, 0.001) / 1000, STEPS)
    assert not advice.is_confident


def test_inside_the_warm_up_the_answer_is_when_to_ask():
    schedule = {"shape": "cosine", "warmup_steps": 3000, "final": 0.1}
    steps = np.arange(10, 2500, 10)
    advice = advise(falling(steps, 0.01), steps, schedule=schedule)
    assert advice.sentence == (
        "No advice: the learning rate still rises, until step 2,999: ask again from step 3,749 on."
    )


def test_the_training_itself_given_as_known_changes_nothing():
    losses = falling(STEPS, 0.01)
    alone = advise(losses, STEPS)
    itself = {"curve": {"step": STEPS, "loss": losses}, "n_parameters": 60e6}
    beside = advise(losses, STEPS, known=[itself])
    assert beside["models_read"] == 1
    assert (beside.sentence, beside["forecast"]) == (alone.sentence, alone["forecast"])


def test_advice_says_that_a_known_run_is_under_way():
    known = [{"curve": {"step": STEPS, "loss": 0.3 + falling(STEPS, 0.01)}, "n_parameters": 15e6}]
    advice = advise(falling(STEPS, 0.01), STEPS, known=known)
    assert any("is under way" in clause and "state its steps" in clause for clause in advice["assumed"])
    steps = {"steps": int(STEPS[-1])}
    advice = advise(falling(STEPS, 0.01), STEPS, known=[known[0] | steps])
    assert not any("is under way" in clause for clause in advice["assumed"])


def smoothed(losses, weight):
    return pd.Series(losses).ewm(alpha=1 - weight, adjust=False).mean().to_numpy()


@pytest.mark.parametrize("weight", [0.9, 0.97, 0.99])
def test_a_moving_average_is_known_by_its_walk(weight):
    steps = np.arange(100, 700)
    hits = [is_moving_average(smoothed(falling(steps, 0.05, seed), weight)) for seed in range(20)]
    assert np.mean(hits) >= 0.8
    raw = [is_moving_average(falling(steps, 0.05, seed)) for seed in range(20)]
    assert np.mean(raw) <= 0.05
    assert not is_moving_average(falling(steps, 0.0))


@pytest.mark.parametrize(("rows", "least"), [(40, 0.6), (80, 0.9), (150, 0.95)])
@pytest.mark.parametrize("weight", [0.9, 0.95, 0.99])
def test_a_short_or_heavy_moving_average_is_no_independent_noise(rows, least, weight):
    steps = np.linspace(250, 4800, rows).round()

    def is_called_smoothed(losses):
        log = {"step": steps, "loss": losses}
        schedule = LearningRateSchedule.of_log(FINAL, [], [], warmup_steps=0)
        training = TrainingRun.of(RunFacts("m", 1000, 10.0), schedule, log, {})
        return looks_smoothed(training) or bool(smoothing_assumption(training))

    raw = [falling(steps, 0.05, seed) for seed in range(60)]
    assert np.mean([is_called_smoothed(smoothed(losses, weight)) for losses in raw]) >= least
    assert np.mean([is_called_smoothed(losses) for losses in raw]) <= 0.07  # 1% is nominal


def test_advice_on_a_smoothed_log_is_not_sure():
    steps = np.arange(250, FINAL // 2, 5)
    losses = smoothed(falling(steps, 0.05), 0.99)
    advice = advise(losses, steps)
    assert any("moving average" in reason for reason in advice.reasons)
    named = {"step": steps, "loss": losses, "validation_loss": losses}
    assert not any("moving average" in reason for reason in toposcale.advise(named, **OPTIONS).reasons)


def test_a_stretch_above_the_level_that_came_back_is_left_out():
    losses = falling(STEPS, 0.01)
    shifted = losses.copy()
    shifted[60:90] += 0.6
    np.testing.assert_array_equal(np.flatnonzero(is_excursion(shifted)), np.arange(60, 90))
    assert not is_excursion(losses).any()
    plain, lifted = (advise(values, STEPS) for values in (losses, shifted))
    assert lifted.choice == plain.choice
    assert lifted["forecast"] == pytest.approx(plain["forecast"], abs=0.02)


def test_a_stretch_that_has_not_come_back_is_no_excursion():
    losses = falling(STEPS, 0.01)
    losses[-40:] += 0.6
    assert not is_excursion(losses).any()


def test_advice_on_a_finished_run_with_compute_to_spend():
    whole = run("100M", 100_000_000)
    advice = advise_on(whole, [], Request(remaining=4 * whole.flop_of_steps(whole.final_step)))
    rows = {row["candidate"]: row for row in advice["candidates"]}
    assert rows["continue"]["steps"] == rows["continue"]["flop"] == 0
    assert rows["continue"]["loss"] == pytest.approx(whole.progress.loss, abs=0.02)
    starts = [row for name, row in rows.items() if name.startswith("scale up to ")]
    assert starts
    for row in starts:
        assert row["gain"] == pytest.approx(rows["continue"]["loss"] - row["loss"])


def test_the_facts_of_a_training_decide_its_warm_up():
    steps = np.arange(1, 51)
    log = {"step": steps, "loss": falling(steps, 0.0)}
    schedule = LearningRateSchedule.of_log(100, [], [], warmup_steps=20)
    training = TrainingRun.of(RunFacts("m", 1000, 10.0), schedule, log, {})
    assert training.schedule.warmup_steps == 20
    assert changed(training, stated_warmup=5).schedule.warmup_steps == 5
    assert run("100M", 100_000_000, wsd(warmup=300)).schedule.warmup_steps == 299


def long_run(n=400):
    """Steps, and losses that fall from a uniform guess as those of a healthy run."""
    steps = np.arange(1, n + 1) * 12
    return steps, falling(steps, 0.005) + 6 * np.exp(-steps / 100)


@pytest.mark.parametrize("rows", [5, 15])
def test_rise_ignores_a_dip_of_a_few_rows(rows):
    steps, losses = long_run()
    losses[250 : 250 + rows] *= 0.94
    assert not is_excursion(losses)[:250].any()
    assert advise(losses, steps).choice


@pytest.mark.parametrize("rows", [8, 12, 15])
def test_a_dip_of_a_short_curve_is_no_level_and_not_forecast(rows):
    """The forecast is that of the curve without the dip."""
    steps, losses = long_run(150)
    whole = advise(losses, steps)["forecast"]
    losses[110 : 110 + rows] *= 0.86
    np.testing.assert_array_equal(np.flatnonzero(is_dip(losses)), np.arange(110, 110 + rows))
    dipped = advise(losses, steps)
    assert dipped.choice
    assert dipped["forecast"] == pytest.approx(whole, rel=0.01)


@pytest.mark.parametrize("end", [np.linspace(1.05, 1.6, 8), np.full(6, 1.2)])
def test_losses_that_run_away_or_jump_are_rising(end):
    steps, losses = long_run()
    losses[-len(end) :] *= end
    assert "the loss is rising" in advise(losses, steps).sentence


def overfitted(training_falls=True):
    """A small model that repeats its text: the validation loss is lowest at step 1,750 of 5,000."""
    steps = np.arange(0, 5001, 250)
    training = 0.4 + 3.8 * np.exp(-steps / 1000) if training_falls else np.full(len(steps), 2.0)
    validation = np.where(steps < 1750, 1.494 + 2.7 * np.exp(-steps / 500), 1.494 + 0.21 * (steps - 1750) / 1000)
    return {"step": steps, "loss": training, "validation_loss": validation}


OVERFITTED = {"n_parameters": 10.65e6, "tokens_per_step": 16_384, "schedule": "cosine", "warmup_steps": 100}


def test_advise_on_a_finished_run_that_overfits():
    advice = toposcale.advise(overfitted(), steps=5000, **OVERFITTED)
    assert advice.text().startswith(
        "this run: finished at step 5,000, validation loss 2.176; rising: it is 2.176 now; its lowest was 1.494 at step "
        "1,750, and the training loss has fallen since: overfitting"
    )
    assert (advice["best_loss"], advice["best_step"]) == (pytest.approx(1.494), 1750)


def test_advise_on_a_run_that_overfits_names_the_best_step():
    answer = toposcale.advise(overfitted(), steps=10_000, **OVERFITTED).sentence
    assert answer == (
        "No advice: the validation loss is rising: it is 2.176 now; its lowest was 1.494 at step 1,750, and the training "
        "loss has fallen since: overfitting."
    )
    assert "overfitting" not in toposcale.advise(overfitted(False), steps=10_000, **OVERFITTED).sentence


def test_advise_on_a_finished_run_says_whether_it_is_on_track():
    curve = {"step": [400_000, 600_000], "validation_loss": [2.95, 2.90]}
    text = toposcale.advise(curve, n_parameters=124e6, tokens_per_step=491_520, steps=600_000).text()
    assert "On track   yes: published runs of 124,000,000 parameters after 2.9e+11 tokens" in text


def test_metric_rises_of_noise_and_of_a_fall():
    """Validation losses that fall with a noise of 0.02 nats rise in none of 100 logs."""
    steps = np.arange(0, 5001, 250)
    for seed in range(100):
        noise = 0.02 * np.random.default_rng(seed).standard_normal(len(steps))
        curve = overfitted() | {"validation_loss": 2.5 + 2.0 * np.exp(-steps / 800) + noise}
        assert not metric_rises(RunInput(curve, "run", {"steps": 5000} | OVERFITTED).training_run())


CONTINUED = {"n_parameters": 7e9, "tokens_per_step": 4e6, "steps": 2000}


@pytest.mark.parametrize("first", [[(1, 5.5)], [(1, 2.95)], []])
def test_advise_refuses_continued_pretraining(first):
    """A 7B model at 2.5 nats after 80 million tokens; its first batches may be of another text."""
    steps = np.arange(10, 1001, 10)
    losses = 2.2 + 0.42 * np.exp(-(steps - 10) / 30)
    rows = [*first, *zip(steps.tolist(), losses.tolist(), strict=True)]
    advice = toposcale.advise(np.array(rows), **CONTINUED)
    assert "after 8e+07 tokens from scratch, and this run has 2.5" in advice.sentence
    assert "continued pretraining" in advice.sentence


@pytest.mark.parametrize(("factor", "first", "said"), [(2, 24, True), (1, 24, False), (2, 2, True), (1, 2, False)])
def test_refuse_curve_above_a_uniform_guess_in_the_warmup(factor, first, said):
    """But for the first steps, which a bad initialisation may lift."""
    steps = np.arange(first, 4800, 24)
    losses = factor * (2.4 + 6.2 * np.exp(-steps / 250) + 9 * (steps + 50.0) ** -0.5)
    if first == 2:
        losses[0] = 90
    assert ("above the 14 nats of a uniform guess" in advise(losses, steps).sentence) == said


def test_advice_with_a_drop_at_a_restart_is_not_confident():
    steps, losses = long_run()
    again = {"step": np.append(steps[:300], steps[200:]), "loss": np.append(losses[:300], 0.98 * losses[200:])}
    advice = toposcale.advise(again, **OPTIONS)
    [reason] = [text for text in advice.reasons if "the loss dropped abruptly at step 2,412" in text]
    assert not advice.is_confident
    healthy = toposcale.advise(again | {"loss": np.append(losses[:300], losses[200:])}, **OPTIONS)
    assert reason not in healthy.reasons


@pytest.mark.parametrize(
    ("steps", "said"), [(4800, "finished at step 4,800"), (FINAL, "No advice: the loss is rising")]
)
def test_what_was_left_out_is_said_without_advice_too(steps, said):
    at, losses = long_run()
    # The first rows after a restart go on from those before it: otherwise they are those of another run.
    end = np.geomspace(losses[-20], 9.0, 20) if steps == FINAL else np.full(20, losses[-1])
    rows = {"step": np.append(at, at[-20:]), "loss": np.append(losses, end)}
    advice = toposcale.advise(rows, **OPTIONS | {"steps": steps})
    note = "the log goes back to step 4,572, as after a restart: 20 rows before that were left out"
    assert said in advice.text()
    assert note in advice.text()
    assert note in advice["assumed"]


def test_a_loss_that_no_training_from_scratch_gives_is_refused():
    """60M parameters after 2e8 tokens: fine-tuning of a model that was trained before starts near its end."""
    advice = advise(0.3 * falling(STEPS, 0.003), STEPS)
    assert "not for fine-tuning" in advice.sentence


def test_advice_soon_after_the_warmup_is_not_confident():
    schedule = {"shape": "cosine", "warmup_steps": 3000, "final": 0.1}
    steps = np.arange(250, 4500, 25)
    advice = advise(falling(steps, 0.003), steps, schedule=schedule)
    assert advice.choice
    assert any("warm-ups have passed" in reason for reason in advice.reasons)


def test_advice_with_a_departing_validation_loss():
    training = falling(STEPS, 0.003)
    validation = training + np.where(STEPS > 3500, 0.1, 0.02)
    columns = {"step": STEPS, "loss": training, "validation_loss": validation}
    reasons = toposcale.advise(columns, **OPTIONS).reasons
    assert any("no longer follows" in reason for reason in reasons)
    steady = toposcale.advise(columns | {"validation_loss": training + 0.02}, **OPTIONS).reasons
    assert not any("no longer follows" in reason for reason in steady)


@pytest.mark.parametrize(("n_parameters", "first", "end"), [(124e6, 5.29, 3.1), (124e6, 4.5, 3.1), (7e9, 4.5, 2.9)])
def test_refuse_run_that_begins_far_below_a_uniform_guess(n_parameters, first, end):
    """4,096 tokens a step: where it stands now is usual, where it began is not."""
    steps = np.arange(20, 20_001, 20)
    losses = end + (first - end) * (steps / 20) ** -0.3
    plan = {
        "n_parameters": n_parameters,
        "tokens_per_step": 4096,
        "steps": 40_000,
        "schedule": "constant",
        "warmup_steps": 100,
    }
    advice = toposcale.advise({"step": steps, "loss": losses}, **plan)
    assert "not for fine-tuning" in advice.sentence
    usual = losses + 10.8 * np.exp(-steps / 300)
    assert "fine-tuning" not in toposcale.advise({"step": steps, "loss": usual}, **plan).sentence


def test_a_log_of_many_rows_needs_no_memory_for_each_window():
    """Windows are a tenth and an eighth of the rows: all of them at once would be 70 GB."""
    rows = np.arange(1, 300_001)
    losses = falling(rows, 0.003)
    assert rise(losses, 5) is None
    assert not is_dip(losses).any()
    dipped = np.where(abs(rows - 150_000) < 5_000, 0.8 * losses, losses)
    assert rise(dipped, 5) is None
    assert is_dip(dipped)[148_000:152_000].all()


@pytest.mark.parametrize(("falls", "is_refused"), [(0.03, True), (0.3, False)])
def test_refuse_run_far_above_the_usual_loss(falls, is_refused):
    """Losses of masked tokens have a plateau a nat above those of next tokens, which fall fast where they are so high."""
    steps = np.arange(20, 4001, 20)
    losses = 5.9 * (steps / 4000) ** -falls
    losses[:3] = 10.5
    facts = {
        "n_parameters": 334e6,
        "tokens_per_step": 16_384,
        "steps": 20_000,
        "schedule": "linear",
        "warmup_steps": 200,
    }
    sentence = toposcale.advise({"step": steps, "loss": losses}, **facts).sentence
    assert ("nor does it approach that" in sentence) == is_refused


def test_a_young_run_is_told_when_to_ask_again():
    advice = advise(falling(np.arange(10, 401, 10), 0.01), np.arange(10, 401, 10), schedule="constant")
    assert advice.sentence == (
        "No advice: 400 steps and 4e+07 tokens are too few for a forecast, whose intervals hold from 700 steps and 5e+07 "
        "tokens on; ask again from step 700 on."
    )
    small_batch = advise(falling(STEPS[:100], 0.01), STEPS[:100], tokens_per_step=8192)
    assert "ask again from step 6,104 on" in small_batch.sentence
    short = advise(falling(STEPS[:100], 0.01), STEPS[:100], tokens_per_step=4096)
    assert "this run ends before that: compare it with other runs at equal steps" in short.sentence


@pytest.mark.parametrize(
    ("n_parameters", "tokens_per_step", "first"),
    [
        (60e6, 1e5, 700),
        (60e6, 25_000, 2000),
        (12e6, 25_000, 960),
        (60e6, np.nan, 700),
        (9e6, 25_000, 720),
        (301e3, 4096, 700),
        (97e3, 4096, 120),
        (97e3, np.nan, 120),
    ],
)
def test_the_age_of_a_first_forecast(n_parameters, tokens_per_step, first):
    """Two tokens per parameter suffice for a smaller model, and 120 steps up to 100K parameters."""

    def is_refused(last):
        facts = RunFacts("m", int(n_parameters), tokens_per_step)
        steps = np.arange(1.0, last + 1)
        try:
            refuse_young(TrainingRun(facts, LearningRateSchedule(10_000), steps=steps, losses=falling(steps, 0.0)))
        except NoForecast:
            return True
        return False

    assert not is_refused(first)
    assert is_refused(first - 1)
