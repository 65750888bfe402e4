"""Every number of the answers about the features, computed again from the features and metrics themselves."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from figure_tables import WARMUP, features_table, metrics_table, models_table
from toposcale.analysis.summary import summary_tables
from toposcale.analysis.verdicts import verdict_tables
from toposcale.features.names import feature_name
from toposcale.io.schemas import TABLES

NUMBER = r"(-?\d+(?:\.\d+)?(?:e-\d+)?)"


@pytest.fixture(scope="module")
def screen():
    """Tables of a run of five models, what is said of them, and whole-model series by feature and model."""
    rng = np.random.default_rng(1)
    features, metrics, models = features_table(), metrics_table(), models_table()
    loss = metrics["metric"] == "validation_loss"
    metrics.loc[loss, "value"] += 0.01 * rng.standard_normal(loss.sum())
    features = features[features["layer"] == "all"]
    tables = verdict_tables(features, metrics, models, seed=1, resamples=20)
    unknown = ("forecast_evaluation", "decision_evaluation", "advice")
    said = summary_tables(
        metrics,
        tables["verdicts"],
        tables["pooled_correlations"],
        tables["tested_features"],
        tables["sensitivity"],
        *(TABLES[name].frame([]) for name in unknown),
    )["summary"].set_index("position")
    losses = metrics[loss].pivot(index="step", columns="model", values="value")
    series = {
        feature: rows.pivot(index="step", columns="model", values="value")[losses.columns]
        for feature, rows in features.groupby("feature")
    }
    return tables, said, series, losses


def numbers(pattern, text):
    found = re.search(pattern, text)
    assert found, f"{pattern!r} is not in {text!r}"
    return [float(group) for group in found.groups()]


def test_the_answer_on_following_is_that_of_scipy(screen):
    _, said, series, losses = screen
    rho = {
        name: np.array([scipy.stats.spearmanr(own[model], losses[model])[0] for model in losses])
        for name, own in series.items()
    }
    rho = {name: values for name, values in rho.items() if np.isfinite(values).all()}
    follow = {name for name, values in rho.items() if (values >= 0.5).all() or (values <= -0.5).all()}
    assert numbers(rf"{NUMBER} of {NUMBER}", said.verdict[1]) == [len(follow), len(rho)]
    norm = rho["frobenius_norm"]
    three = numbers(
        rf"norm: rank correlation {NUMBER} \(median over configurations; {NUMBER} to {NUMBER}\)", said.numbers[1]
    )
    assert three == pytest.approx([np.median(norm), norm.min(), norm.max()], abs=0.005)


def test_the_answers_on_beyond_are_those_of_the_tables(screen):
    position, question = 2, "beyond_the_norm"
    tables, said, series, _ = screen
    family = tables["verdicts"].query("model == 'pooled' and metric == 'validation_loss' and layer == 'all'")
    family = family[family["question"] == question]
    pooled = tables["pooled_correlations"].query("metric == 'validation_loss' and layer == 'all'")
    pooled = pooled[pooled["control"] == "weight_norm"]
    p = pooled.set_index("feature")["p"].dropna()
    q = pd.Series(scipy.stats.false_discovery_control(p), index=p.index)
    text = said.numbers[position]
    own = tables["sensitivity"].set_index("question").loc[question]
    control_p, control_q = numbers(rf"Positive control .*: p = {NUMBER}, q = {NUMBER}\.", text)
    assert control_p == pytest.approx(own["p"], rel=0.1)
    expected = scipy.stats.false_discovery_control([*p, own["p"]])[-1]
    assert control_q == pytest.approx(expected, rel=0.1)
    tested, testable, measured, distinct = numbers(
        rf"weights {NUMBER} of {NUMBER} testable \({NUMBER} measured\), {NUMBER} distinct", text
    )
    assert (tested, testable, measured) == (len(p), len(series), len(series))
    assert 1 <= distinct <= tested
    strongest = p.idxmin()
    r, p_said, q_said = numbers(
        rf"correlation of prewhitened residuals {NUMBER}, p = {NUMBER}, q = {NUMBER}\.", text.split("Strongest")[1]
    )
    assert feature_name(strongest) in text.split("Strongest")[1]
    assert r == pytest.approx(pooled.set_index("feature").residual_correlation[strongest], abs=0.005)
    assert [p_said, q_said] == pytest.approx([p[strongest], q[strongest]], rel=0.1)
    assert set(family.loc[family["answer"] == "yes", "feature"]) == set(q[q <= 0.05].index)
    curve = tables["power"][tables["power"].question == question]
    reached = curve[curve["found"] >= 0.8]["measured"]
    below = curve[curve["found"] < 0.8]["measured"]
    could = numbers(rf"power for correlations of {NUMBER} or more", said.answer[position])[0]
    assert below.max() - 0.005 <= could <= reached.max() + 0.005


def test_the_segment_behind_the_answers_is_the_one_after_the_warmup(screen):
    tables, _, _, losses = screen
    points = int((losses.index >= 2 * WARMUP).sum())
    tested = tables["correlations"].query("n_tested > 0")
    assert set(tested["n_tested"]) == {points} == set(tables["sensitivity"]["n_points"].dropna())


def test_the_headline_repeats_the_answer(screen):
    tables, said, _, _ = screen
    norm = tables["sensitivity"].set_index("question").loc["beyond_the_norm"]
    if said.verdict[2] == "None found":
        assert f"{norm['detectable']:.2f}" in said.answer[0]
    else:
        assert "A search of" in said.answer[0]
