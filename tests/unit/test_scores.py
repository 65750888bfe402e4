"""Scores in two stages: planted sigmoids are found again, and the future of a run is not read."""

import numpy as np
import pandas as pd
import pytest

from toposcale.analysis.scores import fit_score_law, score_tables
from toposcale.forecasting import Prediction
from toposcale.io import schemas
from toposcale.io.errors import UserError

STEPS = np.arange(0, 2001, 50)
SETTINGS = {"fractions": [0.3, 0.5], "score_metrics": ["task.acc"], "loss_metric": None}


def sigmoid(losses):
    return 0.25 + 0.6 / (1 + np.exp(3 * (np.asarray(losses) - 3.2)))


def loss_of(number, steps):
    return 2.4 - 0.1 * number + 8 * np.maximum(steps, 1.0) ** -0.4


def tables(models=8, noise=0.004, name="task.acc", loss="validation_loss", transform=lambda losses: losses):
    rng = np.random.default_rng(0)
    rows = []
    for number in range(models):
        losses = loss_of(number, STEPS)
        scores = np.clip(sigmoid(losses) + noise * rng.normal(size=len(STEPS)), 0, 1)
        rows += [(f"m{number}", step, loss, value) for step, value in zip(STEPS, transform(losses), strict=True)]
        rows += [(f"m{number}", step, name, value) for step, value in zip(STEPS, scores, strict=True)]
    metrics = pd.DataFrame(rows, columns=["model", "step", "metric", "value"])
    runs = [
        {
            "model": f"m{n}",
            "family": "one",
            "n_parameters": 1000 * 2**n,
            "final_step": 2000,
            "tokens_per_step": 64,
            "seed": n,
        }
        for n in range(models)
    ]
    return {
        "metrics": metrics,
        "models": schemas.TABLES["models"].frame(runs),
        "training": schemas.TABLES["training"].frame([]),
        "schedules": schemas.TABLES["schedules"].frame([]),
    }


def test_a_planted_sigmoid_is_found_again():
    losses = np.linspace(2, 6, 60)
    law = fit_score_law(losses, sigmoid(losses))
    assert law(losses) == pytest.approx(sigmoid(losses), abs=1e-6)
    assert (law.floor, law.rise, law.slope, law.middle) == pytest.approx((0.25, 0.6, 3, 3.2), rel=1e-3)
    assert law.spread < 1e-6


def test_score_law_interval_has_both_errors():
    rng = np.random.default_rng(1)
    losses = np.linspace(2, 6, 200)
    law = fit_score_law(losses, np.clip(sigmoid(losses) + 0.02 * rng.normal(size=200), 0, 1))
    prediction = law.predict(Prediction(3.0, 3.0, 3.0))
    assert prediction.high - prediction.value == pytest.approx(1.96 * 0.02, rel=0.2)
    wide = law.predict(Prediction(3.0, 2.8, 3.2))
    assert wide.high - wide.value == pytest.approx(
        np.hypot(float(law(2.8) - law(3.0)), prediction.high - prediction.value)
    )
    assert wide.value - wide.low == pytest.approx(
        np.hypot(float(law(3.0) - law(3.2)), prediction.value - prediction.low)
    )


@pytest.mark.parametrize(
    ("losses", "scores", "reason"),
    [
        (np.ones(9), np.full(9, 0.5), "the same"),
        (np.arange(9.0), np.arange(9.0), "from 0 to 1"),
        (np.arange(7.0), np.full(7, 0.5), "8 are needed"),
    ],
)
def test_what_cannot_be_fitted_says_why(losses, scores, reason):
    with pytest.raises(ValueError, match=reason):
        fit_score_law(losses, scores)


def test_score_tables_two_stages_beat_the_own_curve():
    made = score_tables(**tables(), **SETTINGS)
    evaluation = made["score_evaluation"].set_index(["fraction", "method"])["mae"]
    for fraction in (0.3, 0.5):
        assert evaluation[fraction, "two_stages"] < 0.03
        assert evaluation[fraction, "two_stages"] < evaluation[fraction, "power_law"]
    assert (made["score_forecasts"]["calibrated_to"] == 7 / 8).all()


def test_nothing_of_the_future_is_read():
    in_nats = tables()
    changed = {name: table.copy() for name, table in in_nats.items()}
    late = changed["metrics"]["step"] > 1000
    changed["metrics"].loc[late & (changed["metrics"]["metric"] == "task.acc"), "value"] = 0.5
    raw = [
        score_tables(**read, **SETTINGS)["score_forecasts"].query("method == 'power_law'")["forecast"].to_numpy()
        for read in (in_nats, changed)
    ]
    assert np.array_equal(*raw)
    from_the_loss = [
        score_tables(**read, **SETTINGS)["score_forecasts"].query("method == 'two_stages'")["forecast"].to_numpy()
        for read in (in_nats, changed)
    ]
    assert np.array_equal(*from_the_loss)


def test_score_tables_from_the_logarithm_of_a_perplexity():
    plain = score_tables(**tables(), **SETTINGS)["score_forecasts"]
    in_perplexity = tables(loss="task.ppl", transform=np.exp)
    other = score_tables(**in_perplexity, **SETTINGS | {"loss_metric": "task.ppl"})["score_forecasts"]
    assert other["forecast"].to_numpy() == pytest.approx(plain["forecast"].to_numpy(), rel=1e-6)


def test_a_score_that_was_not_measured_is_named():
    with pytest.raises(UserError, match=r"no metric other\.acc; there are task\.acc, validation_loss"):
        score_tables(**tables(), **SETTINGS | {"score_metrics": ["other.acc"]})
