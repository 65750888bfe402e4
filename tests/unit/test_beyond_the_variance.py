"""Neural persistence against the variance of the weights: what only repeats it, and what tells more."""

import numpy as np
import pandas as pd
import pytest

from toposcale.analysis.aligned import aligned_series
from toposcale.analysis.controls import CONTROLS
from toposcale.analysis.verdicts import POOLED, verdict_tables

STEPS = np.arange(60) * 100


def long(kind, model, name, values):
    table = pd.DataFrame({"model": model, "step": STEPS, kind: name, "value": values})
    return table if kind == "metric" else table.assign(source="weights", layer="all")


@pytest.fixture(scope="module")
def run():
    """Four models. The variance feels the fluctuations of the loss; the shared-scale persistence does so by itself."""
    random = np.random.default_rng(3)
    features, metrics = [], []
    for model in "abcd":
        shock, other = 0.03 * random.standard_normal((2, len(STEPS)))
        loss = 2 + 2 / np.sqrt(1 + STEPS / 100) + shock + other
        variance = 0.2 - 0.0005 * STEPS / 100 - 0.5 * shock + 0.002 * random.standard_normal(len(STEPS))
        copy = 0.9 - variance + 0.3 * variance**2 + 0.001 * random.standard_normal(len(STEPS))
        own = copy + other + 0.005 * random.standard_normal(len(STEPS))
        norm = 2 + np.log1p(STEPS) + 0.05 * random.standard_normal(len(STEPS)).cumsum()
        series = {
            "frobenius_norm": norm,
            "weight_variance": variance,
            "neural_persistence": copy,
            "neural_persistence_p2": own,
            "h0_total": own,
        }
        features += [long("feature", model, name, values) for name, values in series.items()]
        metrics.append(long("metric", model, "validation_loss", loss))
    models = pd.DataFrame({"model": list("abcd"), "warmup_steps": 0.0})
    return pd.concat(features), pd.concat(metrics), models


@pytest.fixture(scope="module")
def tables(run):
    return verdict_tables(*run, seed=1, resamples=50)


NORM, VARIANCE = "beyond_the_norm", "beyond_the_variance"


def verdict(tables, feature, question):
    table = tables["verdicts"]
    rows = (table["model"] == POOLED) & (table["feature"] == feature) & (table["question"] == question)
    [row] = table[rows].itertuples()
    return row


def test_a_copy_of_the_variance_is_beyond_the_norm_and_not_beyond_the_variance(tables):
    assert verdict(tables, "neural_persistence", NORM).answer == "yes"
    row = verdict(tables, "neural_persistence", VARIANCE)
    assert (row.answer, row.control, row.reason) == ("no", "weight_norm_and_variance", "")


def test_what_knows_more_than_the_variance_is_beyond_it(tables):
    assert verdict(tables, "neural_persistence_p2", NORM).answer == "yes"
    row = verdict(tables, "neural_persistence_p2", VARIANCE)
    assert row.answer == "yes"
    assert row.q <= 0.05


def test_the_question_is_asked_of_neural_persistence_alone(tables):
    asked = {"neural_persistence", "neural_persistence_p2"}
    verdicts = tables["verdicts"]
    assert set(verdicts.loc[verdicts["question"] == VARIANCE, "feature"]) == asked
    given = tables["correlations"].query("control == 'weight_norm_and_variance'")
    assert set(given["feature"]) == asked


def test_without_the_variance_the_reason_says_so(run):
    features, metrics, models = run
    without = features[features["feature"] != "weight_variance"]
    found = verdict_tables(without, metrics, models, seed=1, resamples=50)
    row = verdict(found, "neural_persistence", VARIANCE)
    assert row.answer == "not tested"
    assert row.reason == "no norm or variance of the weights at these checkpoints"


def test_the_other_questions_do_not_change(run, tables):
    features, metrics, models = run
    without = features[features["feature"] != "weight_variance"]
    fewer = verdict_tables(without, metrics, models, seed=1, resamples=50)
    for feature in ("neural_persistence", "h0_total"):
        assert verdict(fewer, feature, NORM).p == verdict(tables, feature, NORM).p


def test_the_variance_of_a_layer_is_its_own(run):
    features, metrics, _ = run
    layer = features.assign(layer="one", value=features["value"] * 2)
    [group] = [
        group
        for group in aligned_series(pd.concat([features, layer]), metrics, CONTROLS["weight_norm_and_variance"])
        if group.model == "a" and set(group.keys["layer"]) == {"one"}
    ]
    own = layer[(layer["model"] == "a") & (layer["feature"] == "weight_variance")]["value"].to_numpy()
    # The norm of the model, that of the layer, and the variance of the layer.
    assert group.controls.shape == (3, len(STEPS))
    assert np.array_equal(group.controls[2], own)
