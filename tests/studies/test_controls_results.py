"""The key numbers of the controls, computed again from the committed runs with plain numpy and scipy."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from paths import ROOT

TABLES, STUDY_4 = ROOT / "studies/controls/tables", ROOT / "studies/study4/tables"
RUNS = pd.concat([pd.read_csv(path) for path in sorted((STUDY_4 / "models").glob("*.csv.gz"))])
NORMS = ["frobenius_norm", "mean_layer_norm", "mean_row_norm"]


def table(name):
    """A table of the controls."""
    return pd.read_csv(TABLES / f"{name}.csv")


def partial_correlation(runs, feature, given):
    """The correlation of what the losses so far, the norms and `given` leave of a feature and of the final loss, and the
    degrees of freedom that they leave."""
    early, now = (runs[f"validation_loss_at_{share}%"] for share in (20, 30))
    controls = [np.ones(len(runs)), early, now, (now - now.mean()) ** 2, *(runs[name] for name in [*NORMS, *given])]
    design = np.column_stack(controls)
    design = (design - np.r_[0, design[:, 1:].mean(axis=0)]) / np.r_[1, design[:, 1:].std(axis=0)]
    left = [
        values - design @ np.linalg.lstsq(design, values)[0]
        for values in (runs[feature].to_numpy(), runs["validation_loss_at_100%"].to_numpy())
    ]
    return np.corrcoef(left)[0, 1], len(runs) - design.shape[1] - 1


def test_every_run_of_study_4_has_a_score_below_its_surrogates():
    assert len(RUNS) == 3200
    assert RUNS["h0_surrogate_z"].max() < -3.5
    rows = table("finding").set_index("configuration")
    means = RUNS.groupby("configuration")["h0_surrogate_z"].mean()
    assert rows["mean_score"].to_numpy() == pytest.approx(means.loc[rows.index].to_numpy(), rel=1e-6)
    assert means.between(-9.85, -5.5).all()


def test_replicated_correlations_are_those_of_regressions():
    runs = pd.read_csv(TABLES / "replication.csv.gz")
    given = {"h0 beyond the nuclear norm": ("h0_mean", ["nuclear_norm"])}
    given["h0 beyond surrogates"] = ("h0_mean", ["surrogate_h0_mean"])
    given["nuclear norm beyond h0"] = ("nuclear_norm", ["h0_total", "h0_mean"])
    rows = table("replicated")
    assert len(rows)
    for row in rows.to_dict("records"):
        own = runs[runs["entry"] == row["entry"]]
        assert len(own) == row["runs"]
        feature, controls = given[row["question"]]
        found = [partial_correlation(part, feature, controls) for _, part in own.groupby("configuration")]
        correlations, degrees = np.array(found).T
        mean = np.average(correlations, weights=degrees)
        assert row["estimate"] == pytest.approx(mean, abs=1e-4)
        half = 1.959964 / np.sqrt(degrees.sum() - len(degrees))
        assert (row["low"], row["high"]) == pytest.approx(
            np.tanh([np.arctanh(mean) - half, np.arctanh(mean) + half]), abs=1e-4
        )


def test_seeds_of_the_replication_are_new():
    runs = pd.read_csv(TABLES / "replication.csv.gz")
    assert not set(runs["seed"]) & set(RUNS["seed"])
    assert not runs["seed"].duplicated().any()


def test_gains_are_those_of_a_paired_t_test():
    errors = table("errors")
    for row in table("gains").to_dict("records"):
        own = errors[(errors["settings"] == row["settings"]) & (errors["method"] == row["method"])]
        test = stats.ttest_1samp(own["nothing"] - own[row["added"]], 0)
        interval = test.confidence_interval()
        assert row["n"] == len(own)
        assert row["gain"] == pytest.approx((own["nothing"] - own[row["added"]]).mean(), abs=1e-6)
        assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high), abs=1e-6)


def test_settings_are_the_first_of_the_plan():
    names = list(table("settings")["name"])
    assert len(names) == len(set(names)) >= 60


def test_pooled_modes_are_inverse_variance_means():
    modes = pd.read_csv(STUDY_4 / "modes.csv")
    chosen = {"four modes": ("low", "high"), "low modes": ("low",), "high modes": ("high",)}
    for row in table("modes").query("over != 'settings'").to_dict("records"):
        own = modes[(modes["question"] == row["question"]) & modes["mode"].isin(chosen[row["over"]])]
        z = np.arctanh(own["estimate"])
        weight = (2 * 1.959964 / (np.arctanh(own["high"]) - np.arctanh(own["low"]))) ** 2
        mean, half = (z * weight).sum() / weight.sum(), 1.959964 / np.sqrt(weight.sum())
        assert (row["estimate"], row["low"], row["high"]) == pytest.approx(
            np.tanh([mean, mean - half, mean + half]), abs=1e-5
        )
        q = (weight * (z - mean) ** 2).sum()
        assert row["i_squared"] == pytest.approx(max(0, (q - len(own) + 1) / q), abs=1e-4)


def test_shares_found_have_exact_intervals():
    for row in table("planted").to_dict("records"):
        n = int(row["simulations"])
        interval = stats.binomtest(round(row["found"] * n), n).proportion_ci(method="exact")
        assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high), abs=1e-6)


def test_tests_keep_their_level_where_the_loss_owes_nothing_to_the_spectrum():
    rows = table("planted").query("effect == 0")
    free = rows[rows["part"] == "no spectral effect"]
    assert len(free) == 12
    assert (free["low"] <= 0.05).all()
    together = rows[(rows["part"] == "report") & (rows["group"] == "all runs together")]
    assert (together["low"] <= 0.05).all()


def test_what_the_page_says_first_of_the_failures_of_the_control():
    rows = table("planted_summary").set_index(["part", "group", "test", "statistic"]).sort_index()
    assert not rows.loc["rotated", "passes"].any()
    squares = rows.xs("sum of squares", level="statistic").loc["natural"]
    assert (squares.xs("h0 beyond the nuclear norm", level="test")["level"] > 0.3).all()


def test_no_feature_is_found_in_eight_seeds_together():
    seeds = table("seeds")
    for control, rows in seeds.groupby("control"):
        assert rows["q"].to_numpy() == pytest.approx(stats.false_discovery_control(rows["p"]), rel=1e-5)
        assert (rows["q"] > 0.05).all(), control


def test_slopes_are_those_of_linear_regression():
    sizes = table("sizes")
    for row in table("slopes").to_dict("records"):
        own = sizes[sizes["trained"] == row["trained"]]
        fit = stats.linregress(np.log10(own["n_parameters"]), own[row["score"]])
        assert (row["slope"], row["standard_error"]) == pytest.approx((fit.slope, fit.stderr), rel=1e-5)
