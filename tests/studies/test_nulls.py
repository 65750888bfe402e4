"""The measured false-positive rates: what is crossed with what, what the table marks, and what the runs of
studies 1 to 3 show."""

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from studies.nulls import __main__ as nulls
from studies.nulls.configurations import RUNS, configurations_of, table_of
from studies.nulls.crossed import CrossedResiduals, rates, run_permutations
from studies.over_seeds import run_permutation_table
from toposcale.analysis.controls import CONTROLS
from toposcale.analysis.correlations import controlled_runs, joint_test
from toposcale.analysis.sensitivity import PARAMETERS
from toposcale.io.errors import UserError

NORM = CONTROLS["weight_norm"]


@pytest.fixture(scope="module")
def configurations():
    return {configuration.name: configuration for configuration in configurations_of(RUNS / "study-1")}


def test_the_configurations_of_study_1_are_read_from_its_tables(configurations, tmp_path):
    assert len(configurations) == 12
    for configuration in configurations.values():
        assert len(configuration.models) == len(configuration.features) == len(configuration.metrics) == 40
        assert set(configuration.models["configuration"]) == {configuration.name}
        assert configuration.metric == "validation_loss"
    with pytest.raises(UserError, match=r"no models.csv and no tables/models.parquet"):
        list(configurations_of(tmp_path))


def test_every_run_of_the_three_studies_is_there_and_the_rates_of_its_configuration_are_measured():
    rates_of = set(pd.read_csv(nulls.RATES)["configuration"])
    seeds, n_parameters = [], set()
    for folder, n_runs in zip(nulls.FOLDERS, (480, 600, 664), strict=True):
        models, series, early = (table_of(folder, name) for name in ("models", "series", "early"))
        assert len(models) == n_runs
        assert set(models["model"]) == set(series["model"]) == set(early["model"])
        assert series.groupby("model").size().eq(51).all()
        assert early["step"].eq(180).all()
        assert set(models["configuration"]) <= rates_of
        n_parameters |= set(models["n_parameters"])
        seeds += models["seed"].tolist()
    assert len(set(seeds)) == len(seeds)
    # Answers about these sizes are inside of what was measured.
    assert (min(n_parameters), max(n_parameters)) == PARAMETERS


def test_a_crossed_run_has_the_features_and_norm_of_one_run_and_the_losses_of_another(configurations):
    configuration = next(iter(configurations.values()))
    one, two = list(configuration.features)[:2]
    features, metrics, models = configuration.crossed([one], [two], one_configuration=True)
    expected = configuration.features[one].drop(columns="model").to_numpy()
    np.testing.assert_array_equal(features.drop(columns="model").to_numpy(), expected)
    np.testing.assert_array_equal(metrics["value"], configuration.metrics[two]["value"])
    assert set(features["model"]) == set(metrics["model"]) == set(models["model"]) == {"run-00"}
    assert models["configuration"].item() == configuration.name
    assert models["warmup_steps"].item() == 60


def test_the_table_marks_what_is_above_its_limit_by_more_than_two_errors():
    row = {
        "configuration": "a",
        "n_runs": 40,
        "test": "t",
        "feature": "h0_total",
        "draws": 100,
        "found": 0.12,
        "error": 0.03,
    }
    rows = pd.DataFrame([row, row | {"configuration": "b", "error": 0.02}, row | {"feature": "h0_mean", "found": 0.05}])
    assert list(nulls.is_kept(rows)) == [True, False, True]
    table = nulls.rate_table(rows).set_index("configuration")
    assert list(table.columns) == ["h0_total", "h0_mean"]
    assert table["h0_total"].tolist() == ["12.0 ± 3.0", "12.0 ± 2.0 !"]
    assert table["h0_mean"].tolist() == ["5.0 ± 3.0", ""]
    above = nulls.overview(rows).set_index("feature")["above the limit"]
    assert (above["h0_total"], above["h0_mean"]) == ("b", "none")


