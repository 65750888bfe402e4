"""Steps, tokens and compute: one class turns each into the others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted_laws import run
from toposcale.forecasting.runs.facts import StepCost

POSITIVE = st.floats(1, 1e9)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_step_cost_there_and_back(n_parameters, tokens_per_step, steps):
    cost = StepCost(n_parameters, tokens_per_step)
    assert cost.steps_of_tokens(cost.tokens(steps)) == pytest.approx(steps)
    assert cost.steps_of_flop(cost.flop(steps)) == pytest.approx(steps)


def test_step_cost_of_a_run_and_of_its_target():
    """6 x 1e8 parameters x 500,000 tokens x 10 steps."""
    planted = run("100M", 100_000_000)
    assert planted.cost == planted.target().cost
    assert planted.flop_of_steps(10) == planted.cost.flop(10) == 3e15
    assert planted.cost.tokens(10) == 5e6


def test_step_cost_of_unknown_tokens_is_unknown():
    assert np.isnan(StepCost(1e8, np.nan).flop(10))
    np.testing.assert_array_equal(StepCost(np.array([1.0, 2.0]), 3.0).flop(2), [36.0, 72.0])
