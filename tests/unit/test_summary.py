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
    assert list(table["position"]) == [1, 2, 3, 4, 5]
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


def test_forecasts_are_held_against_the_power_law():
    methods = pd.DataFrame(
        [
            {"fraction": 0.2, "method": "power_law", "mae": 0.1, "improvement_percent": 0.0, "n_models": 5},
            {"fraction": 0.2, "method": "combined", "mae": 0.2, "improvement_percent": -100.0, "n_models": 5}
            | {"improvement_low": -150.0, "improvement_high": -20.0},
            {"fraction": 0.5, "method": "combined", "mae": 0.01, "improvement_percent": 90.0, "n_models": 5},
        ]
    )
    text = answers(forecasts=methods)["Does topology improve the forecast of the final loss?"]
    assert text.startswith(
        "No, it makes it worse. From the first 20% of training, a power law on the loss alone misses"
    )
    assert "misses the final loss by 0.100" in text
    assert "its mean with the power law comes 100% further off (95% interval 20 to 150)" in text
    assert "90" not in text


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
        (-5.0, np.nan, np.nan, "Not shown", "5% further off (no interval: too few models)"),
    ],
)
def test_the_interval_decides_whether_topology_improves_the_forecast(gain, low, high, verdict, said):
    base = {"fraction": 0.2, "mae": 0.1, "n_models": 5}
    methods = pd.DataFrame(
        [
            base | {"method": "power_law", "improvement_percent": 0.0},
            base
            | {
                "method": "combined",
                "improvement_percent": gain,
                "improvement_low": low,
                "improvement_high": high,
            },
        ]
    )
    text = answers(forecasts=methods)["Does topology improve the forecast of the final loss?"]
    assert text.startswith(verdict + ".")
    assert said in text


def test_advice_saves_compute_if_its_interval_says_so():
    row = {"fraction": 0.2, "policy": "power_law", "compute_saved_percent": 60.0, "regret": 0.01}
    ends = {
        "compute_saved_percent_low": 40.0,
        "compute_saved_percent_high": 70.0,
        "regret_low": 0.0,
        "regret_high": 0.02,
    }
    question = "Would the advice have saved compute?"
    sure = answers(decisions=pd.DataFrame([row | ends]))[question]
    assert sure.startswith("Yes, most by the power law on the loss.")
    assert "the power law on the loss would have saved 60% of the compute (95% interval 40 to 70)" in sure
    assert "for 0.010 in loss (95% interval 0.000 to 0.020)" in sure
    unsure = answers(decisions=pd.DataFrame([row | dict.fromkeys(ends, np.nan)]))[question]
    assert unsure.startswith("Not shown.")


@pytest.mark.parametrize("question", range(5))
def test_what_cannot_be_answered_says_so(question):
    empty = VERDICTS[:0]
    text = list(answers(verdicts=empty).values())[question]
    assert text.startswith("Could not be tested. ")
    assert ". No " in text
