"""The testable segment: where it lies, and why there is none."""

import numpy as np
import pytest

from toposcale.statistics.prewhitening import testable_segment as segment_of


def test_the_segment_begins_at_twice_the_warmup():
    steps = np.arange(0, 601, 12)
    found = segment_of(steps, 60)
    assert steps[found.start] == 120
    assert (found.stop, found.reason) == (len(steps), "")


def test_an_uneven_last_checkpoint_is_left_out():
    steps = [*range(0, 600, 40), 610]
    found = segment_of(steps, 50)
    assert [steps[found.start], steps[found.stop - 1]] == [120, 560]


def test_logarithmic_steps_before_even_ones_are_left_out():
    """The steps of Pythia: 154 of them, even from 1,000 on; its warm-up is 1,430."""
    steps = [0, *(2**k for k in range(10)), *range(1000, 143001, 1000)]
    assert len(steps) == 154
    found = segment_of(steps, 1430)
    assert [steps[found.start], steps[found.stop - 1]] == [3000, 143000]
    assert found.reason == ""


@pytest.mark.parametrize(
    ("steps", "warmup", "reason"),
    [
        ([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000], 0, "3 evenly spaced checkpoints from step 0 on"),
        (range(0, 601, 100), 60, "5 evenly spaced checkpoints from step 120 on"),
        (range(0, 601, 12), None, "the warm-up is not known"),
        (range(0, 601, 12), float("nan"), "the warm-up is not known"),
        (range(0, 101, 10), 60, "0 evenly spaced checkpoints from step 120 on"),
    ],
)
def test_what_cannot_be_tested_says_why(steps, warmup, reason):
    assert segment_of(list(steps), warmup).reason.startswith(reason)


def test_the_longest_of_several_segments_is_taken():
    steps = [*range(0, 200, 10), *range(200, 1500, 50)]
    found = segment_of(steps, 0)
    assert [steps[found.start], steps[found.stop - 1]] == [200, 1450]


@pytest.mark.parametrize("steps", [[100] * 20, [*range(20), 5], [*range(20), float("nan")]])
def test_steps_that_do_not_increase_are_an_error(steps):
    with pytest.raises(ValueError, match=r"^steps: not increasing$"):
        segment_of(steps, 0)
