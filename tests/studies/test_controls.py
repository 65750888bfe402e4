"""The controls: what is planted can be found and can be missed, and the training in C is that of PyTorch."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binomtest

from studies.controls import gradient, planted, pooling, replication, scale, settings, train
from studies.controls.train import SETTINGS, signum
from studies.controls.train import settings as drawn_settings
from studies.study4.power import KINDS, of_h0_alone, simulated
from studies.study4.questions import BEYOND_NUCLEAR, BEYOND_SURROGATES, both_tests, read_of, tables_of
from toposcale import homology
from toposcale.io import tensor_files
from toposcale.training import corpus, trainer
from toposcale.training.gpt import GPTShape

RANDOM = np.random.default_rng(0)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(("width", "layers", "heads"), [(8, 1, 1), (12, 2, 2), (16, 1, 2)])
def test_gradient_in_c_is_that_of_pytorch(width, layers, heads):
    shape = GPTShape(128, 128, width, layers, heads)
    state = trainer.initial_state("", shape, trainer.TrainingSettings(), torch.device("cpu"))
    with torch.no_grad():
        state.weights += 0.2 * torch.randn(state.weights.shape, generator=torch.Generator().manual_seed(1))
    sequences = RANDOM.integers(0, 128, (4, 129))
    loss, slope = gradient.loss_and_gradient(shape, state.weights, sequences)
    expected, gradients = trainer.loss_and_gradient(state.model, torch.from_numpy(sequences))
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    assert (slope - gradients).abs().max() < 1e-5 * gradients.abs().max()
    assert gradient.validation_loss(state, sequences) == pytest.approx(loss, abs=1e-6)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_train_in_c_ends_where_the_trainer_does():
    shape, tokens = GPTShape(128, 128, 8, 1, 1), RANDOM.integers(32, 127, 4000).astype(np.uint16)
    schedule = trainer.TrainingSettings(12, 4, 0.01, 0.1, 2, seed=5)
    here, there = (trainer.initial_state("", shape, schedule, torch.device("cpu")) for _ in range(2))
    gradient.train(here, schedule, tokens, 12)
    trainer.train(there, schedule, tokens, 12)
    assert here.step == there.step == 12
    assert (here.weights - there.weights).abs().max() < 1e-3 * there.weights.abs().max()


def test_signum_moves_every_weight_by_the_rate():
    schedule = trainer.TrainingSettings(10, 4, 0.01, 0.0, 0, seed=5)
    state = trainer.initial_state("", GPTShape(128, 128, 8, 1, 1), schedule, torch.device("cpu"))
    before = state.weights.clone()
    signum(state, torch.ones_like(before), schedule, 0)
    assert torch.allclose(before - state.weights, torch.full_like(before, schedule.rates.rate(0)), atol=1e-7)


def test_settings_differ_and_are_drawn_again():
    drawn = drawn_settings()
    assert len({one.learning_rate for one in drawn}) == len(drawn) == SETTINGS
    assert drawn == drawn_settings()
    assert {one.optimizer for one in drawn} == {"adamw", "signum"}


def test_restore_and_gather_write_the_rows_of_the_tables_again(tmp_path):
    tables = tmp_path / "tables"
    tables.mkdir()
    runs = pd.DataFrame({"model": ["a", "b"], "loss": [2.5, 3.25], "features": [0.125, np.nan]})
    runs.to_csv(tables / "replication.csv.gz", index=False)
    train.restore(tables, tmp_path / "work")
    trained = tmp_path / "work/replication.csv.gz/b.csv"
    trained.write_text(trained.read_text().replace("3.25", "3.5"))  # what was trained here is not overwritten
    train.restore(tables, tmp_path / "work")
    train.gather(tables, tmp_path / "work")
    assert pd.read_csv(tables / "replication.csv.gz").equals(runs.replace(3.25, 3.5))


def test_left_rotation_keeps_the_spectrum_and_removes_the_score():
    matrix = np.repeat(RANDOM.standard_normal((8, 6)), 8, axis=0) + 0.1 * RANDOM.standard_normal((64, 6))
    totals = []
    for amount in (0.0, 3.0):
        rotation = planted.left_rotation(amount, 64, seed=("a", 1))
        assert np.allclose(rotation @ rotation.T, np.eye(64))
        turned = rotation @ matrix
        singular_values = [np.linalg.svd(one, compute_uv=False) for one in (turned, matrix)]
        assert np.allclose(*singular_values)
        surrogates = [
            homology.h0_lifetimes(homology.spectrum_surrogate(matrix, seed=(draw,))).sum() for draw in range(20)
        ]
        totals.append(homology.z_score(homology.h0_lifetimes(turned).sum(), surrogates))
    assert totals[0] < -10
    assert abs(totals[1]) < 4


def runs_with(direction):
    """Runs of a simulated study without effects, in which `direction` is a mixture of two columns."""
    models = simulated(KINDS["nothing"], np.random.default_rng(1), runs=60)
    return models.assign(direction=direction(models))


def found_share(models, effect, question):
    """The share of simulations in which the mean of a question is found."""
    plan = planted.plant(models, "direction", (question,))
    random, test = np.random.default_rng(2), planted.FixedTest(question, plan.reads[question], 199)
    return np.mean([test.p(plan.outcome(effect, random))["mean"] <= 0.05 for _ in range(100)])


def test_fixed_test_is_that_of_study_4():
    models = simulated(KINDS["nothing"], np.random.default_rng(1), runs=60)
    read = read_of(BEYOND_NUCLEAR, tables_of(models))
    mean, squares = both_tests(BEYOND_NUCLEAR, read, 999, 42)
    p = planted.FixedTest(BEYOND_NUCLEAR, read, 999).p(read.outcome)
    assert p == pytest.approx({"mean": mean["p"], "sum of squares": squares["p"]}, abs=0.003)


def test_plant_is_found_through_h0():
    models = runs_with(lambda own: own["h0_surrogate_z"])
    assert found_share(models, 0.4, BEYOND_SURROGATES) > 0.9
    assert found_share(models, 0.0, BEYOND_SURROGATES) < 0.2


def test_plant_is_missed_where_h0_does_not_see_it():
    models = runs_with(lambda own: np.random.default_rng(3).standard_normal(len(own)))
    assert found_share(models, 0.4, BEYOND_NUCLEAR) < 0.2


def test_plant_has_the_correlation_in_expectation():
    plan = planted.plant(runs_with(lambda own: own["h0_surrogate_z"]), "direction", (BEYOND_NUCLEAR,))
    random = np.random.default_rng(4)
    runs = plan.members[0]
    correlations = [
        np.corrcoef(plan.outcome(0.3, random)[runs] - plan.fitted[runs], plan.direction[runs])[0, 1] for _ in range(200)
    ]
    assert np.mean(correlations) == pytest.approx(0.3, abs=0.03)


def test_found_of_has_exact_intervals():
    row = planted.found_of(np.array([0.01] * 7 + [0.5] * 13))
    interval = binomtest(7, 20).proportion_ci(method="exact")
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))


def test_summary_interpolates_and_says_where_nothing_is_found():
    key = {"part": "a", "group": "b", "test": "c", "statistic": "mean"}
    rows = [key | {"effect": effect, "found": found} for effect, found in ((0.0, 0.05), (0.1, 0.6), (0.2, 1.0))]
    never = [row | {"test": "d", "found": 0.05} for row in rows]
    table = planted.summary(pd.DataFrame(rows + never)).set_index("test")
    assert table.loc["c", "found_at_80"] == pytest.approx(0.15)
    assert np.isnan(table.loc["d", "found_at_80"])
    assert list(table["passes"]) == [True, False]


def replicated(effects, first_effects=None, runs=60):
    """The rows of a simulated replication, the first plan's runs of 3K with effects of their own."""
    parts = []
    for own, number in ((first_effects or effects, 0), (effects, replication.SEEN_SEEDS)):
        kind = {0.003: own}
        count = runs if number else replication.SEEN_SEEDS
        models = simulated(kind, np.random.default_rng(3 + number), runs=count)
        order = models.groupby("configuration").cumcount()
        parts.append(models.assign(seed=1000 + number + order, model=models["model"] + f".{number}"))
    models = pd.concat(parts, ignore_index=True)
    entries = {count: entry for entry, count, *_ in replication.HYPOTHESES[:2]}
    models = models.assign(entry=models["n_parameters"].map(entries))
    expected = pd.read_csv(replication.STUDY_4 / "secondary.csv")
    return replication.corrected(pd.DataFrame(replication.rows(models, expected, draws=499)))


