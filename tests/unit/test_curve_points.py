"""What a law reads of a curve: medians in bins."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from toposcale.forecasting.runs.curves import bin_medians


@given(st.lists(st.floats(0.1, 20), min_size=2, max_size=50))
def test_medians_of_a_bin_are_those_of_numpy_to_the_bit(losses):
    steps = np.cumsum(np.arange(1.0, len(losses) + 1))
    at, values = bin_medians(steps, np.array(losses), 1)
    assert (at.tolist(), values.tolist()) == ([np.median(steps)], [np.median(losses)])


def test_bins_of_one_two_and_three_rows():
    at, values = bin_medians(np.array([1.0, 10, 20, 100, 300, 900]), np.array([9.0, 5, 4, 1, 3, 2]), 3)
    assert at.tolist() == [1, 15, 300]
    assert values.tolist() == [9, 4.5, 2]
