"""The measured false-positive rates: what is crossed with what, what the table marks, and what the study's cells show."""

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from studies.nulls import __main__ as nulls
from studies.nulls.cells import cells_of
from toposcale.analysis.simulated_early import SimulatedEarlyFeatures
from toposcale.io.errors import UserError

STUDY = ROOT / "studies/study/tables/study"


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
    kept, above = [(0.0, 0.0)] * 7 + [(0.4, 1.0)], [(0.5, 1.0), (0.4, 1.0)] * 4
    found = {"a": {"used": kept, "withdrawn: it": above}, "b": {"used": kept}}
    for place in (0, 1):
        table, all_kept = nulls.level_table(found, place)
        assert all_kept
        assert table.set_index("cell").loc["a", "withdrawn: it"].endswith(" !")
        assert table.iloc[-1].tolist() == ["**kept**", "yes", "NO"]
    assert table.loc[0, "used"] == "12.5 ± 12.5"
    _, all_kept = nulls.level_table(found | {"b": {"used": above}}, 0)
    assert not all_kept


def test_unrelated_runs_of_the_larger_size_share_a_course_that_the_norm_takes_up(cells):
    found = nulls.levels(cells["med-21k.lr0.003.wd0"], 25, nulls.GIVEN, over_seeds=False)
    rate = {test: np.mean(draws, axis=0)[0] for test, draws in found.items()}
    assert rate["withdrawn: given step, 5 runs together"] > 0.15
    # 25 draws of two features at 5%: 16% has probability 0.003 if the features are independent.
    assert rate["given norm, 5 runs together"] < 0.16
    assert "given norm and variance, one run" not in rate


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
