"""The advice in sentences, from decisions whose numbers are planted."""

import numpy as np
import pytest

from made_runs import training_run
from toposcale.forecasting.decision.advice import advise_on
from toposcale.forecasting.decision.candidates import (
    Candidate,
    CandidateKind,
    Decision,
    DroppedCandidate,
    WeighedCandidate,
)
from toposcale.forecasting.decision.reasons import NO_CHOICE
from toposcale.forecasting.decision.wording import (
    candidate_lines,
    known_of_small_run,
    percent,
    schedule_clause,
    what_to_do,
)
from toposcale.forecasting.laws.power_law import measured_near
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.runs.training_run import Target


def weighed(name, probability, expected_regret, gain=(0.0, 0.0, 0.0)):
    kind = CandidateKind.SCALE_UP if "scale up" in name else CandidateKind(name)
    candidate = Candidate(kind, name, Target(1e6, np.ones(2), 1), 1, 1e15)
    return WeighedCandidate(candidate, Prediction(3.0, 2.9, 3.1), Prediction(*gain), probability, expected_regret)


def decision(*candidates):
    return Decision(candidates)


@pytest.mark.parametrize(("last", "said"), [(3.36e-18, "0 at the end"), (1e-4, "0.0001 at the end")])
def test_the_rounding_of_a_last_rate_of_zero_is_zero(last, said):
    training = training_run("one", 1e6, 1e5, 100, learning_rates=np.linspace(1e-3, last, 101))
    assert schedule_clause(training).startswith(f"learning rate 0.001 now, {said}")


def test_a_choice_that_is_not_confident_says_its_expected_regret():
    candidates = (weighed("scale up to b", 0.5, 0.01, (0.04, -0.02, 0.11)), weighed("scale up to c", 0.3, 0.02))
    text = what_to_do(decision(*candidates, weighed("continue", 0.2, 0.05)), ["its probability is 50%"])
    assert text == (
        "Scale up to b: 0.040 nats better than continuing (-0.020 to 0.110); 50%, not confident; expected regret 0.010 "
        "nats. Low confidence: its probability is 50%. Some other size beats continuing: 80%."
    )


def test_a_choice_below_half_is_no_clear_choice():
    candidates = (weighed("scale up to b", 0.4, 0.01, (0.04, -0.02, 0.11)), weighed("continue", 0.35, 0.012))
    text = what_to_do(decision(*candidates, weighed("extend", 0.25, 0.05)), ["its probability is 40%", "early"])
    assert text == (
        "No clear choice: scale up to b has the least expected regret (40%; expected regret 0.010 nats). "
        "Low confidence: its probability is 40%; early."
    )


def test_a_sure_choice_says_how_sure():
    text = what_to_do(decision(weighed("continue", 0.95, 0.01), weighed("scale up to b", 0.05, 0.2)))
    assert text == "Continue; 95%, confident."
    worse = weighed("scale up to b", 0.9, 0.01, (-0.03, -0.05, 0.01))
    text = what_to_do(decision(worse, weighed("extend", 0.1, 0.1)))
    assert "0.030 nats worse than continuing (-0.010 to 0.050)" in text


def test_what_to_do_with_one_candidate():
    text = what_to_do(decision(weighed("continue", 1.0, 0.0)), [NO_CHOICE, "the schedule is unknown"])
    assert text.count("nothing to choose") == 1
    assert text.endswith("Low confidence: the schedule is unknown.")
    assert text.startswith("Continue: there is nothing to choose between.")
    assert "100%" not in text
    assert "`kind: planned`" in text
    assert "decision.multiples" in text


def test_what_was_left_out_is_said_with_its_reason():
    candidates = (weighed("continue", 0.95, 0.01), weighed("scale up to b", 0.05, 0.2))
    dropped = (DroppedCandidate("scale up to c", "too few steps"), DroppedCandidate("extend", "too many steps"))
    for some, reasons in ((candidates, ()), (candidates, ["early"]), (candidates[:1], [NO_CHOICE])):
        text = what_to_do(decision(*some)._replace(dropped=dropped), reasons)
        assert "Not weighed: scale up to c: too few steps; extend: too many steps." in text


@pytest.mark.parametrize(("share", "text"), [(1.0, "over 99%"), (0.0, "below 1%"), (0.63, "63%")])
def test_no_probability_is_called_certain(share, text):
    assert percent(share) == text


def test_the_table_has_a_line_an_option_under_its_titles():
    candidates = decision(weighed("continue", 0.9, 0.01), weighed("scale up to b", 0.1, 0.2, (0.1, 0.0, 0.2)))
    title, going_on, start = candidate_lines(candidates, 1e18)
    assert title.split("  ")[-1].strip() == "FLOP"
    assert (going_on.split()[0], going_on.split()[-1]) == ("continue", "1e+15")
    assert "0.100 (0.000 to 0.200)" in start


def small_run(n_parameters, last, **options):
    """A run of 4,000 steps of 2,048 tokens that has come to a step, and falls by a power law."""
    steps = np.arange(20, last + 1, 20)
    rates = np.full(4001, 1e-3)
    return training_run(
        "small", n_parameters, 2048, 4000, learning_rates=rates, steps=steps, losses=2.5 + 20 * steps**-0.5, **options
    )


def test_known_of_small_run_has_the_power_law_with_its_measured_coverage():
    """The run is too young for the joint law: two tokens a parameter are 22,000 steps."""
    advice = advise_on(small_run(22e6, 2000))
    assert "are too few for a forecast" in advice.no_advice_because
    power_law, comparison = known_of_small_run(advice.run, advice.law, advice.no_advice_because)
    row = measured_near(22e6, 0.5)
    assert row["share"] == 0.5
    assert power_law.startswith("a power law through its losses ends at 2.816 (")
    assert (
        f"at 50% of the steps of 28 published runs of 22M to 23M parameters, of 2 sources, {row['coverage']:.0%} of"
        in power_law
    )
    assert comparison.startswith("`toposcale curves` compares")
    assert "  Known all the same:\n    - a power law" in str(advice)


def test_known_of_small_run_names_no_interval_where_none_was_measured():
    for n_parameters, last in ((5e6, 2000), (22e6, 400)):
        advice = advise_on(small_run(n_parameters, last))
        power_law, _ = known_of_small_run(advice.run, advice.law, advice.no_advice_because)
        end, unknown = power_law.split("; ")
        assert float(end.removeprefix("a power law through its losses ends at ")) == pytest.approx(2.816, abs=0.002)
        assert unknown == "how far off such ends are was not measured at this size and share of the steps"


def test_known_of_small_run_says_from_which_step_on():
    run = small_run(50e3, 60)
    assert next(known_of_small_run(run, None, "its log ends in a spike")).startswith(
        "a forecast is made from step 120 on"
    )
    assert "step 120" not in " ".join(known_of_small_run(run, None, "ask again from step 120 on"))


def test_known_of_small_run_is_silent_from_25m_parameters_on():
    assert list(known_of_small_run(small_run(25e6, 2000), None, "")) == []
    assert list(known_of_small_run(small_run(22e6, 4000), None, "")) == []
    assert "Known all the same" not in str(advise_on(small_run(25e6, 2000)))
