"""The advice in sentences, from decisions whose numbers are planted."""

import numpy as np
import pytest

from toposcale.forecasting.decision import Candidate, Decision, Option
from toposcale.forecasting.family_law import Target
from toposcale.forecasting.prediction import Prediction
from toposcale.forecasting.words import percent, table, what_to_do


def option(name, probability, at_stake, gain=(0.0, 0.0, 0.0)):
    candidate = Candidate(name, Target(1e6, np.ones(2), 1), 1, 1e15)
    return Option(candidate, Prediction(3.0, 2.9, 3.1), Prediction(*gain), probability, at_stake)


def decision(*options):
    starts = [o.probability for o in options if o.candidate.is_start]
    return Decision(options, sum(starts))


def test_a_choice_that_leans_says_what_it_costs_if_it_is_wrong():
    options = (option("start b", 0.5, 0.01, (0.04, -0.02, 0.11)), option("start c", 0.3, 0.02))
    text = what_to_do(decision(*options, option("finish", 0.2, 0.05)), ["its probability is 50%"])
    assert text == (
        "Leans to start b (50%): 0.040 nats better than finishing (-0.020 to 0.110); if that is wrong it costs 0.020 "
        "nats. That some start is better than finishing: 80%."
    )


def test_a_sure_choice_says_how_sure():
    text = what_to_do(decision(option("finish", 0.95, 0.01), option("start b", 0.05, 0.2)))
    assert text == "Finish; sure: 95%."
    worse = option("start b", 0.9, 0.01, (-0.03, -0.05, 0.01))
    text = what_to_do(decision(worse, option("extend", 0.1, 0.1)))
    assert "0.030 nats worse than finishing (-0.010 to 0.050)" in text


def test_one_candidate_alone_is_no_choice_and_the_sentence_says_what_is_needed():
    text = what_to_do(decision(option("finish", 1.0, 0.0)), ["nothing to choose"])
    assert text.startswith("Finish: there is nothing to choose between.")
    assert "100%" not in text
    assert "`kind: planned`" in text
    assert "decision.sizes" in text


@pytest.mark.parametrize(("share", "text"), [(1.0, "over 99%"), (0.0, "below 1%"), (0.63, "63%")])
def test_no_probability_is_called_certain(share, text):
    assert percent(share) == text


def test_the_table_has_a_line_an_option_under_its_titles():
    options = decision(option("finish", 0.9, 0.01), option("start b", 0.1, 0.2, (0.1, 0.0, 0.2)))
    title, finish, start = table(options, 1e18)
    assert title.split("  ")[-1].strip() == "FLOP"
    assert finish.split()[0] == "finish"
    assert "0.100 (0.000 to 0.200)" in start
