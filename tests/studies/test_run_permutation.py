"""Permutations of runs within configurations, and the test of prewhitened residuals over them: exact small cases and
false-positive rates."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from scipy.stats import spearmanr

from studies.run_permutation import lagged, pair_correlations, permute_pairs, within_configurations
from toposcale.statistics.prewhitening import prewhiten


def test_all_permutations_stay_in_their_configurations_and_the_first_changes_nothing():
    orders, exact = within_configurations(["a", "b", "a", "b", "b"])
    assert exact
    assert len(orders) == 2 * 6
    assert orders[0].tolist() == [0, 1, 2, 3, 4]
    expected = set()
    for first, second in product(permutations([0, 2]), permutations([1, 3, 4])):
        expected.add((first[0], second[0], first[1], second[1], second[2]))
    assert {tuple(row) for row in orders.tolist()} == expected


def test_more_permutations_than_can_be_counted_are_drawn_within_configurations():
    configurations = ["a"] * 9 + ["b"] * 2
    orders, exact = within_configurations(configurations, draws=500, seed=3)
    assert not exact
    assert orders.shape == (501, 11)
    assert orders[0].tolist() == list(range(11))
    assert (np.sort(orders[:, :9]) == np.arange(9)).all()
    assert (np.sort(orders[:, 9:]) == [9, 10]).all()
    np.testing.assert_array_equal(orders, within_configurations(configurations, draws=500, seed=3)[0])


def test_run_permutation_of_three_runs_counted_by_hand():
    table = np.array([[0.9, 0.1, 0.2], [0.0, 0.8, 0.1], [0.3, -0.2, 0.7]])
    test = permute_pairs(table, ["a", "a", "a"])
    means = [np.mean([table[i, order[i]] for i in range(3)]) for order in permutations(range(3))]
    assert test.correlation == pytest.approx(0.8)
    assert test.null_expectation == pytest.approx(np.mean(means))
    assert test.n_permutations == 6
    assert test.exact
    far = np.abs(np.array(means) - np.mean(means))
    assert test.p == pytest.approx((far >= abs(0.8 - np.mean(means)) - 1e-12).mean()) == pytest.approx(1 / 6)


@pytest.mark.parametrize("table", [np.empty((0, 0)), np.ones(3), np.ones((2, 3))])
def test_run_permutation_refuses_what_is_no_table_of_the_runs(table):
    with pytest.raises(ValueError, match=r"^configurations: "):
        permute_pairs(table, ["a"] * len(table))


def test_run_permutation_pairs_only_runs_of_one_configuration():
    table = np.full((4, 4), np.nan)  # correlations between configurations are never looked at
    table[:2, :2], table[2:, 2:] = [[0.9, 0.0], [0.0, 0.9]], [[0.5, 0.1], [0.2, 0.5]]
    test = permute_pairs(table, ["a", "a", "b", "b"])
    # The means of the four pairings: 0.7, 0.525, 0.25, 0.075; their mean 0.3875.
    assert test.n_permutations == 4
    assert test.correlation == pytest.approx(0.7)
    assert test.p == pytest.approx(0.5)


def test_pair_correlations_are_those_of_scipy():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 2, 12)), rng.standard_normal((3, 1, 12))
    found = pair_correlations(x, y)
    for feature, i, j in product(range(2), range(3), range(3)):
        assert found[feature, 0, i, j] == pytest.approx(spearmanr(x[i, feature], y[j, 0])[0])


def test_what_all_runs_share_is_not_found_and_what_is_a_runs_own_is():
    rng = np.random.default_rng(1)
    shared = 3.0 * rng.standard_normal(30)
    x = rng.standard_normal((8, 1, 30)) + shared
    y = rng.standard_normal((8, 1, 30)) + shared
    test = permute_pairs(pair_correlations(x, y), ["a"] * 8)
    assert test.correlation[0, 0] > 0.7
    assert test.null_expectation[0, 0] > 0.7
    assert test.p[0, 0] > 0.05
    own = permute_pairs(pair_correlations(x, 0.6 * (x - shared) + y), ["a"] * 8)
    assert own.p[0, 0] < 0.001
    assert own.exact


def test_run_permutation_holds_its_false_positive_rate_with_controls_of_each_run():
    """Half of the dimensions go to controls of a run's own; without the projection more is rejected."""
    rng = np.random.default_rng(2)
    runs, m, n_controls, trials = 6, 16, 6, 250
    controls = rng.standard_normal((runs, n_controls, m))
    x, y = rng.standard_normal((runs, trials, m)), rng.standard_normal((runs, trials, m))
    for run in range(runs):
        basis = np.linalg.qr(controls[run].T)[0]
        x[run] -= x[run] @ basis @ basis.T
        y[run] -= y[run] @ basis @ basis.T

    def rejected(given):
        p = permute_pairs(pair_correlations(x, y[:, :4], given), ["a"] * runs).p
        return (p <= 0.05).mean()

    assert rejected(controls) < 0.075
    assert rejected(None) > rejected(controls)


def test_lagged_is_what_residuals_are_orthogonal_to():
    """The trend and the control, now and before: white noise, of which no past is taken out, is orthogonal to all of it."""
    rng = np.random.default_rng(9)
    control, series = rng.standard_normal((1, 40)), rng.standard_normal((200, 40))
    found = prewhiten(series, control)
    white = found.values[found.n_fitted == 4]  # three of the trend and one of the control
    given = lagged(control)
    now = given[: 3 + 1]
    assert len(white) > 50
    np.testing.assert_allclose(white @ now.T, 0, atol=1e-9)
    assert len(given) == 3 + 1 + found.start
