"""Runs of no published family: the intervals of the joint law cover the ends of random Chinchilla laws with annealing."""

import pytest

from studies.random_laws import SHARES, forecasts, summary

pytestmark = pytest.mark.xdist_group("random laws")
LAWS = 40


@pytest.fixture(scope="module")
def judged():
    return forecasts(range(LAWS))


def test_few_random_laws_are_refused(judged):
    assert summary(judged)["forecasts"] == 3 * LAWS
    assert summary(judged)["refused"] < 0.1


@pytest.mark.parametrize("share", SHARES)
def test_the_ends_of_random_laws_are_covered_at_each_share(judged, share):
    assert summary(judged[judged["share"] == share])["coverage"] >= 0.9


def test_the_mean_error_of_random_laws_is_below_a_twentieth_of_a_nat(judged):
    assert summary(judged)["mean_error"] < 0.05
