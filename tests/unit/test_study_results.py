"""The committed study: its page has the numbers of its tables, and those follow from the small tables beside them."""

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from studies import small_tables
from studies.study import questions as study
from toposcale.statistics.multiple_testing import holm

STUDY = ROOT / "studies/study/tables/study"
PAGE = " ".join((ROOT / "docs/study.md").read_text().split())


def interval(row, value, low, high):
    return f"{row[value]:+.3f} ({row[low]:+.3f} to {row[high]:+.3f})"


def primary_rows():
    """The rows of the page's table of the four primary tests."""
    return [
        f"| {row['question']} | `{row['feature']}` | {interval(row, 'estimate', 'low', 'high')} | {row['p']:.3g} | "
        f"{row['q']:.3g} |"
        for row in pd.read_csv(STUDY / "primary.csv").to_dict("records")
    ]


def forecast_rows():
    """The rows of the page's table of forecasts: mean absolute errors by predictors, and the gain of topology."""
    return [
        f"| {row['left_out']}, {row['method']} | {row['error_loss']:.4f} | {row['error_plain']:.4f} | "
        f"{row['error_topology']:.4f} | {gain(row)} |"
        for row in pd.read_csv(STUDY / "forecasts.csv").to_dict("records")
    ]


def gain(row):
    if np.isnan(row["gain_low"]):
        return f"{row['gain']:+.4f}"
    return f"{row['gain']:+.4f} ({row['gain_low']:+.4f} to {row['gain_high']:+.4f})"


@pytest.mark.parametrize("row", [*primary_rows(), *forecast_rows()])
def test_every_row_of_the_page_is_that_of_a_table(row):
    assert row in PAGE


def test_the_readme_tells_question_A_as_the_table_has_it():
    readme = " ".join((ROOT / "README.md").read_text().split())
    for row in pd.read_csv(STUDY / "primary.csv").query("question == 'A'").to_dict("records"):
        estimate, bounds = interval(row, "estimate", "low", "high").split(" (")
        assert f"{estimate} ({bounds[:-1]}, " in readme
        assert f"{row['q']:.2f}" in readme


def test_all_runs_of_the_plan_are_there_and_each_is_in_both_tables():
    models, series, early = (
        pd.read_csv(STUDY / name) for name in ("models.csv", "series.csv.gz", "early.csv.gz")
    )
    assert models["cell"].value_counts().tolist() == [40] * 12
    assert models["seed"].is_unique
    assert set(models["model"]) == set(series["model"]) == set(early["model"])
    assert series.groupby("model").size().eq(51).all()
    assert early["step"].eq(180).all()


def test_the_spread_of_the_cells_is_what_the_page_says():
    models, series = pd.read_csv(STUDY / "models.csv"), pd.read_csv(STUDY / "series.csv.gz")
    final = series[series["step"] == 600].merge(models[["model", "cell"]], on="model")
    spread = final.groupby("cell")["validation_loss"].std()
    said = f"is {spread.min():.3f} nats in one cell and {spread.max():.3f} in another"
    assert said in PAGE


def test_question_A_follows_from_the_small_tables():
    models, series, early = (
        pd.read_csv(STUDY / name) for name in ("models.csv", "series.csv.gz", "early.csv.gz")
    )
    features, metrics = small_tables.long_tables(series, early)
    followed = features[features["feature"].isin([*study.PRIMARY, "frobenius_norm"])]
    found = study.question_a(followed, metrics, models, study.SEED, "A")
    found = found.set_index("feature").loc[list(study.PRIMARY)]
    primary = pd.read_csv(STUDY / "primary.csv")
    own = primary[primary["question"] == "A"].set_index("feature").loc[list(study.PRIMARY)]
    assert found["estimate"].to_numpy() == pytest.approx(own["estimate"].to_numpy(), rel=1e-6)
    assert found["p"].to_numpy() == pytest.approx(own["p"].to_numpy(), rel=1e-6)
    assert primary["q"].to_numpy() == pytest.approx(holm(primary["p"].to_numpy()), rel=1e-6)
