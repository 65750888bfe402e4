"""The tables on runs with planted answers: who follows the loss, who says something beyond the norm, and what
is refused."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import configuration
from paths import ROOT
from toposcale.analysis import ANALYSES, load
from toposcale.analysis.correlations import correlation_table
from toposcale.analysis.early_stopping import early_stopping_summary, early_stopping_table
from toposcale.analysis.partials import partial_correlation_table
from toposcale.analysis.pooled import pooled_test
from toposcale.analysis.ranking import group_table, ranking_table
from toposcale.analysis.scaling import scaling_table, size_extrapolation_table
from toposcale.analysis.transitions import (
    change_point_coincidence_table,
    change_point_table,
    transition_table,
)
from toposcale.analysis.verdicts import POOLED, distinct, verdict_tables
from toposcale.features.registry import group_of
from toposcale.features.weights import matrix_feature  # noqa: F401  # its module registers features
from toposcale.io import schemas
from toposcale.io import tables as arrow_tables
from toposcale.statistics.correlation import spearman
from toposcale.statistics.innovations import innovations

N = 51
STEPS = 100 * np.arange(N)
SIZES = {"s": 2936, "m": 7408, "l": 20640, "x": 46368}


def rows(model, feature, values, *, layer="all"):
    return pd.DataFrame(
        {
            "model": model,
            "step": STEPS[: len(values)],
            "source": "weights",
            "layer": layer,
            "feature": feature,
            "value": np.asarray(values, dtype=float),
        }
    )


@pytest.fixture(scope="module")
def run():
    """Four models. All drift; h0_total is the norm in disguise; neural_persistence feels the loss's
    fluctuations.

    Also: stable_rank drifts by itself, effective_rank is noise, h1_count is constant, h1_total is short,
    powerlaw_alpha has a hole.
    """
    rng = np.random.default_rng(0)
    features, metrics = [], []
    time = np.arange(N)
    for model, size in SIZES.items():
        shock = 0.03 * rng.standard_normal(N)
        loss = 1 + 20 * size**-0.3 + 2 * (time + 1) ** -0.5 + shock
        norm = 2 + np.log1p(time) + 0.05 * rng.standard_normal(N).cumsum()
        alpha = 3 - 0.02 * time + 0.05 * rng.standard_normal(N)
        alpha[7] = np.nan
        features += [
            rows(model, "frobenius_norm", norm),
            rows(model, "h0_total", 3 * norm + 0.02 * rng.standard_normal(N)),
            rows(model, "neural_persistence", 0.5 * np.log1p(time) - shock + 0.015 * rng.standard_normal(N)),
            rows(model, "stable_rank", 5 - np.sqrt(time) + 0.1 * rng.standard_normal(N)),
            rows(model, "effective_rank", rng.standard_normal(N)),
            rows(model, "h1_count", np.full(N, 3.0)),
            rows(model, "h1_total", [1.0, 2.0, 3.0]),
            rows(model, "powerlaw_alpha", alpha),
        ]
        metrics.append(
            pd.DataFrame({"model": model, "step": STEPS, "metric": "validation_loss", "value": loss})
        )
    models = pd.DataFrame({"model": list(SIZES), "n_parameters": list(SIZES.values()), "warmup_steps": 0.0})
    return pd.concat(features), pd.concat(metrics), models


@pytest.fixture(scope="module")
def analysed(run):
    tables = verdict_tables(*run, seed=1, resamples=200)
    names = ("correlations", "partial_correlations", "pooled_correlations", "verdicts")
    return tuple(tables[name] for name in names)


def one(table, **where):
    for name, value in where.items():
        table = table[table[name] == value]
    assert len(table) == 1
    return table.iloc[0]


def test_every_pair_has_a_row_with_scipys_numbers(run, analysed):
    features, metrics, _ = run
    correlations = analysed[0]
    assert len(correlations) == 4 * 8
    row = one(correlations, model="m", feature="h0_total")
    x = features[(features.model == "m") & (features.feature == "h0_total")]["value"]
    y = metrics[metrics.model == "m"]["value"]
    spearman, pearson = scipy.stats.spearmanr(x, y), scipy.stats.pearsonr(x, y)
    assert (row.spearman, row.p_spearman) == pytest.approx((spearman[0], spearman[1]), rel=1e-9)
    assert (row.pearson, row.p_pearson) == pytest.approx((pearson[0], pearson[1]), rel=1e-9)
    difference = scipy.stats.spearmanr(np.diff(x), np.diff(y))
    assert (row.spearman_differences, row.p_differences) == pytest.approx(tuple(difference), rel=1e-9)
    assert row.spearman_low <= row.spearman <= row.spearman_high
    assert row.spearman_block_high - row.spearman_block_low > row.spearman_high - row.spearman_low


def test_what_could_not_be_computed_is_there_with_its_reason(analysed):
    correlations, partials, _, verdicts = analysed
    assert one(correlations, model="s", feature="h1_count").reason == "constant feature"
    short = one(correlations, model="s", feature="h1_total")
    assert np.isnan(short.spearman)
    assert short.reason.startswith("3 common checkpoints")
    holed = one(correlations, model="s", feature="powerlaw_alpha")
    assert (holed.n, holed.n_left_out, holed.reason) == (N - 1, 1, "")
    copy = one(partials, model="s", feature="frobenius_norm", given="weight_norm")
    assert np.isnan(copy.partial_spearman)
    assert copy.reason == "moves exactly with weight norm"
    verdict = one(verdicts, model="s", feature="h1_count")
    assert (verdict[["follows_the_loss", "beyond_the_norm", "beyond_the_step"]] == "not tested").all()
    assert verdict.beyond_the_norm_reason == "constant feature"


def test_without_a_weight_norm_only_the_step_is_given(run):
    features, metrics, models = run
    table = partial_correlation_table(
        features[features.feature == "stable_rank"], metrics, models, seed=1, resamples=50
    )
    step, norm = one(table, model="s", given="step"), one(table, model="s", given="weight_norm")
    assert np.isfinite(step.partial_spearman)
    assert np.isnan(norm.partial_spearman)
    assert np.isnan(norm.p_surrogate)
    assert norm.reason == "no weight norm at these checkpoints"


def test_partial_spearman_is_the_correlation_of_rank_residuals(run, analysed):
    features, metrics, _ = run
    ranks = {
        name: scipy.stats.rankdata(features[(features.model == "l") & (features.feature == name)]["value"])
        for name in ("stable_rank", "frobenius_norm")
    }
    loss = scipy.stats.rankdata(metrics[metrics.model == "l"]["value"])
    design = np.column_stack([np.ones(N), ranks["frobenius_norm"], np.arange(N)])
    left = [y - design @ np.linalg.lstsq(design, y, rcond=None)[0] for y in (ranks["stable_rank"], loss)]
    row = one(analysed[1], model="l", feature="stable_rank", given="weight_norm_and_step")
    # 1e-6: norm and step have almost the same ranks here, so digits are lost.
    assert row.partial_spearman == pytest.approx(np.corrcoef(left)[0, 1], abs=1e-6)


def test_the_verdicts_are_the_planted_ones(analysed):
    verdicts = analysed[3]
    for feature in ("h0_total", "neural_persistence", "frobenius_norm", "stable_rank"):
        assert one(verdicts, model="m", feature=feature).follows_the_loss == "yes"
    pooled = verdicts[verdicts.model == POOLED]
    persistence = one(pooled, feature="neural_persistence")
    assert (persistence.beyond_the_norm, persistence.beyond_the_step) == ("yes", "yes")
    # The number beside a p-value is the one that was tested.
    for question, given in (("beyond_the_norm", "weight_norm"), ("beyond_the_step", "step")):
        tested = one(analysed[2], feature="neural_persistence", given=given)
        assert persistence[f"{question}_innovation"] == tested.innovation_correlation
        assert persistence[f"{question}_p"] == tested.p_surrogate
    drifters = verdicts[verdicts.feature.isin(["h0_total", "stable_rank", "powerlaw_alpha"])]
    assert len(drifters) == 15
    # With one true discovery beside them a drifter passes at p <= 0.025; more than 2 of 15 have probability 0.006.
    assert (drifters.beyond_the_norm == "yes").sum() <= 2
    assert (drifters.beyond_the_step == "yes").sum() <= 2
    # The naive test calls every one of them.
    naive = analysed[0][analysed[0].feature.isin(["h0_total", "stable_rank", "powerlaw_alpha"])]
    assert (naive.p_spearman < 1e-6).all()


def test_q_values_are_those_of_one_family_and_stand_in_no_other_table(run):
    tables = verdict_tables(*run, seed=1, resamples=20)
    for name, table in tables.items():
        corrected = [column for column in table if column.endswith(("_q", "_bh", "_bonferroni"))]
        assert not corrected or name in ("verdicts", "sensitivity")
    for _, family in tables["verdicts"].groupby("family"):
        for question in ("beyond_the_norm", "beyond_the_step"):
            p = family[f"{question}_p"].dropna()
            expected = scipy.stats.false_discovery_control(p) if len(p) else []
            assert family.loc[p.index, f"{question}_q"].to_numpy() == pytest.approx(expected)
            answers = np.where(
                family[f"{question}_q"].isna(),
                "not tested",
                np.where(family[f"{question}_q"] <= 0.05, "yes", "no"),
            )
            assert list(family[question]) == list(answers)


def test_without_a_known_warmup_nothing_is_tested_and_the_reason_stands_there(run):
    features, metrics, models = run
    tables = verdict_tables(features, metrics, models.drop(columns="warmup_steps"), seed=1, resamples=20)
    rows = tables["verdicts"]
    rows = rows[(rows.feature == "neural_persistence") & (rows.model != POOLED)]
    assert (rows.beyond_the_norm == "not tested").all()
    assert (rows.beyond_the_norm_reason == "the warm-up is not known; give models.{name}.warmup_steps").all()
    assert (tables["sensitivity"].found == "not tested").all()
    assert len(tables["power"]) == 0


def test_the_reason_that_is_named_is_that_of_the_weights(run):
    """Other sources have fewer checkpoints, and more features that are not tested."""
    features, metrics, models = run
    weights = features[features.source == "weights"]
    coarse = [
        weights[weights.step % 2000 == 0].assign(
            source="landscape", feature=lambda rows, tail=str(number): rows.feature + tail
        )
        for number in range(5)
    ]
    unknown = models.drop(columns="warmup_steps")
    tables = verdict_tables(pd.concat([weights, *coarse]), metrics, unknown, seed=1, resamples=20)
    assert set(tables["sensitivity"].reason) == {"the warm-up is not known; give models.{name}.warmup_steps"}


def test_the_positive_control_and_the_power_tell_a_run_that_could_not_have_shown_it(run):
    features, metrics, models = run
    able = one(verdict_tables(*run, seed=1, resamples=20)["sensitivity"], question="beyond_the_norm")
    assert (able.found, able.n_runs, able.n_points) == ("yes", 4, N)
    assert 0.2 < able.detectable < 0.6
    # One run of twelve checkpoints.
    short = (features.model == "m") & (features.step < 1200), (metrics.model == "m") & (metrics.step < 1200)
    unable = verdict_tables(features[short[0]], metrics[short[1]], models, seed=1, resamples=20)[
        "sensitivity"
    ]
    unable = one(unable, question="beyond_the_norm")
    assert unable.found == "no"
    assert np.isnan(unable.detectable)


def test_power_is_that_of_the_test_itself(run):
    """A feature of the detectable correlation is found in about 80% of fresh runs of this shape."""
    _, metrics, models = run
    table = verdict_tables(*run, seed=1, resamples=20)
    row = one(table["sensitivity"], question="beyond_the_step")
    curve = table["power"][table["power"].question == "beyond_the_step"].set_index("planted")
    noise = float(np.interp(row.detectable, curve.measured, curve.index))
    rng, found = np.random.default_rng(5), 0
    for _ in range(60):
        planted = []
        for model, own in metrics.groupby("model"):
            new = innovations(own["value"].to_numpy())
            size = np.sqrt((new.values**2).sum() / (new.values.shape[1] - new.n_fitted[0])) * own[
                "value"
            ].std(ddof=0)
            noisy = own["value"] + size * np.sqrt(1 / noise**2 - 1) * rng.standard_normal(N)
            planted.append(rows(model, "planted", noisy))
        p = pooled_test(pd.concat(planted), metrics, models, given_norm=False)["p_surrogate"].iloc[0]
        found += p <= 0.05 / row.n_tested
    assert 0.6 < found / 60 < 0.95


def test_pooled_drifts_that_have_nothing_to_do_with_the_loss_are_seldom_rejected():
    rng = np.random.default_rng(11)
    time, p_values = np.arange(N), []
    for _ in range(10):
        features, metrics = [], []
        shared = rng.standard_normal(N)  # the models see the same batches
        for model in ("a", "b", "c", "d"):
            features += [
                rows(
                    model,
                    f"h0_{i:02d}",
                    rng.uniform(1, 9) * (time + 1) ** -0.5 + 0.1 * rng.standard_normal(N).cumsum(),
                )
                for i in range(40)
            ]
            loss = 2 * (time + 1) ** -0.4 + 0.03 * (shared + 0.5 * rng.standard_normal(N))
            metrics.append(pd.DataFrame({"model": model, "step": STEPS, "metric": "loss", "value": loss}))
        models = pd.DataFrame({"model": ["a", "b", "c", "d"], "warmup_steps": 0})
        p_values.append(
            pooled_test(pd.concat(features), pd.concat(metrics), models, given_norm=False)["p_surrogate"]
        )
    # 400 tests at 5%: 8% is 2.8 binomial standard errors above.
    assert (pd.concat(p_values) <= 0.05).mean() <= 0.08


def test_models_that_share_their_noise_do_not_vote_twice(run):
    """Four copies of one model must not be more significant than the model."""
    features, metrics, _ = run
    copies = [
        (features[features.model == "s"].assign(model=name), metrics[metrics.model == "s"].assign(model=name))
        for name in ("s", "t", "u", "v")
    ]
    models = pd.DataFrame({"model": ["s", "t", "u", "v"], "warmup_steps": 0})
    p_values = []
    for chosen in (copies[:1], copies):
        tables = [pd.concat(part) for part in zip(*chosen, strict=True)]
        table = pooled_test(*tables, models, given_norm=False)
        p_values.append(one(table, feature="neural_persistence").p_surrogate)
    assert p_values[1] == pytest.approx(p_values[0], rel=1e-6)


def test_a_cell_of_eight_seeds_is_tested_within_and_between_its_runs():
    """One feature feels the noise of its own run, one that of all runs, one tells early which run ends lower."""
    rng, n = np.random.default_rng(7), 30
    time, features, metrics = np.arange(n), [], []
    shared = rng.standard_normal(n)
    for seed in range(10):
        model, own, end = f"m.seed{seed}", rng.standard_normal(n), rng.standard_normal()
        loss = 3 - np.log1p(time) / 4 + 0.02 * (own + shared) + 0.3 * end * (time > 20)
        features += [
            rows(model, "frobenius_norm", np.sqrt(time + 1) + 0.1 * rng.standard_normal(n)),
            rows(model, "h0_total", 0.1 * time + own + 0.5 * rng.standard_normal(n)),
            rows(model, "h1_total", 0.1 * time + shared + 0.1 * rng.standard_normal(n)),
            rows(model, "neural_persistence", end + 0.1 * rng.standard_normal(n)),
        ]
        metrics.append(
            pd.DataFrame({"model": model, "step": STEPS[:n], "metric": "validation_loss", "value": loss})
        )
    names = [f"m.seed{seed}" for seed in range(10)]
    models = pd.DataFrame({"model": names, "cell": "m", "warmup_steps": 0, "final_step": STEPS[n - 1]})
    tables = verdict_tables(pd.concat(features), pd.concat(metrics), models, resamples=20)
    pooled = tables["verdicts"][tables["verdicts"].model == POOLED].set_index("feature")
    assert pooled.within_cells["h0_total"] == "yes"
    assert pooled.within_cells[["h1_total", "neural_persistence"]].tolist() == ["no", "no"]
    assert pooled.between_runs["neural_persistence"] == "yes"
    assert pooled.between_runs[["h0_total", "h1_total"]].tolist() == ["no", "no"]
    row = one(tables["run_permutation"], feature="h1_total")
    assert row.correlation == pytest.approx(row.by_chance, abs=0.15)
    assert row.by_chance > 0.4
    assert (row.n_runs, row.n_cells, row.exact) == (10, 1, False)
    few = verdict_tables(
        *(table[table.model.isin(names[:7])] for table in (pd.concat(features), pd.concat(metrics), models)),
        resamples=20,
    )["verdicts"]
    assert (few.within_cells == "not tested").all()
    assert (few[few.model == POOLED].within_cells_reason == "no cell has 8 seeds").all()


def test_over_runs_stand_the_median_and_the_range_of_cells(run, analysed):
    plain, pooled = analysed[0], analysed[2]
    row = one(pooled, feature="neural_persistence", given="nothing")
    alone = plain[plain.feature == "neural_persistence"]["spearman"]
    assert (row.n_runs, row.n_cells) == (4, 4)
    assert (row.spearman, row.spearman_lowest, row.spearman_highest) == (
        alone.median(),
        alone.min(),
        alone.max(),
    )
    # Two of the four as seeds of one cell: they are averaged first.
    features, metrics, models = run
    models = models.assign(cell=["one", "one", "two", "three"])
    seeded = verdict_tables(features, metrics, models, seed=1, resamples=20)["pooled_correlations"]
    row = one(seeded, feature="neural_persistence", given="nothing")
    by_model = plain[plain.feature == "neural_persistence"].set_index("model")["spearman"]
    means = [by_model[["s", "m"]].mean(), by_model["l"], by_model["x"]]
    assert (row.n_runs, row.n_cells) == (4, 3)
    assert (row.spearman, row.spearman_lowest) == pytest.approx((np.median(means), min(means)))


def test_features_that_move_together_are_counted_once():
    rng = np.random.default_rng(6)
    base = rng.standard_normal((2, 30)).cumsum(axis=1)
    values = np.vstack([base, 2 * base[0] + 1, -base[0] + 0.001 * rng.standard_normal(30)])
    likeness = [(["a", "b", "c", "d"], np.abs(spearman(values, values)))]
    assert distinct(["a", "b", "c", "d"], likeness) == 2
    assert distinct(["a", "b"], likeness) == 2
    assert distinct(["a"], []) == 1
    assert distinct([], []) == 0
    assert distinct(["a", "unseen"], likeness) == 2


def test_same_seed_same_numbers_whatever_else_is_in_the_table(run, analysed):
    features, metrics, _ = run
    again = correlation_table(
        features[features.model != "s"], metrics[metrics.model != "s"], seed=1, resamples=200
    )
    columns = ["spearman", "spearman_low", "spearman_block_high", "pearson_low", "p_spearman"]
    whole = analysed[0][analysed[0].model != "s"].reset_index(drop=True)
    pd.testing.assert_frame_equal(again[columns], whole[columns], check_exact=True)
    other = correlation_table(features, metrics, seed=2, resamples=200)
    assert (other["spearman_low"] != analysed[0]["spearman_low"]).any()


def test_ranking_puts_the_paired_difference_beside_the_norm(run):
    features, metrics, _ = run
    table = ranking_table(features, metrics, seed=1, resamples=200)
    assert sorted(table["rank"].dropna().astype(int)) == [1, 2, 3, 4, 5, 6]
    norm = one(table, feature="frobenius_norm")
    assert norm.over_norm == 0
    assert np.isnan([norm.over_norm_low, norm.over_norm_high]).all()
    weak = one(table, feature="effective_rank")
    assert weak.over_norm_high < 0
    # Pairing: the disguised norm differs from the norm by far less than either is uncertain.
    disguised = one(table, feature="h0_total")
    assert disguised.over_norm_high - disguised.over_norm_low < 0.5 * (
        disguised.strength_high - disguised.strength_low
    )
    # ... also where one of them has a gap.
    holed = one(table, feature="powerlaw_alpha")
    assert holed.over_norm_high - holed.over_norm_low < 0.5 * (holed.strength_high - holed.strength_low)
    assert one(table, feature="h1_count").n_models == 0


def test_groups_are_compared(run):
    features, metrics, _ = run
    table = group_table(features, metrics, seed=1, resamples=200)
    row = one(table, statistic="mean", first="topology", second="norm")
    ranking = ranking_table(features, metrics, seed=1, resamples=200)
    strengths = ranking[ranking.group == "topology"]["strength"].dropna()
    assert (row.n_first, row.n_second) == (2, 1)
    assert row.strength_first == pytest.approx(strengths.mean())
    assert row.difference_low <= row.difference <= row.difference_high
    assert one(table, statistic="best", first="topology", second="norm").strength_first == strengths.max()


@pytest.mark.parametrize(
    ("feature", "group"),
    [
        ("h0_total_scaled", "topology"),
        ("neural_persistence_z_permuted", "topology"),
        ("h1_wasserstein_2", "topology"),
        ("n_minima", "topology"),
        ("effective_rank", "spectrum"),
        ("frobenius_norm", "norm"),
        ("gradient_norm", "norm"),
        ("perplexity", "other"),
    ],
)
def test_features_belong_to_their_group(feature, group):
    assert group_of(feature) == group


def test_scaling_recovers_the_planted_law_and_foretells_the_largest(run):
    features, metrics, models = run
    final = pd.DataFrame(
        {
            "model": list(SIZES),
            "step": 5000,
            "metric": "exact",
            "value": [1 + 20 * n**-0.3 for n in SIZES.values()],
        }
    )
    table = scaling_table(features, pd.concat([metrics, final]), models, seed=1, resamples=50)
    offset = one(table, feature="exact", law="power_law_with_offset")
    assert (offset.exponent, offset.offset, offset.spearman) == pytest.approx((-0.3, 1.0, -1.0), rel=1e-3)
    plain = one(table, feature="validation_loss", law="power_law")
    assert plain.exponent_low < plain.exponent < plain.exponent_high
    growing = pd.concat(
        [
            pd.DataFrame({"model": ["k"], "step": 5000, "metric": ["exact"], "value": [1 + 20 * 1000**-0.3]}),
            final,
        ]
    )
    five = pd.concat([models, pd.DataFrame({"model": ["k"], "n_parameters": [1000]})])
    held_out = one(
        size_extrapolation_table(features, growing, five), feature="exact", law="power_law_with_offset"
    )
    assert (held_out.n_parameters, held_out.n_models) == (46368, 4)
    assert held_out.predicted == pytest.approx(held_out.actual, rel=1e-4)
    refused = one(
        size_extrapolation_table(features, final, models), feature="exact", law="power_law_with_offset"
    )
    assert "needs at least 4" in refused.reason
    assert np.isnan(refused.predicted)


def test_transitions_and_their_coincidence(run):
    features, metrics, _ = run
    time = np.arange(N)
    rng = np.random.default_rng(3)
    planted = [
        rows(model, name, (time >= at) * 5.0 + 0.1 * rng.standard_normal(N))
        for model in SIZES
        for name, at in (("h0_max", 20), ("h1_max", 20), ("h2_max", 40))
    ]
    features = pd.concat([features[features.feature == "h1_count"], *planted])
    table = transition_table(features, metrics)
    assert one(table, model="s", feature="h0_max").transition_step == 2000
    assert one(table, model="s", feature="h1_count").reason == "constant or a single value"
    points = change_point_table(features, metrics)
    assert points[(points.feature == "h0_max") & (points.model == "s")]["step"].tolist() == [2000]
    pairs = change_point_coincidence_table(features, metrics)
    together = one(pairs, first_feature="h0_max", second_feature="h1_max")
    assert (together.observed, together.n_models) == (4, 4)
    assert together.p_value == pytest.approx(3 / N)  # three shifts within one checkpoint
    assert one(pairs, first_feature="h0_max", second_feature="h2_max").observed == 0


def test_early_stopping_by_hand():
    features = rows("s", "neural_persistence", [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    loss = [5.0, 4.0, 3.0, 2.5, 2.6, 2.7, 2.4]
    metrics = pd.DataFrame({"model": "s", "step": STEPS[:7], "metric": "validation_loss", "value": loss})
    table = early_stopping_table(features, metrics, patience=[2, 4])
    two = one(table, patience=2)
    assert (two.stop_step, two.metric_stop_step, two.steps_saved) == (300, 500, 200)
    assert two.loss_given_up == 0.0
    four = one(table, patience=4)
    assert (four.stop_step, four.metric_stop_step, four.metric_triggered) == (500, 600, False)
    assert four.loss_given_up == pytest.approx(0.1)
    summary = early_stopping_summary(pd.concat([table, table.assign(model="t", steps_saved=400)]))
    mean = one(summary, patience=2)
    half = scipy.stats.t.ppf(0.975, 1) * 100
    assert (mean.steps_saved, mean.steps_saved_low) == pytest.approx((300, 300 - half))
    assert mean.n_models == 2


def test_the_bytes_do_not_depend_on_the_number_of_threads():
    code = """
