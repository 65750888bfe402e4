"""The learning-rate schedule of a run: its provenance, and that nothing of it is made up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toposcale.analysis.model_rows import warmup_of_log
from toposcale.forecasting.runs.learning_rate_schedule import (
    LearningRateSchedule,
    ScheduleProvenance,
    extrapolated_rates,
    longest_warmup,
)
from toposcale.forecasting.runs.schedules import SHAPES, Schedule, schedule_of
from toposcale.io.errors import UserError

GIVEN, LOGGED, RECOGNISED, UNKNOWN = ScheduleProvenance
of_log = LearningRateSchedule.of_log


def test_of_log_asks_for_rates_before_the_first_row():
    steps = np.arange(2000, 4001, 100)
    schedule = of_log(4000, steps, np.full(len(steps), 3e-4))
    assert schedule.provenance is UNKNOWN
    assert not schedule.is_known
    assert "before step 2,000" in schedule.unknown_because
    assert "warmup_steps" in schedule.unknown_because
    given = Schedule("constant", 3e-4, 4000, 2160)
    schedule = of_log(4000, steps[2:], np.full(len(steps) - 2, 3e-4), given)
    assert schedule.provenance is GIVEN
    assert schedule.rates[0] == pytest.approx(3e-4 / 2160)


def test_of_log_fills_a_known_warmup_before_the_first_row():
    whole = Schedule("linear", 1e-3, 1000, 100).rates()
    steps = np.arange(100, 1001, 10)
    schedule = of_log(1000, steps, whole[steps], warmup_steps=100)
    assert schedule.provenance is LOGGED
    np.testing.assert_allclose(schedule.rates, whole, atol=1.1e-5)
    # The log begins long after the warm-up: what lies between is not known.
    late = np.arange(500, 1001, 10)
    schedule = of_log(1000, late, whole[late], warmup_steps=100)
    assert schedule.provenance is UNKNOWN
    assert not schedule.is_known
    assert "before step 500" in schedule.unknown_because
    # A warm-up that was logged stays as it was logged.
    steps = np.arange(0, 1001, 10)
    slow = np.minimum(whole, 1e-3 * (np.arange(1001) / 100) ** 2)
    schedule = of_log(1000, steps, slow[steps], warmup_steps=100)
    assert schedule.rates[50] == pytest.approx(slow[50])


def test_rows_to_come_are_the_plan():
    whole = Schedule("linear", 1e-3, 1000, 100).rates()
    steps = np.arange(0, 1001, 10)
    schedule = of_log(1000, steps, whole[steps])
    assert schedule.provenance is LOGGED
    np.testing.assert_allclose(schedule.rates, whole, atol=1e-5)


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_a_falling_rate_is_recognised_and_a_constant_one_is_not(shape):
    """The Trainer logs the rate of every tenth step; the log so far ends at 40%."""
    whole = Schedule(shape, 1e-3, 1000, 50).rates()
    steps = np.arange(10, 401, 10)
    schedule = of_log(1000, steps, whole[steps])
    assert schedule.provenance is RECOGNISED
    np.testing.assert_allclose(schedule.rates[400:], whole[400:], atol=2e-6)
    assert extrapolated_rates(steps, np.full(len(steps), 1e-3), 1000) is None
    schedule = of_log(1000, steps, np.full(len(steps), 1e-3))
    assert schedule.provenance is UNKNOWN
    assert not schedule.is_known
    assert "after step 400" in schedule.unknown_because


COSINE = {"shape": "cosine", "peak": 3e-4, "steps": 24000, "warmup_steps": 2160, "final": 3e-5}


def printed(form):
    """How a log prints its rates."""
    return lambda rates: np.array([float(form % rate) for rate in rates])


@pytest.mark.parametrize("share", [0.2, 0.4])
@pytest.mark.parametrize(
    "change", [{"steps": 23000}, {"steps": 25000}, {"final": 0.0}, {"peak": 3.05e-4}, {"shape": "linear"}]
)
@pytest.mark.parametrize("form", [None, "%.5e", "%.9f"])
def test_of_log_refuses_a_small_contradiction(share, change, form):
    steps = np.arange(128, int(share * 24000), 128)
    rates = Schedule(**COSINE).rates()[steps]
    logged = rates if form is None else printed(form)(rates)
    assert of_log(24000, steps, logged, Schedule(**COSINE)).provenance is GIVEN
    wrong = Schedule(**COSINE | change)
    with pytest.raises(UserError, match="but the log has"):
        of_log(wrong.steps, steps, logged, wrong)


@pytest.mark.parametrize("form", ["%.2e", "%.1e", "%.5f", "%.3g"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_of_log_accepts_few_digits_and_other_counts(form, shape, shift):
    more = {"decay_start": 700} if shape == "wsd" else {}
    plan = Schedule(shape, 6e-4, 1000, 100, 0.0 if shape == "constant" else 6e-5, **more)
    steps = np.arange(10, 990, 10)
    logged = printed(form)(plan.rates()[steps + shift])
    schedule = of_log(1000, steps, logged, plan)
    assert schedule.provenance is GIVEN
    np.testing.assert_array_equal(schedule.rates, plan.rates())


def test_of_log_accepts_32_bits_and_a_warmup_from_above_0():
    plan = Schedule(**COSINE)
    steps = np.arange(100, 9600, 100)
    rates = plan.rates()[steps].astype(np.float32).astype(float)
    assert of_log(24000, steps, rates, plan).provenance is GIVEN
    warm = np.maximum(rates, np.where(steps < 2160, 1e-5, 0))
    assert of_log(24000, steps, warm, plan).provenance is GIVEN


def test_a_plan_in_rows_meets_the_log_between_its_rows():
    whole = Schedule(**COSINE).rates()
    at = np.unique(np.append(np.arange(0, 24001, 500), 2160))
    table = schedule_of({"at": at.tolist(), "values": whole[at].tolist()})
    steps = np.arange(128, 9600, 128)
    assert of_log(24000, steps, whole[steps], table).provenance is GIVEN
    with pytest.raises(UserError, match="but the log has"):
        of_log(24000, steps, Schedule(**COSINE | {"final": 0.0}).rates()[steps], table)


def test_a_log_that_goes_on_after_the_schedule_is_named():
    given = Schedule("constant", 3e-4, 1000, 10)
    with pytest.raises(UserError, match=r"it ends at step 1,000, but the log goes to step 1,500"):
        of_log(1000, np.array([500, 1500]), np.array([3e-4, 3e-4]), given)


def test_a_log_that_contradicts_the_schedule_is_named():
    given = Schedule("constant", 3e-4, 1000, 10)
    with pytest.raises(UserError, match=r"0.0003 at step 500, but the log has 0.0001"):
        of_log(1000, np.array([100, 500]), np.array([3e-4, 1e-4]), given)


def test_without_a_rate_nothing_is_known():
    schedule = of_log(1000, [], [])
    assert schedule.provenance is UNKNOWN
    assert not schedule.is_known
    assert "no learning rates" in schedule.unknown_because


@pytest.mark.parametrize(
    ("steps", "rates", "warmup"),
    [
        ([0, 10, 20, 30, 40], [0.0, 0.5, 1.0, 0.9, 0.1], 20),
        ([0, 10, 20], [1.0, 1.0, 1.0], 0),
        ([500, 510, 520], [1.0, 0.9, 0.8], None),
        ([500, 510, 520], [0.8, 0.9, 0.8], 510),
        ([0, 10, 20], [np.nan, 0.5, 1.0], None),
        ([], [], None),
    ],
)
def test_warmup_of_log_ends_at_the_highest_rate(steps, rates, warmup):
    assert warmup_of_log(steps, rates) == warmup


@pytest.mark.parametrize(
    ("steps", "rates", "peak", "over"),
    [
        # Between two rows the rate may have risen to its peak and come back.
        ([500, 510, 520], [1.0, 0.9, 0.8], np.nan, 510),
        ([500, 510, 520], [0.8, 0.9, 0.8], np.nan, 520),
        ([500, 510, 520], [np.nan, 0.9, 0.8], np.nan, 520),
        ([500, 1000, 1500], [1.0, 1.0, 1.0], np.nan, 500),
        # With a known peak it is over at the row near it, and not before.
        ([500, 1000, 1500], [0.5, 0.97, 0.6], 1.0, 1000),
        ([500, 1000, 1500], [0.5, 0.9, 0.6], 1.0, 1500),
        ([500], [0.97], 1.0, 500),
        ([500, 510], [0.5, 0.8], 0.1, None),
        # Still rising.
        ([500, 1000, 1500], [0.2, 0.4, 0.6], np.nan, None),
        ([500], [0.5], np.nan, None),
        ([500], [0.0], np.nan, None),
        ([500], [np.nan], np.nan, None),
        ([], [], np.nan, None),
    ],
)
def test_longest_warmup_is_the_first_row_that_shows_it(steps, rates, peak, over):
    assert longest_warmup(steps, rates, peak) == over


@given(st.integers(1, 400), st.integers(5, 200), st.integers(0, 30))
def test_the_bound_is_never_below_the_warm_up(warmup, every, offset):
    """A linear rise and a cosine, seen only at checkpoints."""
    steps = np.arange(offset, 1000, every)
    rates = np.where(steps <= warmup, steps / warmup, 0.5 + 0.5 * np.cos(np.pi * (steps - warmup) / (1000 - warmup)))
    bound = longest_warmup(steps, rates)
    assert bound is None or bound >= 0.95 * warmup


@pytest.mark.parametrize("change", ["jitter", "restart", "a higher second half"])
def test_a_warm_up_ends_where_the_rate_first_comes_near_its_peak(change):
    rates = np.minimum(np.arange(1001) / 100, 1.0)
    if change == "jitter":
        rates[100:] += 1e-7 * np.random.default_rng(0).uniform(size=901)
    elif change == "restart":
        rates[400:600] = np.linspace(0.5, 1.0, 200)
    else:
        rates[500:] *= 1.03
    assert abs(LearningRateSchedule(1000, rates).warmup_steps - 100) <= 1


def trainer(step: np.ndarray, warmup: int, final_step: int) -> np.ndarray:
    """Rates of transformers' cosine, as Trainer logs them: of the update before the step, from 0 on."""
    done = step - 1.0
    decay = 0.5 * (1 + np.cos(np.pi * (done - warmup) / (final_step - warmup)))
    return np.where(done < warmup, done / max(warmup, 1), decay)


