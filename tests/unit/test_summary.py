"""The sentences say what the tables say, and nothing more."""

import numpy as np
import pandas as pd
import pytest

from toposcale.analysis import summary
from toposcale.analysis.series import headline_metric


def verdict(feature, rho, q, follows="yes", source="weights"):
    row = {
        "model": "pooled",
        "source": source,
        "layer": "all",
        "feature": feature,
        "metric": "validation_loss",
        "follows_the_loss": follows,
        "follows_the_loss_rho": rho,
        "follows_the_loss_rho_lowest": rho - 0.01,
        "follows_the_loss_rho_highest": rho + 0.02,
    }
    for question in ("beyond_the_norm", "beyond_the_step"):
        answer = "not tested" if np.isnan(q) else "yes" if q <= 0.05 else "no"
        row |= {question: answer, f"{question}_rho": 0.1, f"{question}_innovation": -0.4}
        row |= {f"{question}_p": q / 3, f"{question}_q": q}
    return row


VERDICTS = pd.DataFrame(
    [
        verdict("frobenius_norm", -0.98, np.nan),
        verdict("h0_total", -0.97, 0.4),
        verdict("h1_total", -0.5, 0.01),
        verdict("stable_rank", 0.1, 0.9, follows="no"),
    ]
)
NOTHING_FOUND = VERDICTS[VERDICTS.feature != "h1_total"]
METRICS = pd.DataFrame({"metric": ["validation_loss", "training_loss"]})
TESTED = pd.DataFrame(
    [
        {"question": question, "source": source, "measured": 153, "testable": 69, "tested": tested}
        | {"distinct": 22, "found": 1, "reason": reason}
        for question in ("beyond_the_norm", "beyond_the_step")
        for source, tested, reason in (("weights", 37, ""), ("embeddings", 0, "7 checkpoints"))
    ]
)


def sensitivity(found="yes", detectable=0.5, reason=""):
    return pd.DataFrame(
        [
            {"question": question, "found": found, "detectable": detectable, "reason": reason, "n_tested": 3}
            | {"control_correlation": 0.85, "control_p": 1e-6, "control_q": 2e-5}
            for question in ("beyond_the_norm", "beyond_the_step")
        ]
    )


def answers(verdicts=VERDICTS, forecasts=None, decisions=None, power=None, metrics=METRICS):
    forecasts = pd.DataFrame() if forecasts is None else forecasts
    decisions = pd.DataFrame() if decisions is None else decisions
    power = sensitivity() if power is None else power
    table = summary.summary_tables(metrics, verdicts, TESTED, power, forecasts, decisions)["summary"]
    assert list(table["position"]) == [0, 1, 2, 3, 4, 5]
    assert (table["answer"].str.split().str.len() <= 40).all()
    said = table["verdict"] + ". " + table["answer"] + " | " + table["numbers"]
    return dict(zip(table["question"], said, strict=True))


NORM = "Which say something beyond the norm of the weights?"


def test_who_follows_the_loss_beside_the_norm():
    text = answers()["Which features follow the validation loss?"]
    assert text.startswith(
        "3 of 4. 3 of 4 features rise or fall with it, in every cell, as anything that drifts does."
    )
    assert (
        "The closest of topology is H₀ total persistence of the weights. The plain norm follows it too."
        in text
    )
    assert "rank correlation -0.97 (median over cells; -0.98 to -0.95)" in text
    assert "norm: rank correlation -0.98" in text


def test_who_says_something_beyond_the_norm():
    text = answers()[NORM]
    assert text.startswith(
        "1 of 3. 1 feature of 3 tested told more of the validation loss than the norm of the weights"
    )
    assert (
        "clearest H₁ total persistence of the weights. This run could have found a correlation of 0.50 or more."
        in text
    )
    assert "innovation correlation -0.40, p = 0.0033, q = 0.01" in text
    assert (
        "weights 37 of 69 testable (153 measured), 22 distinct; embeddings none of 153 measured (7 checkpoints)"
        in text
    )
    assert "H₀" not in text


def test_a_run_that_finds_nothing_says_what_it_could_have_found():
    said = answers(NOTHING_FOUND)
    assert said[NORM].startswith(
        "None found. Nothing was found beyond the norm of the weights. This run could have found"
    )
    first = "In this run topology adds nothing that was found beyond the norm; it could have found a correlation of 0.50"
    assert first in said["In one sentence"]


def test_a_run_that_misses_its_positive_control_says_so():
    said = answers(NOTHING_FOUND, power=sensitivity(found="no", detectable=np.nan))
    assert said[NORM].startswith(
        "This run could not have shown it. This run could not have shown it: even the validation loss"
    )
    assert "even the validation loss itself is not found" in said["In one sentence"]


def test_what_was_not_tested_is_not_called_a_no():
    untested = VERDICTS.assign(
        **{
            f"{q}{end}": value
            for q in ("beyond_the_norm", "beyond_the_step")
            for end, value in (("", "not tested"), ("_p", np.nan))
        }
    )
    said = answers(untested, power=sensitivity("not tested", np.nan, "7 evenly spaced checkpoints"))
    assert said[NORM].startswith(
        "Could not be tested. No feature could be tested: 7 evenly spaced checkpoints."
    )
    assert "could not test whether topology tells more" in said["In one sentence"]


def test_equal_answers_given_norm_and_step_are_said_to_coincide():
    alone = VERDICTS.assign(model="m")
    both = pd.concat([VERDICTS, alone])
    assert (
        "coincide here: the norm moves one way"
        in answers(both)["Which say something beyond the training step?"]
    )
    both.loc[both.model == "m", "beyond_the_step_rho"] = 0.2
    assert "coincide" not in answers(both)["Which say something beyond the training step?"]


@pytest.mark.parametrize(
    ("measured", "chosen", "expected"),
    [
        (["training_loss", "validation_loss", "perplexity", "arc_easy.acc"], (), "validation_loss"),
        (["arc_easy.acc", "perplexity"], (), "perplexity"),
        (["arc_easy.acc", "lambada.acc", "piqa.acc"], ("piqa", "arc_*"), "piqa.acc"),
        (["arc_easy.acc", "training_loss"], ("*",), "training_loss"),
        (["arc_challenge.acc", "arc_easy.acc"], ("*",), None),
        ([], (), None),
    ],
)
def test_the_headline_metric_is_never_the_first_of_the_alphabet(measured, chosen, expected):
    assert headline_metric(measured, chosen) == expected


def test_without_a_loss_the_answers_say_what_they_need():
    said = answers(metrics=METRICS[:0])
    assert all("needs a loss at the checkpoints" in text for text in said.values())
    said = answers(metrics=pd.DataFrame({"metric": ["arc_easy.acc"]}))
    assert "name one under metrics.tasks" in said[NORM]


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
    text = list(answers(verdicts=empty, power=sensitivity("not tested", np.nan, "nothing")).values())[
        question + 1
    ]
    assert text.startswith("Could not be tested. ")
    assert ". No " in text
