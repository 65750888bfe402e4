"""The paper with several seeds, on simulated runs: what comes back, what does not, and the false-positive rate with
seeds crossed."""

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from studies.paper_seeds.claims import claims_of
from studies.paper_seeds.seeds import CrossedSeeds, configurations_of_seeds, seed_table, seed_tables
from toposcale.analysis.controls import CONTROLS
from toposcale.analysis.correlations import controlled_runs, joint_test
from toposcale.io.errors import UserError

SIZES, STEPS = ("a", "b", "c", "d", "e"), np.arange(0, 5001, 100)
NOISE = 12


def tables_of(seed):
    """Features, metrics and models of five sizes: `told` feels the noise of its loss, which the sizes of a seed share."""
    rng = np.random.default_rng(seed)
    batches = rng.standard_normal(len(STEPS))
    features, metrics = [], []
    for size in SIZES:
        model = f"{size}.seed{seed}"
        noise = batches + rng.standard_normal(len(STEPS))
        loss = 2 + 3 / np.sqrt(1 + STEPS / 100) + 0.02 * noise
        columns = {
            "frobenius_norm": np.log1p(STEPS) + 0.02 * rng.standard_normal(len(STEPS)).cumsum(),
            "nuclear_norm": np.log1p(STEPS) + 0.02 * rng.standard_normal(len(STEPS)).cumsum(),
            "told": -noise + rng.standard_normal(len(STEPS)),
            "constant": np.ones(len(STEPS)),
            **{f"noise_{k}": rng.standard_normal(len(STEPS)) for k in range(NOISE)},
        }
        keys = {"model": model, "step": STEPS, "source": "weights", "layer": "all"}
        features += [pd.DataFrame(keys | {"feature": name, "value": own}) for name, own in columns.items()]
        keys = {"model": model, "step": STEPS, "metric": "validation_loss"}
        metrics.append(pd.DataFrame(keys | {"value": loss}))
    names = [f"{size}.seed{seed}" for size in SIZES]
    facts = {"seed": seed, "n_parameters": 3000, "warmup_steps": 200, "final_step": 5000}
    models = pd.DataFrame({"model": names, "configuration": SIZES} | facts)
    return pd.concat(features), pd.concat(metrics), models


@pytest.fixture(scope="module")
def seeds():
    return [seed_table(*tables_of(seed), seed) for seed in range(8)]


def test_the_test_of_a_seed_is_that_of_the_report(seeds):
    crossed = CrossedSeeds(configurations_of_seeds(seeds), "weight_norm")
    assert crossed.seeds == list(range(8))
    assert "constant" not in crossed.features
    tables = tables_of(3)
    table = joint_test(controlled_runs(*tables, CONTROLS["weight_norm"]), tables[2]).set_index("feature")["p"]
    np.testing.assert_allclose(crossed.p[3, 3], table[crossed.features], rtol=1e-6)


def test_a_planted_effect_comes_back_in_every_seed_and_noise_seldom(seeds):
    results = seed_tables(seeds)
    findings = results["findings"]
    assert set(findings["control"]) == {"weight_norm", "weight_norm_and_spectrum"}
    of_norm = findings[findings["control"] == "weight_norm"]
    assert set(of_norm.loc[of_norm["feature"] == "told", "seed"]) == set(range(8))
    back = results["coming_back"].groupby("feature")["confirmed"].agg(["mean", "size"])
    assert back.loc["told", "mean"] > 0.9
    assert back.loc["told", "size"] == 2 * 56
    others = back.drop("told")
    assert (others["mean"] * others["size"]).sum() <= 0.2 * others["size"].sum() + 1


def test_crossed_seeds_find_no_more_than_the_significance_level(seeds):
    rates = seed_tables(seeds)["false_positive_rates"]
    assert set(rates["pairs"]) == {56}
    for row in rates.itertuples():
        assert 0 < row.error_of_tests < 0.03
        assert abs(row.found_in_tests - 0.05) <= 3 * row.error_of_tests + 0.01
        assert row.found_in_pairs <= 0.05 + 3 * max(row.error_of_pairs, 0.03)


def test_a_seed_that_is_not_finished_is_not_kept(seeds):
    features, metrics, models = tables_of(1)
    with pytest.raises(UserError, match="seed 1: not all of its models are finished"):
        seed_table(features, metrics[metrics["step"] < 5000], models, 1)
    with pytest.raises(UserError, match="2 seeds are there"):
        seed_tables(seeds[:2])


# The seeds that were trained.

COMMITTED = ROOT / "studies/paper_seeds/tables"


@pytest.fixture(scope="module")
def trained():
    return [pd.read_csv(path) for path in sorted(COMMITTED.glob("seed-*.csv.gz"))]


def test_the_page_has_the_false_positive_rates_and_losses_of_the_eight_seeds(trained):
    page = " ".join((ROOT / "docs/reproduction.md").read_text().split())
    results = seed_tables(trained)
    assert [set(table["seed"]) for table in trained] == [{seed} for seed in range(42, 50)]
    assert results["findings"].empty, "the page says that no seed finds anything"
    words = {"weight_norm": "norm", "weight_norm_and_spectrum": "norm and spectrum"}
    for row in results["false_positive_rates"].to_dict("records"):
        shares = [
            f"{100 * row[f'found_in_{kind}']:.1f}% ± {100 * row[f'error_of_{kind}']:.1f}" for kind in ("tests", "pairs")
        ]
        runs = row["test"].replace("all", "five")
        assert f"| {words[row['control']]} | {runs} | {shares[0]} | {shares[1]} |" in page
    rows = pd.concat(trained)
    ends = rows[rows["step"] == rows["final_step"]].groupby("configuration")["validation_loss"]
    each = rows.groupby(["configuration", "seed"])
    against = {
        name: each[[name, "validation_loss"]].apply(lambda run: run.corr("spearman").iloc[0, 1])
        for name in ("neural_persistence", "h0_total", "frobenius_norm")
    }
    for size, losses in ends:
        signs = against["neural_persistence"][size]
        loss = f"{losses.mean():.3f} ({losses.min():.3f} to {losses.max():.3f})"
        assert f"| {size} | {loss} | {signs.min():+.2f} to {signs.max():+.2f} |" in page
    assert against["h0_total"].max() < -0.955
    assert against["frobenius_norm"].max() < -0.985


def test_the_answers_to_the_claims_are_those_of_the_committed_tables(trained):
    committed = pd.read_csv(COMMITTED / "claims.csv", keep_default_na=False)
    assert (committed.drop(columns=["source", "claim", "reason"]).sum(axis=1) == len(trained)).all()
    [table] = [table for table in trained if table["seed"].iloc[0] == 42]
    for row in claims_of(table).itertuples():
        [kept] = committed[(committed["source"] == row.source) & (committed["claim"] == row.claim)].to_dict("records")
        assert kept[row.answer] > 0, row.claim
