"""The rule of the largest change by hand, and planted change points."""

import numpy as np
import pytest

from toposcale.statistics.changes import change_points, largest_change


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


def test_jumps_and_kinks_are_found_under_a_drift():
    rng = np.random.default_rng(0)
    time = np.arange(51.0)
    noise = 0.2 * rng.standard_normal(51)
    jump = 0.1 * time + 4.0 * (time >= 20) + noise
    np.testing.assert_array_equal(change_points(jump), [20])
    kink = np.where(time < 30, time, 30 - 0.5 * (time - 30)) + noise
    found = change_points(kink)
    assert len(found) == 1
    assert abs(found[0] - 30) <= 2


def test_a_steady_drift_with_noise_has_no_change_point():
    rng = np.random.default_rng(1)
    series = 0.5 * np.arange(51) + rng.standard_normal((100, 51))
    # A false alarm in 100 is about what the penalty gives on white noise; five are far beyond it.
    assert sum(len(change_points(row)) > 0 for row in series) <= 5


def test_exact_pieces_and_constants():
    exact = np.concatenate([np.arange(20.0), 19 - 3 * np.arange(1.0, 21)])
    # The corner belongs to both lines, so either side of it may begin the new piece.
    assert len(change_points(exact)) == 1
    assert change_points(exact)[0] in (19, 20)
    assert len(change_points(np.full(30, 2.0))) == 0
    assert len(change_points([1.0, 2.0])) == 0
    with pytest.raises(ValueError, match="values"):
        change_points([1.0, np.nan, 2.0])


def partitions(start, n):
    """Yield all ways to cut points from `start` to n into segments of three or more, as lists of where these begin."""
    if n - start >= 3:
        yield [start]
    for later in range(start + 3, n - 2):
        yield from ([start, *begins] for begins in partitions(later, n))


@pytest.mark.parametrize("seed", range(10))
def test_no_other_partition_into_lines_costs_less(seed):
    rng = np.random.default_rng(seed)
    series = rng.standard_normal(14) + 4 * (np.arange(14) >= rng.integers(3, 11))
    scaled = (series - series.mean()) / np.ptp(series)
    noise = np.median(np.abs(np.diff(scaled, 2))) / 0.6745 / np.sqrt(6.0)

    def cost(begins):
        pieces = np.split(scaled, begins[1:])
        squares = [np.polyfit(np.arange(len(y)), y, 1, full=True)[1].sum() for y in pieces]
        return sum(squares) + 6.0 * np.log(14) * noise**2 * len(pieces)

    assert [0, *change_points(series)] == min(partitions(0, 14), key=cost)
