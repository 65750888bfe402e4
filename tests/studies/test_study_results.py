"""The committed study: its page has the numbers of its tables, and those follow from the small tables beside them."""

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from studies import small_tables
from studies.study import corrections
from studies.study import questions as study
from toposcale.analysis.over_seeds import early_values
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


def test_all_runs_of_the_plan_are_there_and_each_is_in_both_tables():
    models, series, early = (pd.read_csv(STUDY / name) for name in ("models.csv", "series.csv.gz", "early.csv.gz"))
    assert models["configuration"].value_counts().tolist() == [40] * 12
    assert models["seed"].is_unique
    assert set(models["model"]) == set(series["model"]) == set(early["model"])
    assert series.groupby("model").size().eq(51).all()
    assert early["step"].eq(180).all()


def test_the_spread_of_the_configurations_is_what_the_page_says():
    models, series = pd.read_csv(STUDY / "models.csv"), pd.read_csv(STUDY / "series.csv.gz")
    final = series[series["step"] == 600].merge(models[["model", "configuration"]], on="model")
    spread = final.groupby("configuration")["validation_loss"].std()
    said = f"is {spread.min():.3f} nats in one configuration and {spread.max():.3f} in another"
    assert said in PAGE


def test_question_A_follows_from_the_small_tables():
    models, series, early = (pd.read_csv(STUDY / name) for name in ("models.csv", "series.csv.gz", "early.csv.gz"))
    features, metrics = small_tables.long_tables(series, early)
    followed = features[features["feature"].isin([*study.PRIMARY, "frobenius_norm"])]
    found = study.question_a(followed, metrics, models, study.SEED, "A")
    found = found.set_index("feature").loc[list(study.PRIMARY)]
    primary = pd.read_csv(STUDY / "primary.csv")
    own = primary[primary["question"] == "A"].set_index("feature").loc[list(study.PRIMARY)]
    assert found["estimate"].to_numpy() == pytest.approx(own["estimate"].to_numpy(), rel=1e-6)
    assert found["p"].to_numpy() == pytest.approx(own["p"].to_numpy(), rel=1e-6)
    assert primary["q"].to_numpy() == pytest.approx(holm(primary["p"].to_numpy()), rel=1e-6)


def corrected(what, feature=None):
    table = pd.read_csv(STUDY / "corrections.csv")
    rows = table[table["what"] == what]
    [row] = rows[rows["feature"] == feature].to_dict("records") if feature else rows.to_dict("records")
    return row


def test_the_corrections_on_the_page_are_those_of_the_table():
    for kind, words in (("one slope for all", "of the draws"), ("slopes and spread of each configuration", ".")):
        rate = corrected(f"rejected without an effect, {kind}", "h0_total_scaled")["estimate"]
        assert f"{100 * rate:g}% {words}".replace("% .", "%.") in PAGE
    mean = corrected("mean estimate without an effect, one slope for all", "h0_total_scaled")["estimate"]
    assert f"with a mean estimate of {mean:.3f}" in PAGE
    found = [corrected(f"found, an effect of {effect}, real spreads")["estimate"] for effect in ("0.20", "0.15")]
    assert PAGE.count(f"finds 0.20 in {100 * found[0]:g}% and 0.15 in {100 * found[1]:g}%") == 2
    for what, feature in (("A", "h0_total"), ("A, own slopes", "h0_mean"), ("gap", "h0_total_scaled")):
        assert f"q = {corrected(f'{what}, 200,000 permutations', feature)['q']:.3f}" in PAGE
    for feature in ("h0_total", "h0_mean"):
        row = corrected("A, slopes and spread of each configuration", feature)
        assert f"`{feature}` {interval(row, 'estimate', 'low', 'high')}, p = {row['p']:.2g}" in PAGE
    for words in (
        "configurations left out, with products",
        "configurations left out with their twins of another weight decay",
    ):
        row = corrected(f"gain of topology, ridge, {words}")
        said = f"{row['estimate']:+.4f} ({row['low']:+.4f} to {row['high']:+.4f})"
        assert f"the reduction is {said}" in PAGE


def test_one_slope_for_all_rejects_without_an_effect_and_slopes_of_each_configuration_do_not(monkeypatch):
    monkeypatch.setattr(corrections, "NULLS", 30)
    monkeypatch.setattr(corrections, "PERMUTATIONS", 199)
    models, series, early = (pd.read_csv(STUDY / name) for name in ("models.csv", "series.csv.gz", "early.csv.gz"))
    features, metrics = small_tables.long_tables(series, early)
    read = early_values(features, metrics, models, "validation_loss", ("frobenius_norm",))
    rows = {(row["what"], row["feature"]): row["estimate"] for row in corrections.rates_without_effect(read)}
    assert rows["rejected without an effect, one slope for all", "h0_total_scaled"] > 0.3
    # 30 draws at 5%: 6 or more have probability 0.003.
    assert rows["rejected without an effect, slopes and spread of each configuration", "h0_total_scaled"] < 0.2
