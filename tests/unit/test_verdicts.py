"""Correlations, tests and verdicts on runs with planted answers: who follows the loss, and who says more than the norm."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from planted_features import SIZES, STEPS, N, four_models, one, rows
from toposcale.analysis.aligned import aligned_series
from toposcale.analysis.controls import CONTROLS, NOTHING, Control, questions
from toposcale.analysis.correlations import controlled_runs, correlation_tables, joint_test
from toposcale.analysis.sensitivity import few_checkpoints_clause
from toposcale.analysis.verdicts import POOLED, count_distinct, pooled_verdicts, verdict_tables
from toposcale.io.schemas import METRIC_SOURCE
from toposcale.pages.report import listing
from toposcale.statistics.coefficients import spearman
from toposcale.statistics.prewhitening import prewhiten, with_squares

TREND = Control("constant", ("h1_count",))
"""Holds a constant fixed, so that the test takes out the trend and nothing else."""
GIVEN_NORM = CONTROLS["weight_norm"]


@pytest.fixture(scope="module")
def run():
    return four_models()


@pytest.fixture(scope="module")
def analysed(run):
    tables = verdict_tables(*run, seed=1, resamples=200)
    return tuple(tables[name] for name in ("correlations", "pooled_correlations", "verdicts"))


def together(features, metrics, models, control):
    """The test of all runs together."""
    return joint_test(controlled_runs(features, metrics, models, control), models)


def plain(correlations):
    return correlations[correlations.control == NOTHING]


def test_every_pair_has_a_row_with_scipys_numbers(run, analysed):
    features, metrics, _ = run
    correlations = plain(analysed[0])
    assert len(correlations) == 4 * 8
    row = one(correlations, model="m", feature="h0_total")
    x = features[(features.model == "m") & (features.feature == "h0_total")]["value"]
    y = metrics[metrics.model == "m"]["value"]
    spearman = scipy.stats.spearmanr(x, y)
    assert (row.spearman, row.spearman_p) == pytest.approx((spearman[0], spearman[1]), rel=1e-9)
    assert row.pearson == pytest.approx(scipy.stats.pearsonr(x, y)[0], rel=1e-9)
    assert row.spearman_low <= row.spearman <= row.spearman_high
    assert row.spearman_block_high - row.spearman_block_low > row.spearman_high - row.spearman_low


def test_what_could_not_be_computed_is_there_with_its_reason(analysed):
    correlations, _, verdicts = analysed
    assert one(plain(correlations), model="s", feature="h1_count").reason == "constant feature"
    short = one(plain(correlations), model="s", feature="h1_total")
    assert np.isnan(short.spearman)
    assert short.reason.startswith("3 common checkpoints")
    holed = one(plain(correlations), model="s", feature="powerlaw_alpha")
    assert (holed.n, holed.n_left_out, holed.reason) == (N - 1, 1, "")
    copy = one(correlations, model="s", feature="frobenius_norm", control="weight_norm")
    assert np.isnan(copy.spearman)
    assert copy.reason == "moves exactly with weight norm"
    untested = verdicts[(verdicts.model == "s") & (verdicts.feature == "h1_count")].set_index("question")
    assert set(untested.index) == {"follows_the_loss", "beyond_the_norm", "beyond_the_spectrum"}
    assert (untested.answer == "not tested").all()
    assert (untested.reason == "constant feature").all()


def test_without_a_weight_norm_only_the_step_is_given(run):
    features, metrics, models = run
    features = features[features.feature == "stable_rank"]
    table = correlation_tables(features, metrics, models, seed=1, resamples=50)["correlations"]
    step, norm = one(table, model="s", control="step"), one(table, model="s", control="weight_norm")
    assert np.isfinite(step.spearman)
    assert np.isnan(norm.spearman)
    assert np.isnan(norm.residual_p)
    assert norm.reason == "no weight norm at these checkpoints"


@pytest.mark.parametrize("control", ["weight_norm", "step"])
def test_partial_spearman_is_that_of_rank_residuals(run, analysed, control):
    features, metrics, _ = run
    ranks = {
        name: scipy.stats.rankdata(features[(features.model == "l") & (features.feature == name)]["value"])
        for name in ("stable_rank", "frobenius_norm")
    }
    loss = scipy.stats.rankdata(metrics[metrics.model == "l"]["value"])
    held = {"weight_norm": ranks["frobenius_norm"], "step": np.arange(N)}
    design = np.column_stack([np.ones(N), *(values for name, values in held.items() if name in control)])
    left = [y - design @ np.linalg.lstsq(design, y, rcond=None)[0] for y in (ranks["stable_rank"], loss)]
    row = one(analysed[0], model="l", feature="stable_rank", control=control)
    # 1e-6: norm and step have almost the same ranks here, so digits are lost.
    assert row.spearman == pytest.approx(np.corrcoef(left)[0, 1], abs=1e-6)


def test_the_verdicts_are_the_planted_ones(analysed):
    correlations, pooled, verdicts = analysed
    for feature in ("h0_total", "neural_persistence", "frobenius_norm", "stable_rank"):
        assert one(verdicts, model="m", feature=feature, question="follows_the_loss").answer == "yes"
    # The number next to a p is the one that was tested.
    persistence = one(verdicts, model=POOLED, feature="neural_persistence", question="beyond_the_norm")
    tested = one(pooled, feature="neural_persistence", control="weight_norm")
    assert (persistence.answer, persistence.control) == ("yes", "weight_norm")
    assert persistence.estimate == tested.residual_correlation
    assert persistence.p == tested.p
    drifters = verdicts[verdicts.feature.isin(["h0_total", "stable_rank", "powerlaw_alpha"])]
    drifters = drifters[drifters.question == "beyond_the_norm"]
    assert len(drifters) == 15
    # With one true discovery among them a drifter passes at p <= 0.025; more than 2 of 15 have probability 0.006.
    assert (drifters.answer == "yes").sum() <= 2
    # The naive test calls every one of them.
    naive = plain(correlations)
    naive = naive[naive.feature.isin(["h0_total", "stable_rank", "powerlaw_alpha"])]
    assert (naive.spearman_p < 1e-6).all()


def test_verdicts_given_only_the_step_are_not_asked(run, analysed):
    correlations, pooled, _ = analysed
    for table, p in ((correlations, "residual_p"), (pooled, "p")):
        given = table[(table.control == "step") & (table.feature == "neural_persistence")]
        assert given[p].isna().all()
        assert given.spearman.notna().all()
        assert (given.n_tested == 0).all()
    assert "step" not in {control.name for control in questions()}


def with_spectrum(run):
    """The run with a nuclear norm that feels the noise of the loss, and neural persistence a copy of it with noise."""
    features, metrics, models = run
    rng, felt = np.random.default_rng(9), features.feature == "neural_persistence"
    spectrum = features[felt].assign(feature="nuclear_norm")
    copy = features[felt].assign(value=features[felt].value + 0.004 * rng.standard_normal(felt.sum()))
    features = pd.concat([features[~felt], copy])
    return pd.concat([features, spectrum]), metrics, models


def test_verdicts_beyond_the_norm_and_not_beyond_the_spectrum(run):
    """The nuclear norm repeats neural persistence; h0_mean has the noise of the loss without that of persistence."""
    features, metrics, models = with_spectrum(run)
    rng, own = np.random.default_rng(4), []
    for model, losses in metrics.groupby("model"):
        noise = losses["value"].to_numpy() - 2 / np.sqrt(np.arange(1, N + 1))
        own.append(rows(model, "h0_mean", noise + 0.02 * rng.standard_normal(N)))
    tables = verdict_tables(pd.concat([features, *own]), metrics, models, seed=1, resamples=20)
    verdicts = tables["verdicts"]
    verdicts = verdicts[verdicts.model == POOLED].set_index(["question", "feature"])
    assert verdicts.answer["beyond_the_norm", "neural_persistence"] == "yes"
    row = verdicts.loc[("beyond_the_spectrum", "neural_persistence")]
    assert (row.answer, row.control) == ("no", "weight_norm_and_spectrum")
    assert verdicts.answer["beyond_the_spectrum", "h0_mean"] == "yes"
    # Of the nuclear norm itself nothing is left once it is held fixed.
    assert verdicts.answer["beyond_the_spectrum", "nuclear_norm"] == "not tested"
    assert set(tables["sensitivity"].question) >= {"beyond_the_norm", "beyond_the_spectrum"}


def test_the_spectrum_of_a_layer_is_its_own(run):
    features, metrics, _ = with_spectrum(run)
    layer = features.assign(layer="one", value=features["value"] * 2)
    groups = aligned_series(pd.concat([features, layer]), metrics, CONTROLS["weight_norm_and_spectrum"])
    [group] = [group for group in groups if group.model == "m" and set(group.keys["layer"]) == {"one"} and group.n == N]
    own = layer[(layer["model"] == "m") & (layer["feature"] == "nuclear_norm")]["value"].to_numpy()
    # Norm and nuclear norm of the model, and the same of the layer.
    assert group.controls.shape == (4, N)
    assert np.array_equal(group.controls[3], own)


def test_without_the_nuclear_norm_the_reason_says_so(analysed):
    asked = analysed[2].query("question == 'beyond_the_spectrum' and feature == 'neural_persistence'")
    assert len(asked) == len(SIZES) + 1
    assert (asked.answer == "not tested").all()
    assert (asked.reason == "no norm or nuclear norm of the weights at these checkpoints").all()


def test_verdicts_of_other_checkpoints_are_not_tested(run):
    features, metrics, models = run
    elsewhere = metrics.assign(step=metrics.step + 1)
    tables = verdict_tables(features, elsewhere, models, seed=1, resamples=20)
    assert len(tables["verdicts"])
    assert (tables["verdicts"].answer == "not tested").all()
    assert (tables["verdicts"].reason != "").all()


def test_sensitivity_names_unmeasured_settings(run):
    features, metrics, models = run
    sizes = dict(zip(SIZES, (2_936, 300_808, 300_809, np.nan), strict=True))
    models = models.assign(n_parameters=models.model.map(sizes))
    table = verdict_tables(features, metrics, models, seed=1, resamples=20)["sensitivity"]
    assert one(table, question="beyond_the_norm").outside == "the sizes of 2 of 4 models"
    inside = models.assign(n_parameters=7_408)
    table = verdict_tables(features, metrics, inside, seed=1, resamples=20)["sensitivity"]
    assert one(table, question="beyond_the_norm").outside == ""


def test_verdicts_have_q_corrected_within_a_question(run):
    tables = verdict_tables(*run, seed=1, resamples=20)
    for name, table in tables.items():
        corrected = [column for column in table if column == "q" or column.endswith("_q")]
        assert not corrected or name in ("verdicts", "sensitivity")
    verdicts = tables["verdicts"]
    for name, family in verdicts.groupby("corrected_with"):
        [question] = set(family.question)
        assert name.startswith(question)
        expected = np.full(len(family), np.nan)
        if family.p.notna().any():
            expected[family.p.notna()] = scipy.stats.false_discovery_control(family.p.dropna())
        np.testing.assert_allclose(family.q, expected)
        answers = np.where(family.q.isna(), "not tested", np.where(family.q <= 0.05, "yes", "no"))
        assert question == "follows_the_loss" or list(family.answer) == list(answers)
    assert verdicts.loc[verdicts.question == "follows_the_loss", ["p", "q"]].isna().all(axis=None)


def test_a_question_has_a_row_where_it_is_asked_and_nowhere_else(analysed):
    """Each of three questions of every pair of each run and of all runs."""
    verdicts = analysed[2]
    assert not verdicts.duplicated(["model", "source", "layer", "feature", "metric", "question"]).any()
    counts = verdicts.question.value_counts()
    everywhere = len(plain(analysed[0])) + len(plain(analysed[1]))
    asked = ("follows_the_loss", "beyond_the_norm", "beyond_the_spectrum")
    assert [counts[question] for question in asked] == [everywhere] * 3
    assert set(verdicts[verdicts.question == "beyond_the_variance"].feature) == {"neural_persistence"}
    assert set(verdicts.question) == {control.question for control in questions()}


@pytest.mark.parametrize(
    ("table", "lost"), [("features", "layer"), ("features", "model"), ("metrics", "metric"), ("models", "model")]
)
def test_a_missing_column_is_named(run, table, lost):
    names = ("features", "metrics", "models")
    given = [own.drop(columns=lost) if name == table else own for name, own in zip(names, run, strict=True)]
    said = f"^{table}: there is no column '{lost}'; needed are model"
    with pytest.raises(ValueError, match=said):
        verdict_tables(*given)
    with pytest.raises(ValueError, match=said):
        controlled_runs(*given, GIVEN_NORM)


def test_verdicts_without_a_known_warmup_say_so(run):
    features, metrics, models = run
    tables = verdict_tables(features, metrics, models.drop(columns="warmup_steps"), seed=1, resamples=20)
    rows = tables["verdicts"]
    rows = rows[(rows.feature == "neural_persistence") & (rows.question == "beyond_the_norm")]
    assert set(rows.model) == {*SIZES, POOLED}
    assert (rows.answer == "not tested").all()
    assert (
        rows.reason == "the warm-up is not known; give warmup_steps (0 without one) in the entry of the model"
    ).all()
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
    said = one(tables["sensitivity"], question="beyond_the_norm").reason
    assert said == "the warm-up is not known; give warmup_steps (0 without one) in the entry of the model"


@pytest.mark.parametrize(
    ("n_models", "n_steps", "said"), [(1, 9, ""), (1, 12, "12"), (1, 39, "39"), (1, 40, ""), (5, 24, "24"), (5, 25, "")]
)
def test_too_few_checkpoints_are_said_beside_another_obstacle(n_models, n_steps, said):
    rows = pd.DataFrame(
        [(f"m{k}", step) for k in range(n_models) for step in range(n_steps)], columns=["model", "step"]
    )
    text = f"; and {said} checkpoints are few: a correlation of 0.7 takes 40" if said else ""
    assert few_checkpoints_clause(rows) == text


def test_sensitivity_names_warmup_and_few_checkpoints_at_once(run):
    features, metrics, models = run
    early = sorted(features.step.unique())[:12]
    tables = verdict_tables(
        features[features.step.isin(early) & (features.model == sorted(SIZES)[0])],
        metrics[metrics.step.isin(early)],
        models.drop(columns="warmup_steps"),
        seed=1,
        resamples=20,
    )
    said = one(tables["sensitivity"], question="beyond_the_norm").reason
    assert said.startswith("the warm-up is not known")
    assert said.endswith("; and 12 checkpoints are few: a correlation of 0.7 takes 40")


def test_sensitivity_tells_a_run_without_power(run):
    features, metrics, models = run
    able = one(verdict_tables(*run, seed=1, resamples=20)["sensitivity"], question="beyond_the_norm")
    assert (able.found, able.n_runs, able.n_points) == ("yes", 4, N)
    assert 0.2 < able.detectable < 0.6
    # One run of twelve checkpoints.
    short = (features.model == "m") & (features.step < 1200), (metrics.model == "m") & (metrics.step < 1200)
    unable = verdict_tables(features[short[0]], metrics[short[1]], models, seed=1, resamples=20)["sensitivity"]
    unable = one(unable, question="beyond_the_norm")
    assert unable.found == "no"
    assert np.isnan(unable.detectable)


def test_power_is_that_of_the_test_itself(run):
    """A feature of the detectable correlation is found in about 80% of fresh runs of this shape."""
    features, metrics, models = run
    norms = features[features.feature == "frobenius_norm"]
    table = verdict_tables(*run, seed=1, resamples=20)
    row = one(table["sensitivity"], question="beyond_the_norm")
    curve = table["power"][table["power"].question == "beyond_the_norm"].set_index("planted")
    noise = float(np.interp(row.detectable, curve.measured, curve.index))
    rng, planted = np.random.default_rng(5), []
    for i in range(60):
        for model, own in metrics.groupby("model"):
            norm = norms[norms.model == model]["value"].to_numpy()
            new = prewhiten(own["value"].to_numpy(), with_squares(norm), half_cosine=True)
            size = np.sqrt((new.values**2).sum() / (new.values.shape[1] - new.n_fitted[0])) * own["value"].std(ddof=0)
            noisy = own["value"] + size * np.sqrt(1 / noise**2 - 1) * rng.standard_normal(N)
            planted.append(rows(model, f"planted_{i:02d}", noisy))
    tested = together(pd.concat([*planted, norms]), metrics, models, GIVEN_NORM).set_index("feature")
    found = tested["p"].drop("frobenius_norm") <= 0.05 / row.n_tested
    assert len(found) == 60
    assert 0.6 < found.mean() < 0.95


def test_pooled_correlations_of_drifts_are_seldom_rejected():
    rng = np.random.default_rng(11)
    time, p_values = np.arange(N), []
    for _ in range(10):
        features, metrics = [], []
        shared = rng.standard_normal(N)  # the models see the same batches
        for model in ("a", "b", "c", "d"):
            features += [
                rows(
                    model, f"h0_{i:02d}", rng.uniform(1, 9) * (time + 1) ** -0.5 + 0.1 * rng.standard_normal(N).cumsum()
                )
                for i in range(40)
            ]
            features.append(rows(model, "h1_count", np.full(N, 3.0)))
            loss = 2 * (time + 1) ** -0.4 + 0.03 * (shared + 0.5 * rng.standard_normal(N))
            metrics.append(pd.DataFrame({"model": model, "step": STEPS, "metric": "loss", "value": loss}))
        models = pd.DataFrame({"model": ["a", "b", "c", "d"], "warmup_steps": 0})
        p_values.append(together(pd.concat(features), pd.concat(metrics), models, TREND)["p"])
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
        table = together(*tables, models, TREND)
        p_values.append(one(table, feature="neural_persistence").p)
    assert p_values[1] == pytest.approx(p_values[0], rel=1e-6)


def test_pooled_correlations_have_median_and_range(run, analysed):
    runs, pooled = plain(analysed[0]), analysed[1]
    row = one(pooled, feature="neural_persistence", control="nothing")
    alone = runs[runs.feature == "neural_persistence"]["spearman"]
    assert (row.n_runs, row.n_configurations) == (4, 4)
    assert (row.spearman, row.spearman_lowest, row.spearman_highest) == (alone.median(), alone.min(), alone.max())
    # Two of the four as seeds of one configuration: they are averaged first.
    features, metrics, models = run
    models = models.assign(configuration=["one", "one", "two", "three"])
    seeded = verdict_tables(features, metrics, models, seed=1, resamples=20)["pooled_correlations"]
    row = one(seeded, feature="neural_persistence", control="nothing")
    by_model = runs[runs.feature == "neural_persistence"].set_index("model")["spearman"]
    means = [by_model[["s", "m"]].mean(), by_model["l"], by_model["x"]]
    assert (row.n_runs, row.n_configurations) == (4, 3)
    assert (row.spearman, row.spearman_lowest) == pytest.approx((np.median(means), min(means)))


def test_features_that_move_together_are_counted_once():
    rng = np.random.default_rng(6)
    base = rng.standard_normal((2, 30)).cumsum(axis=1)
    values = np.vstack([base, 2 * base[0] + 1, -base[0] + 0.001 * rng.standard_normal(30)])
    correlations = [pd.DataFrame(np.abs(spearman(values, values)), list("abcd"), list("abcd"))]
    assert count_distinct(["a", "b", "c", "d"], correlations) == 2
    assert count_distinct(["a", "b"], correlations) == 2
    assert count_distinct(["a"], []) == 1
    assert count_distinct([], []) == 0
    assert count_distinct(["a", "unseen"], correlations) == 2


def test_same_seed_same_numbers_whatever_else_is_in_the_table(run, analysed):
    features, metrics, models = run

    def correlations(*tables, seed):
        return plain(correlation_tables(*tables, models, seed=seed, resamples=200)["correlations"]).reset_index(
            drop=True
        )

    again = correlations(features[features.model != "s"], metrics[metrics.model != "s"], seed=1)
    columns = ["spearman", "spearman_low", "spearman_block_high", "pearson_low", "spearman_p"]
    whole = plain(analysed[0])
    whole = whole[whole.model != "s"].reset_index(drop=True)
    pd.testing.assert_frame_equal(again[columns], whole[columns], check_exact=True)
    other = correlations(features, metrics, seed=2)
    assert (other["spearman_low"] != plain(analysed[0]).reset_index(drop=True)["spearman_low"]).any()


def test_a_metric_of_the_user_gets_the_verdicts_of_features():
    features, metrics, models = four_models()
    loss = metrics.assign(
        metric="my_noise", value=lambda rows: rows["value"] + 0.02 * np.random.default_rng(1).standard_normal(len(rows))
    )
    score = metrics.assign(metric="task.acc", value=lambda rows: -rows["value"])
    tables = verdict_tables(features, pd.concat([metrics, loss, score]), models, resamples=20)
    pooled = pooled_verdicts(tables["verdicts"], "validation_loss")
    mine = pooled[pooled["source"] == METRIC_SOURCE].set_index(["feature", "question"])
    assert set(mine.index.get_level_values("feature")) == {"my_noise"}
    assert mine.loc[("my_noise", "beyond_the_norm"), "answer"] == "yes"
    without = pooled_verdicts(verdict_tables(features, metrics, models, resamples=20)["verdicts"], "validation_loss")
    same = pooled[pooled["source"] != METRIC_SOURCE].reset_index(drop=True)
    pd.testing.assert_series_equal(same["p"], without["p"].reset_index(drop=True))
    assert set(listing("verdicts", tables["verdicts"]).rows["source"]) == {"weights", "your tables"}