def test_replication_tests_the_sign_of_each_size_in_unseen_runs():
    effects = of_h0_alone(-0.6)
    table = replicated(effects, of_h0_alone(0.9))
    own = table[table["question"] == "h0 beyond the nuclear norm"].set_index(["entry", "sample"])
    small, large = (hypothesis.entry for hypothesis in replication.HYPOTHESES[:2])
    assert own.loc[small, "runs"].to_dict() == {"first plan": 36, "second plan": 120, "both plans": 156}
    assert own.loc[(small, "first plan"), "estimate"] > 0.2
    assert own.loc[(small, "second plan"), "estimate"] < -0.2
    assert own.loc[(small, "second plan"), "one_sided_p"] < 0.01  # below 0, as expected
    assert own.loc[(large, "second plan"), "one_sided_p"] > 0.95  # below 0, and expected above
    corrections = own["corrected_p"].dropna()
    assert corrections.tolist() == pytest.approx(
        [2 * own.loc[(small, "second plan"), "one_sided_p"], own.loc[(large, "second plan"), "one_sided_p"]]
    )


def test_size_difference_has_its_interval():
    rows = [
        {"entry": hypothesis.entry, "sample": "second plan", "question": "h0 beyond the nuclear norm"}
        | dict(zip(("estimate", "low", "high"), np.tanh([z, z - 1.959964 / 10, z + 1.959964 / 10]), strict=True))
        for hypothesis, z in zip(replication.HYPOTHESES[:2], (-0.2, 0.1), strict=True)
    ]
    [row] = replication.size_difference(pd.DataFrame(rows)).to_dict("records")
    half = 1.959964 * np.sqrt(2) / 10
    assert (row["difference"], row["low"], row["high"]) == pytest.approx((-0.3, -0.3 - half, -0.3 + half))


