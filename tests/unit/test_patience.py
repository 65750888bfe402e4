"""Patience rules by hand, and that they look at nothing later."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toposcale.analysis.early_stopping import MODES, patience_stop


def test_by_hand():
    loss = [5.0, 4.0, 3.0, 3.5, 3.2, 2.9, 3.0, 3.0, 3.0]
    assert patience_stop(loss, 2, mode="lower") == 4
    assert patience_stop(loss, 3, mode="lower") == 8
    assert patience_stop(loss, 4, mode="lower") is None
    assert patience_stop(loss, 2, mode="higher") == 2
    assert patience_stop([1.0, 2.0, 0.5, 3.0, 0.4], 1, mode="either") is None
    assert patience_stop([1.0, 2.0, 0.5, 1.0, 1.5], 2, mode="either") == 4


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30), st.integers(1, 4), st.sampled_from(MODES))
def test_later_values_do_not_matter(values, patience, mode):
    stop = patience_stop(values, patience, mode=mode)
    if stop is not None:
        changed = values[: stop + 1] + [v * -3 + 7 for v in values[stop + 1 :]]
        assert patience_stop(changed, patience, mode=mode) == stop
        assert patience_stop(values[:stop], patience, mode=mode) is None


@pytest.mark.parametrize(
    ("values", "patience", "mode", "name"),
    [
        ([1.0, np.nan], 1, "lower", "values"),
        ([], 1, "lower", "values"),
        ([1.0], 0, "lower", "patience"),
        ([1.0], 1, "up", "mode"),
    ],
)
def test_bad_calls_name_the_argument(values, patience, mode, name):
    with pytest.raises(ValueError, match=name):
        patience_stop(values, patience, mode=mode)
