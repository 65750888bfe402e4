"""Decisions whose alternatives were trained: every truth is a run's own end, and the future moves no choice."""

import shutil

import numpy as np
import pandas as pd
import pytest
import yaml

from made_runs import training_run
from paths import ROOT
from studies.decisions.__main__ import own
from studies.decisions.own import (
    ALTERNATIVE,
    alternatives_of,
    decision_table,
    policy_table_of_own,
    where_starting_was_right,
)
from toposcale.analysis.decisions import OBSERVED
from toposcale.forecasting.runs.schedules import Schedule

TABLES = ROOT / "studies/decisions/tables"
SIZES = {"a": 3000, "b": 7000, "c": 20000}
STEPS = 400


def end_of(size, steps):
    return 2 + 30 * size**-0.34 + 6 * steps**-0.5


def run(entry, size, steps, seed=1):
    at = np.unique(np.linspace(0, steps, 21).astype(int))
    log = np.arange(1, steps + 1)
    curve = 2 + 30 * size**-0.34 + 6 * log**-0.5
    return training_run(
        model=f"{entry}.seed{seed}",
        n_parameters=size,
        tokens_per_step=64,
        final_step=steps,
        family="one",
        seed=seed,
        provenance="given",
        steps=log,
        losses=curve,
        learning_rates=Schedule("cosine", 3e-3, steps, warmup_steps=20).rates(),
        checkpoint_steps=at,
        checkpoint_losses=2 + 30 * size**-0.34 + 6 * np.maximum(at, 1) ** -0.5,
    )


@pytest.fixture(scope="module")
def family():
    runs = [run(name, size, STEPS) for name, size in SIZES.items()]
    for base, bigger in (("a", "b"), ("a", "c"), ("b", "c")):
        for percent in (20, 50):
            steps = round((1 - percent / 100) * STEPS * SIZES[base] / SIZES[bigger])
            runs.append(run(f"{bigger}-after-{base}-{percent}", SIZES[bigger], steps))
    models = pd.DataFrame(
        [{"model": one.model, "entry": one.model.partition(".")[0], "seed": one.facts.seed} for one in runs]
    )
    return runs, alternatives_of(models, runs)


def test_every_alternative_belongs_to_its_base_run(family):
    _, alternatives = family
    assert len(alternatives) == 6
    assert {one.base for one in alternatives} == {"a.seed1", "b.seed1"}
    for one in alternatives:
        assert one.run.n_parameters == SIZES[one.size]


def test_regret_is_what_was_observed(family):
    runs, alternatives = family
    table = decision_table(runs, alternatives)
    assert set(table["policy"]) >= {
        "advice",
        "expected_regret",
        "always_continue",
        "next_size",
        "oracle",
        "topology_rate",
    }
    ends = {"continue": end_of(3000, 400), "scale up to b": end_of(7000, 137), "scale up to c": end_of(20000, 48)}
    here = table[(table["model"] == "a.seed1") & (table["fraction"] == 0.2)].set_index("policy")
    best = min(ends, key=ends.get)
    assert here.loc["oracle", "choice"] == here.loc["oracle", "best"] == best
    assert here.loc["oracle", "regret"] == 0
    assert here.loc["always_continue", "regret"] == pytest.approx(ends["continue"] - ends[best])
    assert here.loc["next_size", "loss"] == pytest.approx(ends["scale up to b"])
    later = [ends["scale up to b"], end_of(7000, 86), ends["continue"]]
    assert here.loc["random_stop", "loss"] == pytest.approx(np.mean(later))
    assert (table["regret"].dropna() >= 0).all()


def test_a_method_that_cannot_forecast_says_why_and_is_not_judged(family):
    table = decision_table(*family)
    without = table[table["policy"] == "topology_rate"]
    assert (without["reason"] != "").all()
    assert without["regret"].isna().all()
    assert "topology_rate" not in set(policy_table_of_own(table)["policy"])


def test_intervals_are_over_runs_and_the_oracle_gives_up_nothing(family):
    table = policy_table_of_own(decision_table(*family)).set_index(["decisions", "policy"])
    assert table.loc[("all", "oracle"), "regret"] == 0
    assert table.loc[("all", "expected_regret"), ["n_decisions", "n_models"]].tolist() == [4, 2]
    assert table.loc[("at 20%", "always_continue"), "regret_saved"] == 0


