"""Runs of no published family: the intervals of the joint law cover the ends of random Chinchilla laws with annealing."""

import pandas as pd
import pytest

from studies import small_tables
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


def test_random_laws_of_the_table_are_covered_at_each_share():
    """All 600, of which the others here are some."""
    table = pd.read_csv(small_tables.TABLES / "random_laws.csv").query("laws == 'all'").set_index("share")
    assert table["forecasts"].to_dict() == dict.fromkeys(SHARES, 600)
    assert (table["coverage"] >= 0.9).all()


def test_the_mean_error_of_random_laws_is_below_a_twentieth_of_a_nat(judged):
    assert summary(judged)["mean_error"] < 0.05
