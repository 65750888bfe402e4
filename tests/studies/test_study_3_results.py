"""The third study: its page has the numbers of its tables, and all runs of the plan are there."""

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from studies.study3 import afterwards
from studies.study3.configurations import TABLES as KINDS
from toposcale.analysis.sensitivity import PARAMETERS
from toposcale.statistics.multiple_testing import holm

TABLES = ROOT / "studies/study3/tables"
PAGE = " ".join((ROOT / "docs/study-3.md").read_text().split())
PRIMARY, CONTROL, SECONDARY = (pd.read_csv(TABLES / f"{name}.csv") for name in ("primary", "control", "secondary"))


def interval(row):
    return f"{row['estimate']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})"


def test_every_test_of_the_plan_stands_on_the_page():
    for row in PRIMARY.to_dict("records"):
        outcome = "final gap" if "gap" in row["outcome"] else "final loss"
        numbers = f"{interval(row)} | {row['p']:.2g} | {row['q']:.2g} | {row['detectable']:.2f} |"
        assert f"| {row['question']} | `{row['feature']}` | {outcome} | {numbers}" in PAGE
    for row in CONTROL.to_dict("records"):
        assert f"| `{row['feature']}` | {interval(row)} | {row['p']:.2g} |" in PAGE


@pytest.mark.parametrize("feature", ["h0_total", "h0_mean"])
def test_the_page_tells_what_there_is_without_the_nuclear_norm(feature):
    [row] = SECONDARY[
        SECONDARY["question"].str.endswith("without the nuclear norm") & (SECONDARY["feature"] == feature)
    ].to_dict("records")
    assert f"{row['estimate']:+.3f}" in PAGE


def test_the_q_values_are_those_of_holm_over_six():
    assert len(PRIMARY) == 6
    np.testing.assert_allclose(PRIMARY["q"], holm(PRIMARY["p"].to_numpy()), rtol=1e-6)
    assert set(PRIMARY["n_models"]) == {664}


def test_all_runs_of_the_plan_are_there_with_a_seed_of_their_own():
    tables = {
        kind: pd.concat([pd.read_csv(path) for path in sorted((TABLES / kind).glob("*.csv.gz"))], ignore_index=True)
        for kind in KINDS
    }
    models = tables["models"]
    assert len(models) == models["seed"].nunique() == 664
    assert all(set(table["model"]) == set(models["model"]) for table in tables.values())
    assert tables["series"].groupby("model").size().eq(51).all()
    # `make nulls` measures the false-positive rates in these configurations, so answers about these sizes are inside of
    # what was measured.
    assert (models["n_parameters"].min(), models["n_parameters"].max()) == PARAMETERS
    assert set(models["configuration"]) <= set(
        pd.read_csv(ROOT / "studies/nulls/false_positive_rates.csv")["configuration"]
    )


def test_the_controls_that_must_be_found_are_found():
    assert (CONTROL["low"] > 0).all()


def test_what_was_looked_at_afterwards_stands_on_the_page():
    tables = afterwards.read()
    tests = afterwards.of_tests(tables).set_index("test")
    low, high = (tests[f"rate {rate}"] for rate in afterwards.RATES)
    assert f"test 3 has {low['3']:+.3f} and test 4 {low['4']:+.3f}" in PAGE
    assert f"they have {high['3']:+.3f} and {high['4']:+.3f}" in PAGE
    assert f"differ in test 3 with p {tests.loc['3', 'p_of_difference']:.3f}" in PAGE
    spread, p = tests.loc["2", ["q_of_heterogeneity", "p"]]
    assert f"(Q = {spread:.1f} on 16 degrees of freedom, p {p:.4f})" in PAGE
    (at_low, _), (at_high, mean) = afterwards.likelihood_ratios(tables).set_index("rate").to_numpy()
    assert f"is {at_low:.0f} times that of `h0_total` at 0.003, and {at_high:.2f} times at 0.01" in PAGE
    assert f"there it is {mean:.2f} times that of `h0_mean`" in PAGE
    rank, norm = afterwards.given_more(tables)["estimate"]
    assert f"keeps {rank:+.3f} given the stable rank, and {norm:+.3f} given the spectral norm" in PAGE
    yardstick = afterwards.yardstick(tables)
    assert f"variance inflation factor {yardstick['vif']:.0f}" in PAGE
    assert f"would expect {yardstick['expected']:.3f}, which it would find in {yardstick['power']:.0%}" in PAGE


def test_the_last_p_is_the_floor_of_the_permutations_and_is_corrected_for_all_tests():
    assert PRIMARY["p"].min() == pytest.approx(1 / 200_001)
    n_tests = len(PRIMARY) + len(SECONDARY)
    assert f"corrected for all {n_tests} tests" in PAGE
    assert f"it is {n_tests * PRIMARY['p'].min():.4f}" in PAGE


def test_the_runs_took_so_long():
    models = pd.concat([pd.read_csv(path) for path in sorted((TABLES / "models").glob("*.csv.gz"))])
    assert f"{models['cpu_s'].sum() / 3600:.1f} hours for all 664" in PAGE