import hashlib, numpy as np
from toposcale.statistics import correlation, innovations, resampling
rng = np.random.default_rng(0)
x, y = rng.standard_normal((60, 51)).cumsum(axis=1), rng.standard_normal((2, 51)).cumsum(axis=1)
counts = resampling.moving_block_counts(51, 300, rng)
test = innovations.innovation_test(x, y, x[:1])
arrays = [resampling.bootstrap_spearman(x, y, counts), resampling.bootstrap_pearson(x, y, counts)]
arrays += [correlation.pearson(x, y), correlation.effective_sample_size(x, y), test.p_value, test.products]
print(hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest())
"""
    hashes = set()
    for threads in ("1", "2"):
        environment = {"PYTHONPATH": "src", "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            env=environment,
            timeout=60,
            capture_output=True,
            text=True,
        )
        hashes.add(done.stdout)
    assert len(hashes) == 1


def test_the_array_modules_do_not_import_pandas():
    modules = [
        "correlation",
        "resampling",
        "innovations",
        "partial",
        "multiple_testing",
        "pooling",
        "testable",
        "run_permutation",
        "between_runs",
        "scaling",
        "patience",
        "change_points",
    ]
    code = "import sys\n" + "".join(f"import toposcale.statistics.{name}\n" for name in modules)
    code += "assert 'pandas' not in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": "src"}, timeout=60)


def test_weights_without_any_loss_go_through_every_analysis(run):
    features, metrics, _ = run
    tables = {table: schemas.BY_NAME[table].frame([]) for name in ANALYSES for table in ANALYSES[name].makes}
    tables |= {
        "features": features,
        "all_features": features,
        "metrics": metrics[:0],
        "models": arrow_tables.from_rows(
            schemas.MODELS,
            [
                {"model": model, "seed": 0, "n_parameters": size, "final_step": 5000}
                for model, size in SIZES.items()
            ],
        ).to_pandas(),
        "training": schemas.TRAINING.frame([]).assign(model=""),
        "vectors": schemas.VECTORS.frame([]),
        "schedules": schemas.SCHEDULES.frame([]),
        "published": pd.read_csv(
            ROOT / "workflow" / "published_values.csv", dtype={"value": str, "table": str}
        ),
    }
    given = configuration.resolve({"models": {"m": {"kind": "folder", "path": "."}}})
    settings = {
        **given["statistics"],
        **{key: given["landscape"][key] for key in ("graphs", "planes", "repeats")},
        **{"score_metrics": [], "loss_metric": None},
        **{"fractions": [0.5], "decision": given["decision"], "tasks": given["metrics"]["tasks"]},
        **{"training_settings": given["training"], "corpus_settings": given["corpus"], "seeds": [0]},
    }
    for name, analysis in ANALYSES.items():
        chosen = {key: settings[key] for key in analysis.settings} | (
            {"resamples": 20} if "resamples" in analysis.settings else {}
        )
        made = load(name)(**{table: tables[table] for table in analysis.reads}, **chosen)
        tables |= made
        assert all(list(made[table].columns) == schemas.BY_NAME[table].names for table in made), name
    assert tables["verdicts"].empty
    assert tables["summary"]["answer"].str.contains("needs a loss").all()
