"""What a plan says of every step, where it is known from, and that nothing of it is made up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toposcale.io.errors import UserError
from toposcale.training.schedules import (
    MOST_BREAKPOINTS,
    SHAPES,
    Schedule,
    breakpoints,
    plan_of_training,
    recognised,
    schedule_of,
    warmup_of,
)

NOTHING = np.empty(0)


def test_the_shapes_by_hand():
    """Warm-up of 10 steps to 1, end at 110: half way down, at step 60, the rate of each is plain."""
    assert Schedule("constant", 1.0, 110, 10).rate(60) == 1.0
    assert Schedule("linear", 1.0, 110, 10, 0.2).rate(60) == pytest.approx(0.6)
    assert Schedule("cosine", 1.0, 110, 10, 0.2).rate(60) == pytest.approx(0.6)
    wsd = Schedule("wsd", 1.0, 110, 10, 0.01, decay_start=90, decay_shape="exponential")
    assert wsd.rate(89) == 1.0
    assert wsd.rate(100) == pytest.approx(0.1)
    assert wsd.rate(110) == pytest.approx(0.01)
    assert [wsd.rate(step) for step in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"shape": "sine"}, "shape"),
        ({"peak": 0.0}, "peak"),
        ({"final": 2.0}, "final"),
        ({"shape": "wsd"}, "decay_start"),
        ({"shape": "wsd", "decay_start": 200}, "decay_start"),
        ({"shape": "wsd", "decay_start": 50, "decay_shape": "exponential"}, "final"),
    ],
)
def test_numbers_that_fit_in_no_training_are_named(change, named):
    with pytest.raises(ValueError, match=named):
        Schedule(**{"shape": "cosine", "peak": 1.0, "steps": 100, **change})


def test_a_plan_in_a_file(tmp_path):
    file = tmp_path / "plan.csv"
    file.write_text("step,learning_rate\n0,0\n10,1\n20,0.5\n")
    plan = schedule_of(str(file))
    assert plan.steps == 20
    assert plan.rate(5) == 0.5
    assert plan.rates()[15] == 0.75
    file.write_text("step,rate\n0,0\n10,1\n")
    with pytest.raises(UserError, match="learning_rate"):
        schedule_of(str(file))


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(SHAPES), st.integers(0, 5000), st.integers(100, 30000))
def test_at_most_2000_rows_are_the_plan(shape, warmup, steps):
    plan = Schedule(shape, 3e-4, steps, min(warmup, steps // 2), 3e-5, decay_start=steps * 3 // 4).rates()
    at = breakpoints(plan)
    assert len(at) <= MOST_BREAKPOINTS
    back = np.interp(np.arange(len(plan)), at, plan[at])
    assert np.max(np.abs(back - plan)) <= 1e-4 * plan.max()


def test_a_jump_of_the_rate_stays_a_jump():
    plan = np.where(np.arange(16001) < 8000, 3e-4, 9e-5)
    at = breakpoints(plan)
    np.testing.assert_allclose(np.interp(np.arange(16001), at, plan[at]), plan, rtol=1e-12)


# ---- where a plan is known from


def test_rates_before_the_first_row_are_asked_for_and_never_filled_in():
    steps = np.arange(2000, 4001, 100)
    rates, reason = plan_of_training(4000, steps, np.full(len(steps), 3e-4))
    assert not len(rates)
    assert "before step 2,000" in reason
    assert "warmup_steps" in reason
    given = Schedule("constant", 3e-4, 4000, 2160)
    rates, plan = plan_of_training(4000, steps[2:], np.full(len(steps) - 2, 3e-4), given)
    assert plan == "given"
    assert rates[0] == pytest.approx(3e-4 / 2160)


def test_a_known_warmup_is_filled_in_before_the_first_row_and_no_further():
    whole = Schedule("linear", 1e-3, 1000, 100).rates()
    steps = np.arange(100, 1001, 10)
    rates, plan = plan_of_training(1000, steps, whole[steps], warmup_steps=100)
    assert plan == "rows"
    np.testing.assert_allclose(rates, whole, atol=1.1e-5)
    # The log begins long after the warm-up: what lies between is not known.
    late = np.arange(500, 1001, 10)
    unknown, reason = plan_of_training(1000, late, whole[late], warmup_steps=100)
    assert not len(unknown)
    assert "before step 500" in reason
    # A warm-up that was logged stays as it was logged.
    steps = np.arange(0, 1001, 10)
    slow = np.minimum(whole, 1e-3 * (np.arange(1001) / 100) ** 2)
    rates, _ = plan_of_training(1000, steps, slow[steps], warmup_steps=100)
    assert rates[50] == pytest.approx(slow[50])


def test_rows_to_come_are_the_plan():
    whole = Schedule("linear", 1e-3, 1000, 100).rates()
    steps = np.arange(0, 1001, 10)
    rates, plan = plan_of_training(1000, steps, whole[steps])
    assert plan == "rows"
    np.testing.assert_allclose(rates, whole, atol=1e-5)


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_a_falling_rate_is_recognised_and_a_constant_one_is_not(shape):
    """The Trainer logs the rate of every tenth step; the log so far ends at 40%."""
    whole = Schedule(shape, 1e-3, 1000, 50).rates()
    steps = np.arange(10, 401, 10)
    rates, plan = plan_of_training(1000, steps, whole[steps])
    assert plan == "recognised"
    np.testing.assert_allclose(rates[400:], whole[400:], atol=2e-6)
    assert recognised(steps, np.full(len(steps), 1e-3), 1000) is None
    unknown, reason = plan_of_training(1000, steps, np.full(len(steps), 1e-3))
    assert not len(unknown)
    assert "after step 400" in reason


COSINE = {"shape": "cosine", "peak": 3e-4, "steps": 24000, "warmup_steps": 2160, "final": 3e-5}


def printed(form):
    """How a log prints its rates."""
    return lambda rates: np.array([float(form % rate) for rate in rates])


@pytest.mark.parametrize("share", [0.2, 0.4])
@pytest.mark.parametrize(
    "change", [{"steps": 23000}, {"steps": 25000}, {"final": 0.0}, {"peak": 3.05e-4}, {"shape": "linear"}]
)
@pytest.mark.parametrize("form", [None, "%.5e", "%.9f"])
def test_a_plan_that_the_logged_rates_contradict_by_little_is_refused(share, change, form):
    steps = np.arange(128, int(share * 24000), 128)
    rates = Schedule(**COSINE).rates()[steps]
    logged = rates if form is None else printed(form)(rates)
    assert plan_of_training(24000, steps, logged, Schedule(**COSINE))[1] == "given"
    wrong = Schedule(**COSINE | change)
    with pytest.raises(UserError, match="but the log has"):
        plan_of_training(wrong.steps, steps, logged, wrong)


@pytest.mark.parametrize("form", ["%.2e", "%.1e", "%.5f", "%.3g"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_a_plan_meets_a_log_that_prints_few_digits_and_counts_its_own_way(form, shape, shift):
    more = {"decay_start": 700} if shape == "wsd" else {}
    plan = Schedule(shape, 6e-4, 1000, 100, 0.0 if shape == "constant" else 6e-5, **more)
    steps = np.arange(10, 990, 10)
    logged = printed(form)(plan.rates()[steps + shift])
    rates, source = plan_of_training(1000, steps, logged, plan)
    assert source == "given"
    np.testing.assert_array_equal(rates, plan.rates())


def test_a_plan_meets_a_log_of_32_bits_and_one_that_warms_up_from_above_0():
    plan = Schedule(**COSINE)
    steps = np.arange(100, 9600, 100)
    rates = plan.rates()[steps].astype(np.float32).astype(float)
    assert plan_of_training(24000, steps, rates, plan)[1] == "given"
    warm = np.maximum(rates, np.where(steps < 2160, 1e-5, 0))
    assert plan_of_training(24000, steps, warm, plan)[1] == "given"


def test_a_plan_in_rows_meets_the_log_between_its_rows():
    whole = Schedule(**COSINE).rates()
    at = np.unique(np.append(np.arange(0, 24001, 500), 2160))
    table = schedule_of({"at": at.tolist(), "values": whole[at].tolist()})
    steps = np.arange(128, 9600, 128)
    assert plan_of_training(24000, steps, whole[steps], table)[1] == "given"
    with pytest.raises(UserError, match="but the log has"):
        plan_of_training(24000, steps, Schedule(**COSINE | {"final": 0.0}).rates()[steps], table)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"decay_start": 20000}, "decay_start: means nothing for cosine"),
        ({"shape": "constant"}, "final: means nothing for constant"),
        ({"warmup_steps": 24000}, "warmup_steps: 24,000, but the plan ends at step 24,000"),
    ],
)
def test_what_means_nothing_in_a_schedule_is_named(change, line):
    with pytest.raises(UserError, match=line):
        schedule_of(COSINE | change)


@pytest.mark.parametrize("name", ["learning_rate", "lr", "train/learning_rate"])
def test_the_rate_of_a_schedule_file_may_have_its_usual_names(tmp_path, name):
    file = tmp_path / "plan.csv"
    file.write_text(f"Step,{name}\n0,0\n10,1\n")
    assert schedule_of(str(file)).rate(5) == 0.5


def test_a_log_that_goes_on_after_the_schedule_is_named():
    given = Schedule("constant", 3e-4, 1000, 10)
    with pytest.raises(UserError, match=r"it ends at step 1,000, but the log goes to step 1,500"):
        plan_of_training(1000, np.array([500, 1500]), np.array([3e-4, 3e-4]), given)


def test_a_log_that_contradicts_the_schedule_is_named():
    given = Schedule("constant", 3e-4, 1000, 10)
    with pytest.raises(UserError, match=r"0.0003 at step 500, but the log has 0.0001"):
        plan_of_training(1000, np.array([100, 500]), np.array([3e-4, 1e-4]), given)


def test_without_a_rate_nothing_is_known():
    rates, reason = plan_of_training(1000, NOTHING, NOTHING)
    assert not len(rates)
    assert "no learning rates" in reason


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
def test_the_warmup_of_a_log_ends_at_its_highest_rate_and_is_never_guessed(steps, rates, warmup):
    assert warmup_of(steps, rates) == warmup
