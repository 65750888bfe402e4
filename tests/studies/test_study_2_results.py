"""The second study: its page has the numbers of its tables, and all runs of the plan are there."""

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from studies.study2 import __main__ as study_2
from studies.study2 import questions as study
from toposcale.statistics.multiple_testing import holm

TABLES = ROOT / "studies/study2/tables"
PAGE = " ".join((ROOT / "docs/study-2.md").read_text().split())


def interval(row):
    return f"{row['estimate']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})"


@pytest.mark.parametrize("table", ["primary", "control"])
def test_every_test_of_the_plan_stands_on_the_page(table):
    for row in pd.read_csv(TABLES / f"{table}.csv").to_dict("records"):
        numbers = f"{row['p']:.2g} | {row['q']:.2g}" if "q" in row else f"{row['p']:.2g}"
        assert f"| {row['question']} runs | `{row['feature']}` | {interval(row)} | {numbers} |" in PAGE


def test_the_q_values_are_those_of_holm_over_six():
    primary = pd.read_csv(TABLES / "primary.csv")
    assert len(primary) == 6
    np.testing.assert_allclose(primary["q"], holm(primary["p"].to_numpy()), rtol=1e-6)
    assert set(primary["n_models"]) == {600}


def test_all_runs_of_the_plan_are_there_with_every_checkpoint():
    models, series, early = study_2.read(TABLES)
    assert models["seed"].is_unique
    assert set(models["model"]) == set(series["model"]) == set(early["model"])
    assert series.groupby("model").size().eq(51).all()
    assert series[["validation_loss", *study.FOLLOWED]].notna().all(axis=None)
    assert early["step"].eq(180).all()


def test_the_estimate_between_runs_is_the_mean_of_the_configurations():
    configurations = pd.read_csv(TABLES / "configurations.csv").set_index("configuration")
    primary = pd.read_csv(TABLES / "primary.csv").query("question == 'between'").set_index("feature")
    for feature in study.PRIMARY:
        assert primary.loc[feature, "estimate"] == pytest.approx(configurations[feature].mean(), abs=1e-6)
