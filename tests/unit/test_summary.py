"""The sentences say what the tables say, and nothing more."""

import numpy as np
import pandas as pd
import pytest

from toposcale import summary

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
        "beyond_the_step": beyond_p <= 0.05,
        "beyond_the_step_p": beyond_p,
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
    return dict(zip(table["question"], table["answer"], strict=True))


def test_who_follows_the_loss_beside_the_norm():
    text = answers()["Which features follow the validation loss?"]
    assert text.startswith("3 of 4 features do")
    assert "h0_total of the weights, rho -0.97 (95% interval -0.99 to -0.90)" in text
    assert "the plain norm of the weights has rho -0.98" in text


def test_who_says_something_beyond_the_norm():
    text = answers()["Which say something beyond the norm of the weights?"]
    assert text.startswith("1 of 3 at the 5% level")
    assert "h1_total (weights, p = 0.01)" in text
    assert "1 survive the correction" in text
    assert "h0_total" not in text


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
    assert "From the first 20%, the power law misses the final loss by 0.100" in text
    assert "combined improves on it by -100% (95% interval -150 to -20)" in text
    assert "90" not in text


@pytest.mark.parametrize("question", range(5))
def test_what_cannot_be_answered_says_so(question):
    empty = VERDICTS[:0]
    text = list(answers(verdicts=empty).values())[question]
    assert text.startswith(("No ", "From"))


def test_warnings_name_checkpoint_and_cause():
    features = pd.DataFrame(
        [("m", 10, 1.0), ("m", 20, np.nan), ("m", 20, 2.0)], columns=["model", "step", "value"]
    )
    metrics = pd.DataFrame([("m", 10, np.inf)], columns=["model", "step", "value"])
    table = summary.warnings(
        features, metrics, {"p": {"5": "step7"}, "q": None}, {"train": 3, "validation": 0}
    )
    said = {(row.model, None if pd.isna(row.step) else row.step): row.warning for row in table.itertuples()}
    assert said[("", None)].startswith("3 characters of the train text")
    assert said[("p", 5)] == "serves the weights of step7"
    assert "not compared" in said[("q", None)]
    assert said[("m", 20)] == "1 of 2 features are NaN or infinite"
    assert said[("m", 10)] == "1 of 1 metrics are NaN or infinite"
    assert len(table) == 5