def test_where_starting_was_right_counts_the_best(family):
    right = where_starting_was_right(decision_table(*family))
    assert right["n_decisions"].sum() == 4
    assert right["starting_was_best"].between(0, 1).all()


def test_every_alternative_of_the_configuration_spends_what_its_base_run_had_left():
    config = yaml.safe_load((ROOT / "config/decisions.yaml").read_text())
    entries, steps = config["models"], config["training"]["steps"]
    known = {"tiny-3k": 2936, "small-7k": 7408, "med-21k": 20640, "large-46k": 46368, "xl-97k": 97200}
    assert set(config["sweep"]["models"]) == set(entries)
    shapes = {}
    for name, entry in entries.items():
        parts = ALTERNATIVE.fullmatch(name)
        size = parts["size"] if parts else name.removesuffix("-long")
        shape = {key: entry[key] for key in ("d_model", "n_layers", "n_heads")}
        assert shapes.setdefault(size, shape) == shape
        if parts:
            base = entries[parts["base"]].get("training", {}).get("steps", steps)
            left = (1 - int(parts["percent"]) / 100) * base * known[parts["base"].removesuffix("-long")]
            assert known[size] * entry["training"]["steps"] == pytest.approx(left, rel=0.01)


def test_the_committed_results_follow_from_the_committed_tables(tmp_path):
    """The decisions of one seed of five, which are made apart; what is computed of the decisions, of all of them."""
    models = pd.read_csv(TABLES / "models.csv")
    models[models["seed"] == 3].to_csv(tmp_path / "models.csv", index=False)
    for name in ("log.csv.gz", "metrics.csv", "features.csv"):
        shutil.copy(TABLES / name, tmp_path)
    own([], tmp_path)
    decisions = pd.read_csv(TABLES / "decisions.csv")
    of_seed = decisions[decisions["model"].str.endswith(".seed3")].reset_index(drop=True)
    same = {"rtol": 1e-4, "atol": 1e-6}
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "decisions.csv"), of_seed, **same)
    decisions = decisions.assign(truth=OBSERVED)
    policies, right = policy_table_of_own(decisions), where_starting_was_right(decisions)
    known = pd.read_csv(TABLES / "policies.csv")
    pd.testing.assert_frame_equal(policies[list(known)], known, **same)
    pd.testing.assert_frame_equal(right, pd.read_csv(TABLES / "right.csv"), check_dtype=False, **same)


def test_the_numbers_of_the_page_are_those_of_the_tables():
    page = " ".join((ROOT / "studies/decisions/README.md").read_text().split())
    decisions = pd.read_csv(TABLES / "decisions.csv", keep_default_na=False, na_values=[""])
    policies = pd.read_csv(TABLES / "policies.csv")
    policies = policies[policies["decisions"] == "all"].set_index("policy")
    oracle = policies.loc["oracle"]
    bounds = f"{oracle['regret_saved_low']:.3f} to {oracle['regret_saved_high']:.3f}"
    assert f"{oracle['regret_saved']:.3f} nats ({bounds}) better than always continuing" in page
    advice = decisions[decisions["policy"] == "advice"]
    finish, confident = advice["best"] == "continue", advice["is_confident"].astype(bool)
    assert f"Continuing was best in {finish.sum()} of the {len(advice)} decisions" in page
    assert f"and scaling up in {(~finish).sum()}:" in page
    right = (advice["regret"][confident] <= 0).sum()
    assert f"confident in {confident.sum()} of the {len(advice)} decisions (right in {right})" in page
    followed = f"to follow the joint law all the same has {policies.loc['expected_regret', 'regret']:.3f}."
    assert f"there is no choice has a mean regret of {advice['regret'].mean():.3f} nats; {followed}" in page
    # No policy is better than continuing but the one that knows the outcomes.
    assert (policies.drop(index="oracle")["regret_saved_low"] <= 0).all()
    assert f"In {(advice['reason'].fillna('') != '').sum()} of the {len(advice)} decisions fewer than three" in page
