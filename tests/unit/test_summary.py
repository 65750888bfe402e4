"""The sentences say what the tables say, and nothing more."""

import numpy as np
import pandas as pd
import pytest

from toposcale.analysis import summary

NUMBERS = {"follows_the_loss_low": -0.99, "follows_the_loss_high": -0.9}


def verdict(feature, rho, follows, beyond_p, survives, source="weights"):
    return {
        "model": "pooled",
        "source": source,
        "layer": "all",
        "feature": feature,
        "metric": "validation_loss",
        "follows_the_loss": follows,
        "follows_the_loss_rho": rho,
        **NUMBERS,
        "beyond_the_norm": beyond_p <= 0.05,
        "beyond_the_norm_p": beyond_p,
        "beyond_the_norm_innovation": -0.4,
        "beyond_the_norm_innovation_low": -0.7,
        "beyond_the_norm_innovation_high": -0.1,
        "beyond_the_step": beyond_p <= 0.05,
        "beyond_the_step_p": beyond_p,
        "beyond_the_step_innovation": -0.4,
        "beyond_the_step_innovation_low": np.nan,
        "beyond_the_step_innovation_high": np.nan,
        "survives_correction": survives,
    }


VERDICTS = pd.DataFrame(
    [
        verdict("frobenius_norm", -0.98, True, np.nan, False),
        verdict("h0_total", -0.97, True, 0.4, False),
        verdict("h1_total", -0.5, True, 0.01, True),
        verdict("stable_rank", 0.1, False, 0.9, False),
    ]
)


def answers(verdicts=VERDICTS, forecasts=None, decisions=None):
    forecasts = pd.DataFrame() if forecasts is None else forecasts
    decisions = pd.DataFrame() if decisions is None else decisions
    table = summary.summary(verdicts, forecasts, decisions)
    assert list(table["position"]) == [1, 2, 3, 4, 5, 6]
    return dict(zip(table["question"], table["verdict"] + ". " + table["answer"], strict=True))


def test_who_follows_the_loss_beside_the_norm():
    text = answers()["Which features follow the validation loss?"]
    assert text.startswith("3 of 4, and so does the plain norm. 3 of 4 features rise or fall with it")
    assert "H₀ total persistence of the weights, rank correlation -0.97 (95% interval -0.99 to -0.90)" in text
    assert "the plain norm of the weights has rank correlation -0.98" in text


def test_who_says_something_beyond_the_norm():
    text = answers()["Which say something beyond the norm of the weights?"]
    assert text.startswith("1 of 3. With the norm and the drift taken out of both, 1 of 3 still go")
    assert (
        "first H₁ total persistence of the weights, correlation -0.40 of what is new at each checkpoint "
        "(95% interval -0.70 to -0.10), p = 0.01" in text
    )
    assert "Corrected for the number of tests, 1 of them remains" in text
    assert "H₀" not in text


def test_what_passes_by_chance_alone_is_not_called_an_answer():
    """p = 0.04 among three tests: significant by itself, not after the correction."""
    table = VERDICTS.replace({"beyond_the_norm_p": {0.01: 0.04}})
    text = answers(table)["Which say something beyond the norm of the weights?"]
    assert text.startswith("None shown to. With the norm and the drift taken out of both, 1 of 3 still go")
    assert "none of them remain." in text


FORECAST = "Does topology improve the forecast of the final loss?"


def evaluation(gain, low, high, runs=12, p=0.01):
    base = {"fraction": 0.2, "baseline": "joint", "n_forecasts": runs, "interval_coverage": 0.9}
    return pd.DataFrame(
        [
            base | {"method": "joint", "mae": 0.1, "improvement_percent": 0.0},
            base
            | {"method": "power_law", "mae": 0.3, "improvement_percent": -200.0, "interval_coverage": 0.2},
            base
            | {"method": "combined", "mae": 0.2, "improvement_percent": gain, "wilcoxon_p": p}
            | {"improvement_low": low, "improvement_high": high},
            {**base, "fraction": 0.5, "method": "combined", "mae": 0.01, "improvement_percent": 99.0},
            {**base, "fraction": 0.0, "method": "joint", "mae": 0.7, "improvement_percent": 0.0},
        ]
    )


