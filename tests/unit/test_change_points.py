"""The paper's rule by hand, planted change points, and chance coincidence."""

import numpy as np
import pytest

from toposcale.statistics.change_points import change_points, coincidence, largest_change


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


def mask(n, *places):
    result = np.zeros(n, dtype=bool)
    result[list(places)] = True
    return result


def test_coincidence_by_hand():
    # One change point each, the same place, 10 checkpoints, tolerance 0: 1 of 10 shifts does as well.
    assert coincidence([mask(10, 4)], [mask(10, 4)], tolerance=0) == (
        1.0,
        pytest.approx(0.1),
        pytest.approx(0.1),
    )
    # Tolerance 1: three of ten shifts.
    assert coincidence([mask(10, 4)], [mask(10, 5)]) == (1.0, pytest.approx(0.3), pytest.approx(0.3))
    # Ends are not neighbours.
    assert coincidence([mask(10, 0)], [mask(10, 9)])[0] == 0.0


def test_chance_coincidences_are_seldom_called_more():
    rng = np.random.default_rng(2)
    p_values = []
    for _ in range(400):
        drawn = rng.random((2, 5, 51)) < 0.08
        p_values.append(coincidence(list(drawn[0]), list(drawn[1]))[2])
    # The test is exact, so at most 5% plus three binomial standard errors.
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_coincidence_wants_matching_models():
    with pytest.raises(ValueError, match="one mask per model"):
        coincidence([mask(5, 1)], [])
    with pytest.raises(ValueError, match="length"):
        coincidence([mask(5, 1)], [mask(6, 1)])
