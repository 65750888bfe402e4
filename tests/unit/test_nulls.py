"""The measured false-positive rates: what is crossed with what, what the table marks, and what the study's cells show."""

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from studies.nulls import __main__ as nulls
from studies.nulls.cells import cells_of
from studies.nulls.crossed import CrossedInnovations, rates, run_permutations
from toposcale.analysis.controls import CONTROLS
from toposcale.analysis.over_seeds import run_permutation_table
from toposcale.analysis.pooled import joint_test
from toposcale.analysis.simulated_features import SimulatedEarlyFeatures
from toposcale.io.errors import UserError

STUDY, SECOND = ROOT / "studies/study/tables/study", ROOT / "studies/study2/tables"
NORM = CONTROLS["weight_norm"]


@pytest.fixture(scope="module")
def cells():
    return {cell.name: cell for cell in cells_of(STUDY)}


def test_the_cells_of_the_study_are_read_from_its_tables(cells, tmp_path):
    assert len(cells) == 12
    for cell in cells.values():
        assert len(cell.models) == len(cell.features) == len(cell.metrics) == 40
        assert set(cell.models["cell"]) == {cell.name}
        assert cell.metric == "validation_loss"
    with pytest.raises(UserError, match=r"no models.csv and no tables/models.parquet"):
        list(cells_of(tmp_path))


def test_a_crossed_run_has_the_features_and_norm_of_one_run_and_the_losses_of_another(cells):
    cell = next(iter(cells.values()))
    one, two = list(cell.features)[:2]
    features, metrics, models = cell.crossed([one], [two], one_cell=True)
    expected = cell.features[one].drop(columns="model").to_numpy()
    np.testing.assert_array_equal(features.drop(columns="model").to_numpy(), expected)
    np.testing.assert_array_equal(metrics["value"], cell.metrics[two]["value"])
    assert set(features["model"]) == set(metrics["model"]) == set(models["model"]) == {"run-00"}
    assert models["cell"].item() == cell.name
    assert models["warmup_steps"].item() == 60


def test_the_table_marks_what_is_above_its_limit_by_more_than_two_errors():
    row = {"cell": "a", "n_runs": 40, "test": "t", "feature": "h0_total", "draws": 100, "found": 0.12, "error": 0.03}
    rows = pd.DataFrame([row, row | {"cell": "b", "error": 0.02}, row | {"feature": "h0_mean", "found": 0.05}])
    assert list(nulls.is_kept(rows)) == [True, False, True]
    table = nulls.level_table(rows).set_index("cell")
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


def test_the_tests_on_arrays_are_those_of_the_report(cells):
    """One run, five together, and the run permutation: the same p as from the tables of crossed runs."""
    cell = cells["small-7k.lr0.01.wd0"]
    names, features = list(cell.features), ["h0_total_scaled", "neural_persistence"]
    crossed = CrossedInnovations(cell, features, NORM)
    for size, tested in ((1, crossed.every_pair()), (5, crossed.together(5, 3))):
        for draw in range(2):
            chosen = [names[run] for run in tested.runs[draw]]
            tables = cell.crossed(chosen[:size], chosen[size:], one_cell=False)
            table = joint_test(*tables, NORM).set_index("feature")["p"]
            np.testing.assert_allclose(tested.p[draw], table[features], rtol=1e-6)
    tested = run_permutations(cell, features, NORM, 8, 2)
    for draw in range(2):
        chosen = [names[run] for run in tested.runs[draw]]
        tables = cell.crossed(chosen[:8], chosen[8:], one_cell=True)
        table = run_permutation_table(*tables, metric=cell.metric, seed=0).set_index("feature")["p"]
        np.testing.assert_allclose(tested.p[draw], table[features], atol=1e-4)


def test_every_ordered_pair_of_different_runs_is_tested_once(cells):
    crossed = CrossedInnovations(cells["tiny-3k.lr0.01.wd0"], ["h0_total_scaled"], NORM)
    pairs = set(map(tuple, crossed.every_pair().runs))
    assert len(pairs) == 40 * 39
    assert all(one != other for one, other in pairs)


def test_five_unrelated_runs_keep_their_level_where_they_did_not_before():
    """Unscaled H0 in small at rate 0.01 without decay: 13% before the trend had the course of the learning rate."""
    [cell] = [cell for cell in cells_of(SECOND) if cell.name == "small-7k-again.lr0.01.wd0"]
    tested = CrossedInnovations(cell, ["h0_total"], NORM).together(5, 1_000)
    share, error = rates(tested.p <= 0.05, tested.runs, 40)
    assert share[0] - 2 * error[0] <= 0.07
    assert share[0] < 0.10


def test_a_question_is_measured_where_its_controls_are(cells):
    cell = cells["tiny-3k.lr0.01.wd0"]
    assert nulls.tested_features(cell, NORM) == ["h0_total_scaled", "neural_persistence"]
    assert nulls.tested_features(cell, CONTROLS["weight_norm_and_spectrum"]) == []
    assert nulls.tested_features(cell, CONTROLS["weight_norm_and_variance"]) == []


def test_features_simulated_between_runs_have_the_correlation_that_is_wanted(cells):
    chosen = [cells[name].whole for name in ("tiny-3k.lr0.003.wd0", "med-21k.lr0.01.wd0")]
    features, metrics, models = (pd.concat(tables) for tables in zip(*chosen, strict=True))
    simulated = SimulatedEarlyFeatures(features, metrics, models)
    assert len(simulated.names) == 80
    effects = np.repeat([0.0, 0.5, 0.9], 150)
    measured, p = simulated.test(effects, seed=1, purpose=0)
    by_effect = pd.DataFrame({"effect": effects, "r": measured, "found": p <= 0.05}).groupby("effect").mean()
    np.testing.assert_allclose(by_effect["r"], [0.0, 0.5, 0.9], atol=0.03)
    # 150 draws at 5%: more than 10.5% has probability 0.003.
    assert by_effect.loc[0.0, "found"] <= 0.105
    assert by_effect.loc[0.5, "found"] >= 0.95
    assert by_effect.loc[0.9, "found"] == 1
