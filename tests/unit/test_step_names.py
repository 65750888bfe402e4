"""Names of checkpoints and what step they are of."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toposcale.checkpoints.step_names import steps_by_name
from toposcale.io.errors import UserError


@pytest.mark.parametrize(
    ("pattern", "names", "steps"),
    [
        ("step{step}", ["step10", "step2", "main", "step10-old", "neox-ckpt-step1"], [2, 10]),
        ("step-{step}.safetensors", ["step-00000020.safetensors", "step-00000003.safetensors"], [3, 20]),
        ("step{step}-tokens{tokens}B", ["step1000-tokens4B", "step500-tokens2.1B", "main"], [500, 1000]),
        ("stage1-step{step}-tokens{tokens}B", ["stage1-step5-tokens1B", "stage2-step5-tokens1B"], [5]),
        ("ckpt_{step}", ["ckpt_000", "ckpt_358", "ckpt_"], [0, 358]),
        ("a+b{step}", ["a+b1", "aab2"], [1]),
    ],
)
def test_steps_by_name(pattern, names, steps):
    by_step = steps_by_name(pattern, names)
    assert list(by_step) == steps
    assert set(by_step.values()) <= set(names)


@given(st.lists(st.integers(0, 10**9), unique=True, max_size=20), st.integers(0, 12))
@settings(deadline=None, max_examples=50)
def test_padding_of_names_does_not_matter(steps, digits):
    names = [f"x{step:0{digits}d}.y" for step in steps]
    assert list(steps_by_name("x{step}.y", names)) == sorted(steps)


@pytest.mark.parametrize(
    "pattern", ["main", "step{}", "step{tokens}", "{step}{step}", "step{step!r}", "step{step", "{step}}", "{{step}"]
)
def test_patterns_that_are_none(pattern):
    with pytest.raises(UserError, match=r"as in step\{step\}"):
        steps_by_name(pattern, ["step1"])


def test_two_names_of_one_step():
    with pytest.raises(UserError, match="step01 and step1 are both step 1"):
        steps_by_name("step{step}", ["step1", "step01"])