def test_occurring_rows_tells_characters_that_never_occur(tmp_path):
    text = "abcdefghijklmnopqrstuvwxyz"
    tokens, _ = corpus.encode_characters(text * 10)
    never = np.ones(128, dtype=bool)
    never[tokens] = False
    embedding = np.random.default_rng(9).standard_normal((128, 8))
    embedding[never] = 0.1 * embedding[never] + 3  # rows that nothing tells apart move together
    made = corpus.Corpus("files", "characters", 128, tokens, tokens, {}, {}, ())
    (tmp_path / "corpus").mkdir()
    corpus.save_corpus(made, tmp_path / "corpus/tokens.safetensors")
    for step in (3, 10):
        path = tmp_path / f"checkpoints/a/step-{step:08d}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        tensor_files.write(path, {"token_embedding.weight": embedding}, {})
    (tmp_path / "tables").mkdir()
    model = {"model": "a", "seed": 1, "n_parameters": 1024, "final_step": 10}
    pd.DataFrame([model]).to_parquet(tmp_path / "tables/models.parquet")
    [row, end] = scale.occurring_rows(tmp_path).to_dict("records")
    assert row["occurring_rows"] == 26
    assert row["all_rows"] < -10
    assert abs(row["occurring"]) < 4
    assert end["all_rows"] == row["all_rows"]


def test_predictions_gain_by_what_tells_and_not_by_noise():
    random = np.random.default_rng(5)
    base, told = random.standard_normal((60, 3)), random.standard_normal((60, 1))
    target = base[:, 0] + base[:, 1] ** 2 + told[:, 0] + 0.1 * random.standard_normal(60)
    for method in ("ridge", "kernel ridge"):
        plain = np.abs(settings.predictions(base, None, target, method) - target)
        with_it = np.abs(settings.predictions(base, told, target, method) - target)
        noise = np.abs(settings.predictions(base, random.standard_normal((60, 1)), target, method) - target)
        assert settings.gain_row(plain, with_it)["low"] > 0
        assert settings.gain_row(plain, noise)["low"] < 0


def test_ridge_prediction_is_that_of_the_normal_equations():
    random = np.random.default_rng(6)
    rows, target = random.standard_normal((30, 4)), random.standard_normal(30)
    rows -= rows.mean(axis=0)
    predicted = settings.ridge_prediction(rows, target, rows[:2])
    candidates = []
    for penalty in settings.PENALTIES:
        weights = np.linalg.solve(rows.T @ rows + penalty * np.eye(4), rows.T @ (target - target.mean()))
        hat = np.diag(rows @ np.linalg.solve(rows.T @ rows + penalty * np.eye(4), rows.T)) + 1 / 30
        error = np.abs((target - target.mean() - rows @ weights) / (1 - hat)).mean()
        candidates.append((error, rows[:2] @ weights + target.mean()))
    assert predicted == pytest.approx(min(candidates, key=lambda one: one[0])[1])


def test_mean_regret_of_the_truth_is_zero():
    final, random = np.random.default_rng(7).random(20), np.random.default_rng(8)
    groups = settings.drawn_groups(20, 50, random)
    assert all(len(set(group)) == settings.GROUP for group in groups.tolist())
    assert not settings.mean_regret(final, final, groups, random).any()
    assert settings.mean_regret(-final, final, groups, random).min() > 0


def test_pooled_effect_and_heterogeneity():
    row = pooling.pooled_effect([0.1, 0.1, 0.1], [100, 50, 10])
    assert row["estimate"] == pytest.approx(0.1)
    assert row["i_squared"] == 0
    z, weight = np.arctanh([0.5, -0.5]), np.array([100.0, 100.0])
    q = (weight * (z - np.average(z, weights=weight)) ** 2).sum()
    assert pooling.pooled_effect([0.5, -0.5], weight)["i_squared"] == pytest.approx((q - 1) / q)
