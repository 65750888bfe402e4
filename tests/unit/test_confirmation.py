"""What a search finds is tested again on fresh runs: a planted effect comes back with its sign, and chance does not."""

import numpy as np
import pandas as pd
import pytest

from planted_features import N, one, rows
from toposcale.analysis.confirmation import confirmation_tables, findings_tables
from toposcale.analysis.verdicts import verdict_tables
from toposcale.io import schemas
from toposcale.statistics.multiple_testing import holm

MODELS = ("s", "m", "l", "x")
CONFIRM = {"run": "small-confirm", "obstacle": ""}
FELT, TURNED, CHANCE = "neural_persistence", "h0_total", "h1_total"


def run_of(seed, *, sign=1.0, chance=0.0):
    """Features, metrics and models. FELT feels the noise of the loss; TURNED feels it with `sign`; CHANCE feels it by
    `chance`, and drifts; the norm and twenty more features know nothing."""
    rng, time = np.random.default_rng(seed), np.arange(N)
    features, metrics = [], []
    for model in MODELS:
        noise = rng.standard_normal(N)
        own = {
            "frobenius_norm": np.log1p(time) + 0.05 * rng.standard_normal(N).cumsum(),
            FELT: -noise + 0.7 * rng.standard_normal(N),
            TURNED: sign * noise + 0.7 * rng.standard_normal(N),
            CHANCE: chance * noise + rng.standard_normal(N) + 0.1 * time,
            **{f"h{k}_mean": rng.standard_normal(N) for k in range(20)},
        }
        features += [rows(model, name, values) for name, values in own.items()]
        loss = 2 / np.sqrt(time + 1) + 0.03 * noise
        metrics.append(pd.DataFrame({"model": model, "step": 100 * time, "metric": "validation_loss", "value": loss}))
    models = pd.DataFrame({"model": MODELS, "warmup_steps": 0.0, "n_parameters": 3000})
    return pd.concat(features), pd.concat(metrics), models


@pytest.fixture(scope="module")
def findings():
    """What a search finds where chance looks like a finding: two effects, and one feature that felt the noise by luck."""
    searched = run_of(1, chance=0.9)
    verdicts = verdict_tables(*searched, seed=1, resamples=20)["verdicts"]
    return findings_tables(verdicts, *searched[1:], tasks=[])["findings"]


@pytest.fixture(scope="module")
def confirmation(findings):
    return confirmation_tables(findings, *run_of(2, sign=-1.0), seed=1, confirm=CONFIRM)["confirmation"]


def test_a_finding_is_written_down_with_its_direction_and_what_was_searched(findings):
    assert {FELT, TURNED, CHANCE} <= set(findings["feature"])
    felt = one(findings, feature=FELT, question="beyond_the_norm")
    assert (felt.direction, felt.n_searched, felt.n_seeds) == ("negative", 23, 1)
    assert one(findings, feature=TURNED, question="beyond_the_norm").direction == "positive"
    assert (findings["q"] <= 0.05).all()
    assert set(findings["question"]) <= {"beyond_the_norm", "beyond_the_variance"}


def test_a_planted_effect_is_confirmed_and_chance_is_not(confirmation):
    row = one(confirmation, feature=FELT, question="beyond_the_norm")
    assert (row.answer, row.fresh_run, row.reason) == ("confirmed", "small-confirm", "")
    assert row.estimate < -0.4
    assert row.searched_estimate < -0.4
    lucky = one(confirmation, feature=CHANCE, question="beyond_the_norm")
    assert lucky.answer == "not confirmed"
    assert lucky.p_holm > 0.05


def test_an_effect_that_comes_back_with_the_other_sign_is_not_confirmed(confirmation):
    row = one(confirmation, feature=TURNED, question="beyond_the_norm")
    assert row.p_holm <= 0.05
    assert row.estimate < 0 < row.searched_estimate
    assert row.answer == "not confirmed"


def test_only_what_was_found_is_tested_and_corrected_together(findings, confirmation):
    key = ["question", "source", "layer", "feature", "metric"]
    pd.testing.assert_frame_equal(findings[key], confirmation[key])
    np.testing.assert_allclose(confirmation["p_holm"], holm(confirmation["p"]))


def test_the_p_of_fresh_runs_is_that_of_their_own_verdicts(findings, confirmation):
    verdicts = verdict_tables(*run_of(2, sign=-1.0), seed=1, resamples=20)["verdicts"]
    for row in confirmation.itertuples():
        same = one(verdicts, model="pooled", feature=row.feature, question=row.question, layer="all")
        assert (row.p, row.estimate) == (same.p, same.estimate)


def test_noise_that_a_search_found_is_seldom_confirmed(findings):
    """Fresh runs in which nothing is true: any of the findings passes in at most one of ten (Holm: 5%)."""
    passed = 0
    for seed in range(20, 30):
        features, metrics, models = run_of(seed, sign=0.0)
        features.loc[features["feature"] == FELT, "value"] = np.random.default_rng(seed).standard_normal(4 * N)
        table = confirmation_tables(findings, features, metrics, models, seed=1, confirm=CONFIRM)
        passed += (table["confirmation"]["answer"] == "confirmed").any()
    # Of 10 draws at 5% three or more have probability 0.01.
    assert passed <= 2


def test_without_fresh_runs_the_reason_says_what_to_do(findings):
    nothing = [pd.DataFrame()] * 3
    table = confirmation_tables(findings, *nothing, seed=1, confirm=CONFIRM)["confirmation"]
    assert (table["answer"] == "not tested").all()
    assert (table["reason"] == "confirm it: make confirm CONFIG=...").all()
    table = confirmation_tables(findings, *nothing, seed=1, confirm=CONFIRM | {"obstacle": "no"})
    assert (table["confirmation"]["reason"] == "no").all()
    empty = schemas.TABLES["findings"].frame([])
    assert confirmation_tables(empty, *run_of(2), seed=1, confirm=CONFIRM)["confirmation"].empty


def test_a_feature_that_the_fresh_runs_lack_is_not_tested(findings):
    features, metrics, models = run_of(2)
    table = confirmation_tables(
        findings, features[features["feature"] != FELT], metrics, models, seed=1, confirm=CONFIRM
    )["confirmation"]
    row = one(table, feature=FELT, question="beyond_the_norm")
    assert row.answer == "not tested"
    assert row.reason == "not tested in the run small-confirm: this feature and metric were not measured"
