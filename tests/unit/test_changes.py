"""The rule of the largest change by hand."""

import numpy as np
import pytest

from toposcale.analysis.transitions import largest_change


def test_the_papers_rule_by_hand():
    # Changes 1, 4, -0.5, 0.3, 2: the largest is 4 and ends at step 200; below 0.4 first at 0.3, ending at
    # step 400.
    found = largest_change([0, 100, 200, 300, 400, 500], [0.0, 1.0, 5.0, 4.5, 4.8, 6.8])
    assert (found.step, found.change, found.settled_step) == (200, 4.0, 400)


def test_the_papers_rule_at_its_edges():
    assert np.isnan(largest_change([0, 1, 2], [3.0, 3.0, 3.0]).step)
    never = largest_change([0, 1, 2], [0.0, 1.0, 2.0])
    assert never.step == 1
    assert np.isnan(never.settled_step)
    with pytest.raises(ValueError, match="increasing"):
        largest_change([0, 2, 1], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="finite"):
        largest_change([0, 1], [1.0, np.nan])
