"""The fourth study: its page has the numbers of its tables, and all runs of the plan are there."""

import numpy as np
import pandas as pd
import pytest

from paths import ROOT
from studies import small_tables
from studies.study4 import afterwards
from studies.study4 import questions as study
from studies.study4.configurations import TABLE, complete, planned

TABLES = ROOT / "studies/study4/tables"
PAGE = " ".join((ROOT / "studies/study4/README.md").read_text().split())
PRIMARY = pd.read_csv(TABLES / "primary.csv")
SECONDARY = pd.read_csv(TABLES / "secondary.csv").set_index(["question", "rate"])
RATES = (0.003, 0.01)


def interval(row):
    """Return a correlation with its interval as the page prints it."""
    return f"{row['estimate']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})"


def estimates(question):
    """Return the estimates of a secondary test at both rates as the page prints them."""
    return " and ".join(f"{SECONDARY.loc[(question, rate), 'estimate']:+.3f}" for rate in RATES)


def test_every_configuration_of_the_plan_is_complete():
    configurations = planned(ROOT)
    assert sum(len(one.runs) for one in configurations) == 3200
    assert all(complete(TABLES, one) for one in configurations)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("question", list(dict.fromkeys(PRIMARY["question"])))
def test_the_primary_table_of_the_page(rate, question):
    rows = PRIMARY.query("rate == @rate and question == @question").set_index("statistic")
    mean, squares = rows.loc["mean"], rows.loc["sum of squares"]
    ps = " | ".join(f"{value:.2g}" for value in (mean["p"], mean["q"], squares["p"], squares["q"]))
    assert f"{question} | {interval(mean)} | {ps} |" in PAGE


def test_the_verdict_and_the_control():
    answers = study.answers_of(PRIMARY)
    assert study.verdict(answers).value.startswith("Neither")
    control = pd.read_csv(TABLES / "control.csv").set_index("rate")
    assert "the loss at 50% has " + " and ".join(interval(control.loc[rate]) for rate in RATES) in PAGE
    assert (control["p"] < 0.001).all()


def test_the_secondary_numbers_of_the_page():
    assert f"The score of H0 among its surrogates has {estimates('score of h0 among surrogates')}" in PAGE
    given = [estimates(f"{name} given the norms") for name in ("h0_mean", "h0_mean of surrogates", "nuclear norm")]
    assert "`h0_mean` has {}, its surrogates {}, the nuclear norm {}".format(*given) in PAGE
    assert f"The surrogates keep {estimates('surrogates beyond h0')} given `h0_mean`" in PAGE
    by_size = [SECONDARY.loc[(f"h0 beyond the nuclear norm, {size} parameters", 0.003)] for size in (2936, 7408)]
    assert f"has {interval(by_size[0])} in 2,936 parameters and {interval(by_size[1])} in 7,408" in PAGE
    own = [SECONDARY.loc[(f"h0 beyond surrogates, {size} parameters", 0.003)] for size in (2936, 7408)]
    assert f"these are {own[0]['estimate']:+.3f} and {own[1]['estimate']:+.3f}" in PAGE
    assert all(row["low"] < 0 < row["high"] for row in own)
    rates = pd.read_csv(TABLES / "rates.csv").set_index("question")
    assert f"do not differ in question 3 (p {rates.loc['nuclear norm beyond h0', 'p']:.2f})" in PAGE


def test_the_estimates_follow_from_the_committed_runs():
    [models] = small_tables.read_configurations(TABLES, [TABLE], "")
    again = study.by_configuration(study.tables_of(models), (*study.PRIMARY, *study.SECONDARY))
    expected = pd.read_csv(TABLES / "configurations.csv").set_index("configuration")
    pd.testing.assert_frame_equal(again.set_index("configuration").loc[expected.index], expected, rtol=1e-5)


def test_a_partial_correlation_is_that_of_two_regressions():
    [models] = small_tables.read_configurations(TABLES, [TABLE], "")
    name = "small-7k-fourth.lr0.01.wd0"
    runs = models[models["model"].str.startswith(f"{name}.") & ~models["model"].str.startswith(f"{name}.1")]
    assert len(runs) == 400
    early, now = (runs[f"validation_loss_at_{share}%"] for share in (20, 30))
    norms = runs[["frobenius_norm", "mean_layer_norm", "mean_row_norm", "surrogate_h0_mean"]]
    controls = np.column_stack([np.ones(400), early, now, (now - now.mean()) ** 2, norms])
    left = [
        values - controls @ np.linalg.lstsq(controls, values)[0]
        for values in (runs["h0_mean"].to_numpy(), runs["validation_loss_at_100%"].to_numpy())
    ]
    expected = pd.read_csv(TABLES / "configurations.csv").set_index("configuration").loc[name, "h0 beyond surrogates"]
    assert np.corrcoef(left)[0, 1] == pytest.approx(expected, abs=1e-3)


def test_what_was_looked_at_afterwards_follows_from_the_committed_runs():
    [models] = small_tables.read_configurations(TABLES, [TABLE], "")
    for name in ("mixture", "mode", "pooled"):
        again = getattr(afterwards, f"{name}_table")(models)
        expected = pd.read_csv(TABLES / {"mixture": "mixtures.csv", "mode": "modes.csv", "pooled": "pooled.csv"}[name])
        pd.testing.assert_frame_equal(again, expected, rtol=1e-5, check_dtype=False)


def test_the_modes_of_the_page():
    mixtures = pd.read_csv(TABLES / "mixtures.csv").set_index("configuration")
    two = mixtures[mixtures["bimodal"]]
    assert list(two.index) == ["tiny-3k-fourth.lr0.003.wd0", "tiny-3k-fourth.lr0.003.wd0.1"]
    first, second = (row for _, row in two.iterrows())
    gains = (
        f"by {first['bic_difference']:.0f} of BIC without weight decay and by {second['bic_difference']:.0f} with it"
    )
    means = [f"{row['low_mean']:.3f} and {row['high_mean']:.3f}" for row in (first, second)]
    assert f"{gains}, with means of {means[0]}, and of {means[1]} (Ashman's D" in PAGE
    modes = pd.read_csv(TABLES / "modes.csv").set_index("mode")
    for (configuration, question), rows in modes.groupby(["configuration", "question"]):
        told = " | ".join(interval(rows.loc[mode]) for mode in ("low", "high", "which mode"))
        assert f"| {configuration} | {question} | {told} |" in PAGE


def test_the_pooled_correlations_of_the_page():
    for _, row in pd.read_csv(TABLES / "pooled.csv").iterrows():
        told = f"| {row['rates']} | {row['question']} | {row['p_of_q']:.2g} | {row['tau']:.3f} | {interval(row)} |"
        assert told in PAGE
        if np.isfinite(row["margin"]):
            assert (
                f"{told} {row['margin']:.2f} | {row['p_equivalent']:.2g} | {row['p_equivalent_random']:.2g} |"
            ) in PAGE


def test_the_scores_among_surrogates_with_row_norms_are_nearly_those_without():
    rows = pd.read_csv(TABLES / "row_norms.csv")
    assert (rows["runs"] == 20).all()
    assert np.corrcoef(rows["spectrum"], rows["row norms too"])[0, 1] > 0.99
    assert (rows["row norms too"] / rows["spectrum"]).between(0.8, 1.4).all()
