"""Warnings: each names the model, the step, what it concerns, and what can be done."""

import numpy as np
import pandas as pd

import _job as notes
import warnings_table
from toposcale.analysis import warnings
from toposcale.io import schemas
from toposcale.io.schemas import ALL_LAYERS

METRICS = pd.DataFrame([("m", 10, "perplexity", np.inf)], columns=["model", "step", "metric", "value"])


def features(*rows):
    return pd.DataFrame(rows, columns=["model", "step", "source", "layer", "feature", "value"])


def rows_of(table):
    return [tuple(row) for row in table[["model", "steps", "concerns", "warning"]].itertuples(index=False)]


def test_warning_table_of_a_matrix_with_nan():
    bad = [("m", step, "weights", "q", name, np.nan) for step in (20, 30) for name in ("frobenius_norm", "stable_rank")]
    good = [
        ("m", 20, "weights", "k", "frobenius_norm", 1.0),
        ("m", 20, "weights", "k", "neural_persistence_p2", np.nan),  # its unit is the largest weight of the model
        ("m", 30, "weights", ALL_LAYERS, "frobenius_norm", np.nan),
    ]
    table = warnings.warning_table(features(*bad, *good), METRICS[:0])
    assert rows_of(table) == [("m", "20, 30", "weights: q", "its features are NaN: it contains NaN or infinity")]
    assert "diverged" in table["remedy"].item()


def test_a_matrix_of_zeros_has_not_diverged():
    """Most of its features are NaN, but its norm is 0."""
    rows = [
        ("m", 0, "weights", "head", name, np.nan) for name in ("neural_persistence", "stable_rank", "h0_max_scaled")
    ]
    table = warnings.warning_table(features(*rows, ("m", 0, "weights", "head", "frobenius_norm", 0.0)), METRICS[:0])
    assert len(table) == 3
    assert not table["warning"].str.contains("it contains NaN").any()
    assert not table["remedy"].str.contains("diverged").any()


def test_one_feature_that_is_nan_is_named_with_its_layers():
    rows = [("m", 5, "weights", layer, "frobenius_norm", 1.0) for layer in "ab"]
    rows += [("m", 5, "weights", layer, "stable_rank", value) for layer, value in (("a", np.nan), ("b", 2.0))]
    rows += [("m", 5, "weights", "a", "spectral_norm", 3.0)]
    [(model, steps, concerns, warning)] = rows_of(warnings.warning_table(features(*rows), METRICS[:0]))
    assert (model, steps, warning) == ("m", "5", "NaN or infinite in a")
    assert "rank" in concerns.lower()


def test_a_metric_that_is_not_finite_is_named():
    [row] = rows_of(warnings.warning_table(features(), METRICS))
    assert row == ("m", "10", "metric: perplexity", "NaN or infinite")


def test_gaps_and_notes_stand_in_the_table_with_a_remedy():
    noted = notes.missing("m", {40: "cut short", 50: "cut short", 60: "another shape"})
    noted.append(notes.note("n", "embeddings", "w", "r"))
    table = warnings.warning_table(features(), METRICS[:0], noted)
    assert list(table.columns) == list(schemas.TABLES["warnings"].names)
    assert rows_of(table) == [
        ("m", "40, 50", "checkpoint", "cut short"),
        ("m", "60", "checkpoint", "another shape"),
        ("n", "", "embeddings", "w"),
    ]
    assert (table["remedy"] != "").all()


def test_one_cause_of_several_missing_checkpoints_is_one_warning():
    noted = notes.missing("m", {step: f"runs/step{step}.pt: no readable tokenizer" for step in (10, 20)}, "embeddings")
    noted += notes.missing("m", {30: "runs/step30.pt: its tensors have other shapes"})
    assert rows_of(warnings.warning_table(features(), METRICS[:0], noted)) == [
        ("m", "30", "checkpoint", "runs/step30.pt: its tensors have other shapes"),
        ("m", "10, 20", "embeddings", "no readable tokenizer"),
    ]


def test_warning_table_counts_left_out_checkpoints_once():
    noted = notes.missing("m", {40: "cut short", 50: "serves the weights of another model"}, "weights")
    noted += notes.missing("m", {40: "cut short"}, "embeddings") + notes.missing("n", {40: "cut short"})
    noted.append(notes.note("m", "checkpoint", "serves the weights of step100", "r", step=60))
    noted.append(notes.note("n", "embeddings", "w", "r"))
    assert warnings_table.count_missing(noted) == 3
    assert warnings_table.count_missing([]) == 0


def test_many_steps_are_a_span():
    noted = notes.missing("m", dict.fromkeys(range(0, 70, 10), "cut short"))
    assert warnings.warning_table(features(), METRICS[:0], noted)["steps"].item() == "0 to 60 (7 checkpoints)"


def test_warning_table_ignores_distances_from_nan():
    rows = [("m", 20, "weights", "q", "h0_total", np.nan)]
    rows += [("m", 30, "weights", layer, "h0_wasserstein_1", np.nan) for layer in ("q", ALL_LAYERS)]
    rows += [("m", 30, "weights", "q", name, 1.0) for name in ("h0_total", "stable_rank")]
    table = warnings.warning_table(features(*rows), METRICS[:0])
    assert [(steps, concerns) for _, steps, concerns, _ in rows_of(table)] == [("20", "weights: q")]
