"""Learning-rate schedules of shapes, files and tables."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toposcale.forecasting.logs.table_files import read_schedule
from toposcale.forecasting.runs.learning_rate_schedule import MAX_BREAKPOINTS, breakpoints
from toposcale.forecasting.runs.schedules import SHAPES, Schedule, schedule_of
from toposcale.io.errors import UserError


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


def test_a_schedule_in_a_file(tmp_path):
    file = tmp_path / "plan.csv"
    file.write_text("step,learning_rate\n0,0\n10,1\n20,0.5\n")
    plan = read_schedule(file)
    assert plan.steps == 20
    assert plan.rate(5) == 0.5
    assert plan.rates()[15] == 0.75
    file.write_text("step,rate\n0,0\n10,1\n")
    with pytest.raises(UserError, match="learning_rate"):
        read_schedule(file)


@settings(max_examples=40)
@given(st.sampled_from(SHAPES), st.integers(0, 5000), st.integers(100, 30000))
def test_at_most_2000_rows_are_the_schedule(shape, warmup, steps):
    plan = Schedule(shape, 3e-4, steps, min(warmup, steps // 2), 3e-5, decay_start=steps * 3 // 4).rates()
    at = breakpoints(plan)
    assert len(at) <= MAX_BREAKPOINTS
    back = np.interp(np.arange(len(plan)), at, plan[at])
    assert np.max(np.abs(back - plan)) <= 1e-4 * plan.max()


def test_a_jump_of_the_rate_stays_a_jump():
    plan = np.where(np.arange(16001) < 8000, 3e-4, 9e-5)
    at = breakpoints(plan)
    np.testing.assert_allclose(np.interp(np.arange(16001), at, plan[at]), plan, rtol=1e-12)


COSINE = {"shape": "cosine", "peak": 3e-4, "steps": 24000, "warmup_steps": 2160, "final": 3e-5}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"decay_start": 20000}, "decay_start: not used by cosine"),
        ({"shape": "constant"}, "final: not used by constant"),
        ({"warmup_steps": 24000}, "warmup_steps: 24,000, but the schedule ends at step 24,000"),
    ],
)
def test_what_a_schedule_does_not_use_is_named(change, line):
    with pytest.raises(UserError, match=line):
        schedule_of(COSINE | change)


@pytest.mark.parametrize("name", ["learning_rate", "LR", "train/learning_rate"])
def test_the_rate_of_a_schedule_file_may_have_its_usual_names(tmp_path, name):
    file = tmp_path / "plan.csv"
    file.write_text(f"Step,{name}\n0,0\n10,1\n")
    assert read_schedule(file).rate(5) == 0.5


def test_two_rates_in_a_schedule_file_are_refused(tmp_path):
    file = tmp_path / "plan.csv"
    file.write_text("step,lr,train/lr\n0,0,0\n10,1,2\n")
    with pytest.raises(UserError, match="lr and train/lr are each a column learning_rate"):
        read_schedule(file)