def test_the_error_of_a_rate_is_that_over_runs():
    """A test that finds something wherever run 0 or 1 takes part: draws do not make these runs more."""
    random = np.random.default_rng(0)
    runs = random.permuted(np.tile(np.arange(40), (20_000, 1)), axis=1)[:, :2]
    found = np.column_stack([(runs <= 1).any(axis=1), random.random(len(runs)) < 0.1])
    share, error = rates(found, runs, 40)
    assert share[0] == pytest.approx(0.1, abs=0.01)
    # Each of two of 40 runs makes its part alone: a share of 2 x 1/20 with an error of a twentieth of sqrt(2).
    assert error[0] == pytest.approx(2 * np.sqrt(2 / 40 * 38 / 40 / 40), rel=0.15)
    # Independent draws have the error of independent draws.
    assert error[1] == pytest.approx(np.sqrt(0.1 * 0.9 / len(runs)), rel=0.7)


def test_the_tests_on_arrays_are_those_of_the_report(configurations):
    """One run, five together, and the run permutation: the same p as from the tables of crossed runs."""
    configuration = configurations["small-7k.lr0.01.wd0"]
    names, features = list(configuration.features), ["h0_total_scaled", "neural_persistence"]
    crossed = CrossedResiduals(configuration, features, NORM)
    for size, tested in ((1, crossed.every_pair()), (5, crossed.together(5, 3))):
        for draw in range(2):
            chosen = [names[run] for run in tested.runs[draw]]
            tables = configuration.crossed(chosen[:size], chosen[size:], one_configuration=False)
            table = joint_test(controlled_runs(*tables, NORM), tables[2]).set_index("feature")["p"]
            np.testing.assert_allclose(tested.p[draw], table[features], rtol=1e-6)
    tested = run_permutations(configuration, features, NORM, 8, 2)
    for draw in range(2):
        chosen = [names[run] for run in tested.runs[draw]]
        tables = configuration.crossed(chosen[:8], chosen[8:], one_configuration=True)
        table = run_permutation_table(*tables, metric=configuration.metric, seed=0).set_index("feature")["p"]
        np.testing.assert_allclose(tested.p[draw], table[features], atol=1e-4)


def test_every_ordered_pair_of_different_runs_is_tested_once(configurations):
    crossed = CrossedResiduals(configurations["tiny-3k.lr0.01.wd0"], ["h0_total_scaled"], NORM)
    pairs = set(map(tuple, crossed.every_pair().runs))
    assert len(pairs) == 40 * 39
    assert all(one != other for one, other in pairs)


def test_five_unrelated_runs_keep_their_false_positive_rate_where_they_did_not_before():
    """Unscaled H0 in small at rate 0.01 without decay: 13% before the trend had the course of the learning rate."""
    [configuration] = [
        configuration
        for configuration in configurations_of(RUNS / "study-2")
        if configuration.name == "small-7k-again.lr0.01.wd0"
    ]
    tested = CrossedResiduals(configuration, ["h0_total"], NORM).together(5, 1_000)
    share, error = rates(tested.p <= 0.05, tested.runs, 40)
    assert share[0] - 2 * error[0] <= 0.07
    assert share[0] < 0.10


def test_a_question_is_measured_where_its_controls_are(configurations):
    configuration = configurations["tiny-3k.lr0.01.wd0"]
    assert nulls.tested_features(configuration, NORM) == ["h0_total_scaled", "neural_persistence"]
    assert nulls.tested_features(configuration, CONTROLS["weight_norm_and_spectrum"]) == []
    assert nulls.tested_features(configuration, CONTROLS["weight_norm_and_variance"]) == []


def test_the_page_and_the_results_have_the_committed_rates():
    rates, power = (pd.read_csv(ROOT / path) for path in (nulls.RATES, nulls.POWER))
    assert (ROOT / nulls.RATES).with_name("results.md").read_text() == nulls.page(rates, power)
    page = (ROOT / "docs/statistics.md").read_text()
    mean = {(row.test, row.feature): row.mean for row in nulls.overview(rates).itertuples()}
    for test in dict.fromkeys(test for test, _ in mean):
        if "variance" not in test:
            assert (
                f"| {test} | "
                + " | ".join(mean[test, feature] for feature in ("h0_total", "h0_mean", "neural_persistence"))
                + " |"
                in page
            )
    one, five = (power[f"{who}, r = 0.5"] for who in ("one run", "5 runs together"))
    assert f"of 0.5 is found in {one.min():.0%}".rstrip("%") + f" to {one.max():.0%} of single runs" in page
    assert (five == 1).all()