@pytest.mark.parametrize(
    ("gain", "low", "high", "verdict", "said"),
    [
        (30.0, 10.0, 45.0, "Yes", "comes 30% closer (95% interval 10 to 45)"),
        (30.0, -10.0, 45.0, "Not shown", "comes 30% closer (95% interval -10 to 45)"),
        (
            -5.0,
            -20.0,
            10.0,
            "Not shown",
            "its mean with the power law comes 5% further off (95% interval -10 to 20)",
        ),
        (-9.0, -20.0, -2.0, "No, it makes it worse", "comes 9% further off (95% interval 2 to 20)"),
    ],
)
def test_topology_is_held_against_the_best_forecast_without_it(gain, low, high, verdict, said):
    text = answers(forecasts=evaluation(gain, low, high))[FORECAST]
    assert text.startswith(verdict + ".")
    assert (
        "the best forecast without topology, the joint law of all sizes, misses the final loss by 0.100"
        in text
    )
    assert said in text
    assert "99" not in text


def test_one_of_several_methods_that_passes_by_chance_is_no_yes():
    """p = 0.04 of the best of two methods is 0.08 after Holm's correction."""
    table = evaluation(30.0, 10.0, 45.0, p=0.04)
    other = table[table["method"] == "combined"].assign(method="topology_rate", wilcoxon_p=0.5)
    assert answers(forecasts=table)[FORECAST].startswith("Yes.")
    assert answers(forecasts=pd.concat([table, other]))[FORECAST].startswith("Not shown.")


def test_below_ten_runs_there_is_no_verdict():
    assert answers(forecasts=evaluation(30.0, 10.0, 45.0, runs=9))[FORECAST].startswith("Not tested: 9 runs.")


def test_the_forecast_to_trust_is_named_with_its_coverage_and_bad_intervals_are_marked():
    text = answers(forecasts=evaluation(0.0, -1.0, 1.0))["Which forecast of the final loss can be trusted?"]
    assert text.startswith(
        "The joint law of all sizes. From the first 20% of training it misses the final loss by 0.100"
    )
    assert "holds it in 90% of them" in text
    assert "The intervals of the power law hold the truth in fewer than 80%" in text


def policies(count, gain, low, high):
    base = {"fraction": 0.2, "n_decisions": count, "n_modelled": 4}
    return pd.DataFrame(
        [
            base
            | {"policy": "advice", "regret": 0.01, "regret_low": 0.0, "regret_high": 0.02}
            | {"against_finish": gain, "against_finish_low": low, "against_finish_high": high},
            base | {"policy": "always_finish", "regret": 0.01 + gain, "regret_low": 0.0, "regret_high": 0.5},
            base | {"policy": "stop_now", "regret": 0.2, "regret_low": 0.1, "regret_high": 0.3},
        ]
    )


@pytest.mark.parametrize(
    ("count", "low", "high", "verdict"),
    [
        (12, 0.01, 0.05, "Yes, against always finishing."),
        (12, -0.01, 0.05, "Not shown."),
        (12, -0.05, -0.01, "No, it would have cost loss."),
        (9, 0.01, 0.05, "Not tested: 9 decisions."),
    ],
)
def test_the_advice_helps_where_it_beats_always_finishing_over_ten_decisions(count, low, high, verdict):
    text = answers(decisions=policies(count, 0.03, low, high))["Would following the advice have helped?"]
    assert text.startswith(verdict)
    assert f"rests on {count} decisions, in 4 of which the truth is a law" in text
    assert "always stopping 0.200 (95% interval 0.100 to 0.300)" in text


def test_a_run_of_loss_curves_leads_with_the_runs_under_way():
    candidates = pd.DataFrame(
        [
            {
                "model": "a",
                "fraction": 0.7,
                "candidate": "finish",
                "probability": 0.95,
                "at_stake": 0.0,
                "is_live": True,
            },
            {
                "model": "a",
                "fraction": 0.7,
                "candidate": "start b",
                "probability": 0.05,
                "at_stake": 0.2,
                "is_live": True,
            },
        ]
    )
    empty = pd.DataFrame()
    table = summary.summary(VERDICTS[:0], empty, empty, candidates)
    assert table["question"].iloc[0] == "What should be done with the runs under way?"
    assert table["verdict"].iloc[0] == "Finish"
    assert "a at 70%: finish with 95%" in table["answer"].iloc[0]


@pytest.mark.parametrize("question", range(6))
def test_what_cannot_be_answered_says_so(question):
    empty = VERDICTS[:0]
    text = list(answers(verdicts=empty).values())[question]
    assert text.startswith("Could not be tested. ")
    assert ". No " in text
