"""Runs of no published family: the intervals of the joint law cover the ends of random Chinchilla laws with annealing."""

import pytest

from studies.random_laws import forecasts, summary

pytestmark = pytest.mark.xdist_group("random laws")
LAWS = 60


@pytest.fixture(scope="module")
def judged():
    return summary(forecasts(range(LAWS)))


def test_few_random_laws_are_refused(judged):
    assert judged["forecasts"] == 3 * LAWS
    assert judged["refused"] < 0.1


def test_the_ends_of_random_laws_are_covered(judged):
    assert judged["coverage"] >= 0.93


def test_their_mean_error_is_at_most_a_twentieth_of_a_nat(judged):
    assert judged["mean_error"] < 0.05