def lightning(step: np.ndarray, warmup: int, final_step: int) -> np.ndarray:
    """Rates of the same schedule, logged by Lightning's monitor with the step that the update begins."""
    return trainer(step + 1, warmup, final_step)


def nanogpt(step: np.ndarray, warmup: int, final_step: int) -> np.ndarray:
    """Rates of nanoGPT, whose warm-up begins above 0 and reaches the peak one step later."""
    decay = 0.5 * (1 + np.cos(np.pi * (step - warmup) / (final_step - warmup)))
    return np.where(step < warmup, (step + 1) / (warmup + 1), decay)


def torchtitan(step: np.ndarray, warmup: int, final_step: int) -> np.ndarray:
    """Rates of torchtitan, whose warm-up begins with its first fraction; steps count from 1."""
    done = step - 1
    decay = 0.5 * (1 + np.cos(np.pi * (done - warmup) / (final_step - warmup)))
    return np.where(done < warmup, (done + 1) / max(warmup, 1), decay)


@pytest.mark.parametrize("program", [trainer, lightning, nanogpt, torchtitan])
@pytest.mark.parametrize("warmup", [1, 2, 7, 20, 100, 2000])
@pytest.mark.parametrize("every", [1, 10, 20, 50])
def test_of_log_accepts_the_true_schedule_of_a_program(program, warmup, every):
    final_step = max(4000, 4 * warmup)
    steps = np.arange(every, final_step // 2 + 1, every)
    given = Schedule("cosine", 3e-3, final_step, warmup, 0.0)
    schedule = LearningRateSchedule.of_log(final_step, steps, 3e-3 * program(steps, warmup, final_step), given)
    np.testing.assert_allclose(schedule.rates, given.rates())


@pytest.mark.parametrize("warmup", [1, 20, 2000])
@pytest.mark.parametrize("every", [1, 10, 50])
def test_of_log_recognises_the_true_minimum_of_a_trainer(warmup, every):
    final_step = max(4000, 4 * warmup)
    steps = np.arange(every, final_step // 2 + 1, every)
    for minimum in (0.0, 0.1):
        rates = minimum + (1 - minimum) * trainer(steps, warmup, final_step)
        schedule = LearningRateSchedule.of_log(final_step, steps, 3e-3 * rates)
        assert schedule.provenance is ScheduleProvenance.RECOGNISED
        assert schedule.rates[-1] == pytest.approx(3e-3 * minimum, abs=1e-9)


def test_of_log_recognises_a_line_after_a_row_of_the_warmup():
    final_step, warmup = 8000, 2000
    steps = np.arange(20, 4001, 20)
    line = np.where(steps - 1 < warmup, (steps - 1) / warmup, (final_step - (steps - 1)) / (final_step - warmup))
    schedule = LearningRateSchedule.of_log(final_step, steps, 3e-3 * line)
    assert schedule.provenance is ScheduleProvenance.RECOGNISED
    assert schedule.rates[-1] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("change", [{"warmup_steps": 40}, {"final": 3e-4}, {"peak": 2.9e-3}, {"steps": 4400}])
def test_of_log_still_refuses_another_schedule_for_a_trainer(change):
    steps = np.arange(20, 3001, 20)
    given = Schedule(**({"shape": "cosine", "peak": 3e-3, "steps": 4000, "warmup_steps": 20, "final": 0.0} | change))
    with pytest.raises(UserError, match="the log has"):
        LearningRateSchedule.of_log(given.steps, steps, 3e-3 * trainer(steps, 20, 4000), given)


def test_half_decayed_at_of_a_wsd_schedule():
    rates = Schedule("wsd", 1e-3, 1000, 10, 0.0, 800).rates()
    assert LearningRateSchedule(1000, rates).half_decayed_at == pytest.approx(900, abs=1)
    assert LearningRateSchedule(1000).half_decayed_at == 0
