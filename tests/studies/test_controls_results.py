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


def residuals_of(runs, feature, given):
    """What the losses so far, the norms and `given` leave of a feature and of the final loss, and the basis of what they
    are."""
    early, now = (runs[f"validation_loss_at_{share}%"] for share in (20, 30))
    controls = [np.ones(len(runs)), early, now, (now - now.mean()) ** 2, *(runs[name] for name in [*NORMS, *given])]
    design = np.column_stack(controls)
    design = (design - np.r_[0, design[:, 1:].mean(axis=0)]) / np.r_[1, design[:, 1:].std(axis=0)]
    basis, _ = np.linalg.qr(design)
    columns = runs[[feature, "validation_loss_at_100%"]].to_numpy()
    return *(columns - basis @ (basis.T @ columns)).T, basis


def partial_correlation(runs, feature, given):
    """The correlation of the residuals, and the degrees of freedom that the controls leave."""
    of_feature, of_loss, basis = residuals_of(runs, feature, given)
    return np.corrcoef(of_feature, of_loss)[0, 1], len(runs) - basis.shape[1] - 1


def permuted_means(settings, feature, given, draws):
    """The mean correlations of settings, by degrees of freedom, with permuted residuals of the loss (draws,)."""
    random, total, weights = np.random.default_rng(1), np.zeros(draws), 0
    for runs in settings:
        of_feature, of_loss, basis = residuals_of(runs, feature, given)
        permuted = random.permuted(np.tile(of_loss, (draws, 1)), axis=1)
        permuted -= permuted @ basis @ basis.T
        degrees = len(runs) - basis.shape[1] - 1
        total += degrees * (permuted @ of_feature) / np.linalg.norm(permuted, axis=1) / np.linalg.norm(of_feature)
        weights += degrees
    return total / weights


def test_every_run_of_study_4_has_a_score_below_its_surrogates():
    assert len(RUNS) == 3200
    assert RUNS["h0_surrogate_z"].max() < -3.5
    rows = table("finding").set_index("configuration")
    means = RUNS.groupby("configuration")["h0_surrogate_z"].mean()
    assert rows["mean_score"].to_numpy() == pytest.approx(means.loc[rows.index].to_numpy(), rel=1e-6)
    assert means.between(-9.85, -5.5).all()


GIVEN = {
    "h0 beyond the nuclear norm": ("h0_mean", ["nuclear_norm"]),
    "h0 beyond surrogates": ("h0_mean", ["surrogate_h0_mean"]),
    "nuclear norm beyond h0": ("nuclear_norm", ["h0_total", "h0_mean"]),
}


def settings_of(row):
    """The fresh runs of a row of `replicated`, by setting: the first plan has 18 seeds of each setting of 3K."""
    runs = pd.read_csv(TABLES / "replication.csv.gz").query("entry == @row['entry']")
    first = (runs["seed"] % 1000 < 18) & (row["entry"] == "tiny-3k-fifth")
    chosen = {"first plan": first, "second plan": ~first, "both plans": first | True}[row["sample"]]
    assert chosen.sum() == row["runs"]
    return [part for _, part in runs[chosen].groupby("configuration")]


def test_replicated_correlations_are_those_of_regressions():
    rows = table("replicated")
    assert set(rows["question"]) == set(GIVEN)
    for row in rows.to_dict("records"):
        found = [partial_correlation(part, *GIVEN[row["question"]]) for part in settings_of(row)]
        correlations, degrees = np.array(found).T
        mean = np.average(correlations, weights=degrees)
        assert row["estimate"] == pytest.approx(mean, abs=1e-4)
        error = 1 / np.sqrt(degrees.sum() - len(degrees))
        bounds = np.tanh(np.arctanh(mean) + 1.959964 * error * np.array([-1, 1]))
        assert (row["low"], row["high"]) == pytest.approx(bounds, abs=1e-4)
        if np.isfinite(row["power"]):
            critical = stats.norm.isf(0.05 if "wikitext" in row["entry"] else 0.025)
            power = stats.norm.sf(critical - abs(np.arctanh(row["study_4"])) / error)
            assert row["power"] == pytest.approx(power, abs=1e-4)


def test_replicated_p_values_are_those_of_permuted_residuals():
    rows = table("replicated").dropna(subset=["one_sided_p"])
    signs = {"tiny-3k-fifth": -1, "small-7k-fifth": 1, "tiny-3k-wikitext-fifth": -1}
    for row in rows.to_dict("records"):
        sign = signs[row["entry"]]
        null = permuted_means(settings_of(row), *GIVEN[row["question"]], draws=2000)
        p = np.mean(sign * null >= sign * row["estimate"])
        assert row["one_sided_p"] == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / 2000) + 0.002)


def test_replicated_hypotheses_are_corrected_after_holm():
    primary = table("replicated").dropna(subset=["corrected_p"]).sort_values("one_sided_p")
    assert set(primary["entry"]) == {"tiny-3k-fifth", "small-7k-fifth"}
    assert set(primary["sample"]) == {"second plan"}
    smaller, larger = primary["one_sided_p"]
    assert primary["corrected_p"].tolist() == pytest.approx([min(1, 2 * smaller), max(min(1, 2 * smaller), larger)])


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
        half = stats.t.ppf(0.975, len(own) - 2) * fit.stderr
        assert (row["low"], row["high"]) == pytest.approx((fit.slope - half, fit.slope + half), rel=1e-4)
