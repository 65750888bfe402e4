"""Runs tested together: shared flips counted by hand, weights, runs that only some can test."""

import itertools

import numpy as np
import pytest

from toposcale.statistics.prewhitening import SharedFlips, residual_test

STEPS = 10.0 * np.arange(17)


def of_a_run(rng):
    return residual_test(rng.standard_normal((2, 17)), rng.standard_normal((1, 17)))


def test_flips_shared_by_two_runs_are_those_of_counting():
    rng = np.random.default_rng(0)
    first, second = of_a_run(rng), of_a_run(rng)
    pool = SharedFlips(2, STEPS)
    for test in (first, second):
        pool.add(test, STEPS)
    products = first.products[:, 0] + second.products[:, 0]
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=products.shape[1])))
    for row in range(2):
        statistic = abs(first.statistic[row, 0] + second.statistic[row, 0])
        counted = (np.abs(signs @ products[row]) >= statistic - 1e-9).mean()
        assert pool.p_values()[row] == pytest.approx(counted, rel=0.2)


def test_two_seeds_of_half_the_weight_are_one_run():
    rng = np.random.default_rng(1)
    test, other = of_a_run(rng), of_a_run(rng)
    once, twice = SharedFlips(2, STEPS), SharedFlips(2, STEPS)
    once.add(test, STEPS)
    for _ in range(2):
        twice.add(test, STEPS, weight=0.5)
    for pool in (once, twice):
        pool.add(other, STEPS)
    np.testing.assert_allclose(once.p_values(), twice.p_values())


def test_a_pair_that_no_run_tested_is_not_tested():
    rng = np.random.default_rng(2)
    pool = SharedFlips(3, STEPS)
    pool.add(of_a_run(rng), STEPS, rows=[0, 2])
    assert np.isnan(pool.p_values()[1])
    assert np.isfinite(pool.p_values()[[0, 2]]).all()
