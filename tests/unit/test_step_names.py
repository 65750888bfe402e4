"""Names of checkpoints and what step they are of."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toposcale.checkpoints.step_names import guessed_patterns, steps_by_name
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
        ("step_{step}k.pt", ["step_1k.pt", "step_20k.pt"], [1_000, 20_000]),
        ("iter{step}M", ["iter2M"], [2_000_000]),
        ("step{step}kept", ["step3kept"], [3]),
        ("checkpoint-{step}e3", ["checkpoint-1e3", "checkpoint-20e3"], [1_000, 20_000]),
        ("step{step}e3f", ["step1e3f"], [1]),
        ("step{step}.pt", ["step500.pt", "step1,000.pt", "step1,00.pt"], [500, 1_000]),
        ("ckpt_{step}k.pt", ["ckpt_1k.pt", "ckpt_1.5k.pt", "ckpt_0.10k.pt", "ckpt_1.2345k.pt"], [100, 1_000, 1_500]),
        ("v{step}.pt", ["v1.5.pt", "v2.pt"], [2]),
    ],
)
def test_steps_by_name(pattern, names, steps):
    by_step = steps_by_name(pattern, names)
    assert list(by_step) == steps
    assert set(by_step.values()) <= set(names)


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (["moe-1k.pt"], []),
        (["moe-1k.pt", "moe-2k.pt", "moe-4k.pt"], []),
        (["step_1k.pt", "step_2k.pt"], ["step_{step}k.pt"]),
        (["step_1k.pt", "step_1.5k.pt"], ["step_{step}k.pt"]),
        (["gpt-7b-1000.pt"], ["gpt-7b-{step}.pt"]),
        (["gpt-1b-10.pt", "gpt-1b-20.pt"], ["gpt-1b-{step}.pt"]),
        (["gpt-1m-step10.pt", "gpt-2m-step20.pt"], ["gpt-{part1}m-step{step}.pt"]),
        (["model_3kept.pt", "model_4kept.pt"], ["model_{step}kept.pt"]),
    ],
)
def test_guessed_patterns_a_number_of_parameters_is_no_step(names, patterns):
    assert guessed_patterns(names) == patterns


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (["checkpoint-1e3.pt", "checkpoint-2e3.pt"], ["checkpoint-{step}e3.pt"]),
        (["step1e3.pt"], ["step{step}e3.pt"]),
        (["step1e3.pt", "step1e4.pt"], []),
        (["step5e2.pt", "step1e3.pt"], []),
        (["step500.pt", "step1,000.pt"], ["step{step}.pt"]),
        (["2026-01-01.pt", "2026-01-02.pt"], []),
        (["w_20260101.pt", "w_20260102.pt"], []),
        (["2026-01-01_100.pt", "2026-01-02_200.pt"], ["2026-01-{part3}_{step}.pt"]),
        (["step120260101.pt", "step120260102.pt"], ["step{step}.pt"]),
    ],
)
def test_guessed_patterns_power_and_date_not_read_as_their_parts(names, patterns):
    assert guessed_patterns(names) == patterns


@pytest.mark.parametrize(
    ("name", "patterns"),
    [
        ("abcdef123", []),
        ("3f2a1b9cde", []),
        ("model-deadbee1", []),
        ("607a30d783dfa663caf39e06633721c8d4cfcd7e", []),
        ("ed100", ["ed{step}"]),
        ("checkpoint1000000", ["checkpoint{step}"]),
        ("step-0000100", ["step-{step}"]),
    ],
)
def test_guessed_patterns_of_hashes(name, patterns):
    """The digits of the hash of a commit are not a step."""
    assert guessed_patterns([name]) == patterns


@given(st.lists(st.integers(0, 10**9), unique=True, max_size=20), st.integers(0, 12))
@settings(max_examples=50)
def test_steps_by_name_padding_of_names_does_not_matter(steps, digits):
    names = [f"x{step:0{digits}d}.y" for step in steps]
    assert list(steps_by_name("x{step}.y", names)) == sorted(steps)


@pytest.mark.parametrize(
    "pattern", ["main", "step{}", "step{tokens}", "{step}{step}", "step{step!r}", "step{step", "{step}}", "{{step}"]
)
def test_steps_by_name_patterns_that_are_none(pattern):
    with pytest.raises(UserError, match=r"as in step\{step\}"):
        steps_by_name(pattern, ["step1"])


def test_steps_by_name_two_names_of_one_step():
    with pytest.raises(UserError, match="step01 and step1 are both step 1"):
        steps_by_name("step{step}", ["step1", "step01"])
