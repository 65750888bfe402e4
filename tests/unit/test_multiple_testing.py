"""Corrections against hand-made and scipy's values."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from toposcale.statistics.multiple_testing import benjamini_hochberg, holm


def test_by_hand():
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.5])
    np.testing.assert_allclose(holm(p), [0.04, np.nan, 0.09, 0.09, 0.5], rtol=1e-12)
    # Sorted .01 .03 .04 .5, times 4/rank: .04 .06 .0533 .5; running minimum from the right: .04 .0533 .0533
    # .5
    np.testing.assert_allclose(benjamini_hochberg(p), [0.04, np.nan, 0.16 / 3, 0.16 / 3, 0.5], rtol=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_benjamini_hochberg_agrees_with_scipy(p):
    np.testing.assert_allclose(benjamini_hochberg(p), scipy.stats.false_discovery_control(p), rtol=1e-12)


def test_shape_is_kept_and_nothing_tested_is_nothing_found():
    assert benjamini_hochberg(np.full((2, 3), 0.2)).shape == (2, 3)
    assert np.isnan(benjamini_hochberg([np.nan, np.nan])).all()
    with pytest.raises(ValueError, match="p_values"):
        holm([0.5, 1.5])
