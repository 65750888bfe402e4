"""The tests over the seeds of a configuration: planted effects are found, runs under way are left out."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from planted_features import STEPS, N, one, rows
from studies.over_seeds import MANY_DRAWS, between_runs_table, run_permutation_table, with_more_draws
from toposcale.io.errors import UserError
from toposcale.statistics.freedman_lane import DRAWS
from toposcale.statistics.multiple_testing import benjamini_hochberg


def passed(table):
    """The features with a q of at most 0.05."""
    return set(table.loc[benjamini_hochberg(table["p"].to_numpy()) <= 0.05, "feature"])


def test_a_configuration_of_eight_seeds_is_tested_within_and_between_its_runs():
    """One feature feels the noise of its own run, one that of all runs, one tells early which run ends lower."""
    rng, n = np.random.default_rng(7), 30
    time, features, metrics = np.arange(n), [], []
    shared = rng.standard_normal(n)
    for seed in range(10):
        model, own, end = f"m.seed{seed}", rng.standard_normal(n), rng.standard_normal()
        loss = 3 - np.log1p(time) / 4 + 0.02 * (own + shared) + 0.3 * end * (time > 20)
        features += [
            rows(model, "frobenius_norm", np.sqrt(time + 1) + 0.1 * rng.standard_normal(n)),
            rows(model, "h0_total", 0.1 * time + own + 0.5 * rng.standard_normal(n)),
            rows(model, "h1_total", 0.1 * time + shared + 0.1 * rng.standard_normal(n)),
            rows(model, "neural_persistence", end + 0.1 * rng.standard_normal(n)),
        ]
        metrics.append(pd.DataFrame({"model": model, "step": STEPS[:n], "metric": "validation_loss", "value": loss}))
    names = [f"m.seed{seed}" for seed in range(10)]
    models = pd.DataFrame({"model": names, "configuration": "m", "warmup_steps": 0, "final_step": STEPS[n - 1]})
    tables = pd.concat(features), pd.concat(metrics), models
    within = run_permutation_table(*tables, metric="validation_loss", seed=42)
    assert passed(within) == {"h0_total"}
    row = one(within, feature="h1_total")
    assert row.correlation == pytest.approx(row.null_expectation, abs=0.15)
    assert row.null_expectation > 0.4
    assert (row.n_runs, row.n_configurations, row.exact) == (10, 1, False)
    between = between_runs_table(*tables, metric="validation_loss", seed=42)
    assert passed(between) == {"neural_persistence"}
    assert np.isnan(one(between, feature="frobenius_norm").p), "it is among the controls"
    few = [table[table.model.isin(names[:7])] for table in tables]
    with pytest.raises(UserError, match="no configuration has 8 seeds"):
        run_permutation_table(*few, metric="validation_loss", seed=42)


def test_a_feature_without_the_first_checkpoint_is_tested_over_seeds_like_the_others():
    rng, n = np.random.default_rng(8), 30
    names = [f"m.seed{seed}" for seed in range(8)]
    features = [
        rows(model, feature, np.sqrt(np.arange(n)) + rng.standard_normal(n))
        for model in names
        for feature in ("frobenius_norm", "h0_total", "h0_wasserstein")
    ]
    table = pd.concat(features)
    table = table[(table.feature != "h0_wasserstein") | (table.step > STEPS[0])]
    loss = [
        pd.DataFrame({"model": m, "step": STEPS[:n], "metric": "training_loss", "value": rng.random(n)}) for m in names
    ]
    models = pd.DataFrame({"model": names, "configuration": "m", "warmup_steps": STEPS[2], "final_step": STEPS[n - 1]})
    found = run_permutation_table(table, pd.concat(loss), models, metric="training_loss", seed=0)
    assert set(found["feature"]) == {"frobenius_norm", "h0_total", "h0_wasserstein"}


def test_runs_that_are_under_way_are_not_taken_for_finished_ones():
    rng, names = np.random.default_rng(9), [f"m.seed{seed}" for seed in range(12)]
    features = pd.concat([rows(m, f, 1 + rng.random(N)) for m in names for f in ("frobenius_norm", "h0_total")])
    loss = pd.concat(
        [pd.DataFrame({"model": m, "step": STEPS, "metric": "validation_loss", "value": rng.random(N)}) for m in names]
    )
    models = pd.DataFrame({"model": names, "configuration": "m", "final_step": STEPS[-1]})
    whole = between_runs_table(features, loss, models, metric="validation_loss", seed=0)
    assert set(whole["n_runs"]) == {12}
    part = loss[(loss["model"] != names[0]) | (loss["step"] < 0.9 * STEPS[-1])]
    assert set(between_runs_table(features, part, models, metric="validation_loss", seed=0)["n_runs"]) == {11}
    nothing_early = loss[loss["step"] > 0.25 * STEPS[-1]]
    with pytest.raises(UserError, match="validation_loss: its values at 20% and 30%"):
        between_runs_table(features, nothing_early, models, metric="validation_loss", seed=0)


def test_close_calls_and_no_others_rest_on_more_draws():
    """Of five tests the third is a close call: its corrected p lies between 0.02 and 0.10."""
    few = np.array([1e-4, 0.9, 0.03, 0.09, np.nan])
    many = np.array([1e-4, 0.9, 0.07, 0.095, np.nan])
    asked = []

    def test(places, draws):
        asked.append((places.tolist(), draws))
        return SimpleNamespace(p=(few if draws == DRAWS else many)[places], n_permutations=draws + 1)

    p, counted = with_more_draws(test, 5)
    # q of the first round: 0.0004, 0.9, 0.06, 0.12; of the second 0.0004, 0.9, 0.12, 0.12.
    assert asked == [([0, 1, 2, 3, 4], DRAWS), ([2], MANY_DRAWS)]
    assert p.tolist()[:4] == [1e-4, 0.9, 0.07, 0.09]
    assert counted.tolist() == [DRAWS + 1, DRAWS + 1, MANY_DRAWS + 1, DRAWS + 1, DRAWS + 1]
    few[3], asked[:] = 0.074, []
    p, _ = with_more_draws(test, 5)
    assert asked[1:] == [([2, 3], MANY_DRAWS)]
    assert MANY_DRAWS >= 100_000
