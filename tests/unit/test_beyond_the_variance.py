"""Neural persistence against the variance of the weights: what only repeats it, and what tells more."""

import numpy as np
import pandas as pd
import pytest

from toposcale.analysis.series import aligned_series
from toposcale.analysis.verdicts import NO_VARIANCE, OF_NEURAL_PERSISTENCE, POOLED, verdict_tables

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


def verdict(tables, feature):
    table = tables["verdicts"]
    [row] = table[(table["model"] == POOLED) & (table["feature"] == feature)].itertuples()
    return row


def test_a_copy_of_the_variance_is_beyond_the_norm_and_not_beyond_the_variance(tables):
    row = verdict(tables, "neural_persistence")
    assert (row.beyond_the_norm, row.beyond_the_variance) == ("yes", "no")
    assert row.beyond_the_variance_reason == ""


def test_what_knows_more_than_the_variance_is_beyond_it(tables):
    row = verdict(tables, "neural_persistence_p2")
    assert (row.beyond_the_norm, row.beyond_the_variance) == ("yes", "yes")
    assert row.beyond_the_variance_q <= 0.05


def test_the_question_is_asked_of_neural_persistence_alone(tables):
    row = verdict(tables, "h0_total")
    assert (row.beyond_the_variance, row.beyond_the_variance_reason) == ("not tested", OF_NEURAL_PERSISTENCE)
    given = tables["partial_correlations"].query("given == 'weight_norm_and_variance'")
    assert set(given["feature"]) == {"neural_persistence", "neural_persistence_p2"}


def test_without_the_variance_the_reason_says_so(run):
    features, metrics, models = run
    without = features[features["feature"] != "weight_variance"]
    row = verdict(verdict_tables(without, metrics, models, seed=1, resamples=50), "neural_persistence")
    assert (row.beyond_the_variance, row.beyond_the_variance_reason) == ("not tested", NO_VARIANCE)


def test_the_other_questions_do_not_change(run, tables):
    features, metrics, models = run
    without = features[features["feature"] != "weight_variance"]
    fewer = verdict_tables(without, metrics, models, seed=1, resamples=50)
    for feature in ("neural_persistence", "h0_total"):
        assert verdict(fewer, feature).beyond_the_norm_p == verdict(tables, feature).beyond_the_norm_p


def test_the_variance_of_a_layer_is_its_own(run):
    features, metrics, _ = run
    layer = features.assign(layer="one", value=features["value"] * 2)
    [group] = [
        group
        for group in aligned_series(pd.concat([features, layer]), metrics, variance=True)
        if group.model == "a" and set(group.keys["layer"]) == {"one"}
    ]
    own = layer[(layer["model"] == "a") & (layer["feature"] == "weight_variance")]["value"].to_numpy()
    # The norm of the model, that of the layer, and the variance of the layer.
    assert group.norms.shape == (3, len(STEPS))
    assert np.array_equal(group.norms[2], own)
