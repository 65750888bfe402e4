"""The runs of the fourth study: features as in the library, surrogates by hand, the same bytes after an interruption."""

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import toposcale
from studies.study4 import configurations, runs, together, train
from studies.study4.configurations import FEATURES, H0, NUMBERS, complete, loss_column, surrogate, surrogate_error
from toposcale import homology
from toposcale.training import trainer
from toposcale.training.gpt import GPTShape

CONFIG = {
    "run": "small-study",
    "models": {"nano-fourth": {"d_model": 4, "n_layers": 1, "n_heads": 1}},
    "sweep": {"models": ["nano-fourth"], "learning_rate": [0.003], "weight_decay": [0, 0.1], "seeds": 3},
    "training": {
        "steps": 10,
        "checkpoint_every": 1,
        "batch_size": 2,
        "context": 8,
        "warmup_steps": 1,
        "validation_sequences": 4,
    },
    "weights": {"surrogate_draws": 3, "distances": False},
    "embeddings": {"enabled": False},
    "trajectory": {"enabled": False},
}


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Two configurations of three short runs on a text of their own."""
    for split in ("train", "validation"):
        (tmp_path / f"{split}.txt").write_text(f"some words of the {split} text, again and again. " * 40)
    files = {split: [f"{split}.txt"] for split in ("train", "validation")}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(CONFIG | {"corpus": {"source": "files", **files}}))
    monkeypatch.setattr(configurations, "PLAN", "study.yaml")
    return configurations.planned(tmp_path)


def bytes_of(folder):
    """Return the tables of a folder by name."""
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*.csv.gz"))}


def test_an_interrupted_study_goes_on_from_its_tables_elsewhere(plan, tmp_path, monkeypatch):
    train.train_missing(plan, tmp_path / "whole", tmp_path / "work-of-whole")
    trained, names = train.trained, []

    def interrupted(run, *rest):
        if len(names) == 2:
            raise KeyboardInterrupt
        names.append(run.name)
        return trained(run, *rest)

    monkeypatch.setattr(train, "trained", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train.train_missing(plan, tmp_path / "tables", tmp_path / "work")
    assert not complete(tmp_path / "tables", plan[0])
    again = []
    monkeypatch.setattr(train, "trained", lambda run, *rest: again.append(run.name) or trained(run, *rest))
    train.train_missing(plan, tmp_path / "tables", tmp_path / "elsewhere")
    assert bytes_of(tmp_path / "tables") == bytes_of(tmp_path / "whole")
    assert not set(again) & set(names)


def test_a_study_that_is_killed_in_the_middle_has_the_same_bytes(plan, tmp_path, monkeypatch):
    train.train_missing(plan, tmp_path / "whole", tmp_path / "work-of-whole")
    expected, trained, names = bytes_of(tmp_path / "whole"), train.trained, []
    assert len(expected) == 2

    def killed(run, *rest):
        if len(names) == 4:
            raise KeyboardInterrupt
        names.append(run.name)
        return trained(run, *rest)

    tables, work = tmp_path / "tables", tmp_path / "work"
    monkeypatch.setattr(train, "trained", killed)
    with pytest.raises(KeyboardInterrupt):
        train.train_missing(plan, tables, work)
    assert [complete(tables, one) for one in plan] == [True, False]
    # What a kill in the middle of writing a row leaves is not a finished run.
    last = list(plan[1].runs)[1]
    (work / f"{last}.csv.unfinished").write_text("model,fam")

    again = []
    monkeypatch.setattr(train, "trained", lambda run, *rest: again.append(run.name) or trained(run, *rest))
    train.train_missing(plan, tables, work)
    assert again == list(plan[1].runs)[1:]
    assert bytes_of(tables) == expected

    again.clear()
    train.train_missing(plan, tables, tmp_path / "nowhere")
    assert again == []


def test_a_run_has_the_losses_and_features_of_the_library_and_surrogates_by_hand(plan, tmp_path):
    one = plan[1]
    [name, *_] = one.runs
    run, text = one.runs[name], runs.text_of(one, tmp_path / "work")
    row = train.trained(run, one.config, text)
    assert set(NUMBERS) <= set(row)

    # As scripts/train.py does it.
    schedule = trainer.TrainingSettings(
        steps=10,
        batch_size=2,
        learning_rate=0.003,
        weight_decay=run.training["weight_decay"],
        warmup_steps=1,
        seed=run.seed,
    )
    assert one.config["training"]["gradient_clip"] == schedule.clip
    shape = GPTShape(text.vocab_size, 8, 4, 1, 1)
    state = trainer.initial_state(name, shape, schedule, trainer.configure_torch("cpu"))
    sequences = trainer.validation_sequences(text.validation, 8, 4)
    for share, step in ((0.2, 2), (0.3, 3), (0.5, 5), (1.0, 10)):
        trainer.train(state, schedule, text.train, step)
        assert row[loss_column(share)] == trainer.validation_loss(state.model, sequences)
        if step == 3:
            weights = {key: np.array(value) for key, value in runs.matrices_of(state).items()}
    described = toposcale.features_of(weights, surrogate_draws=3)
    whole = described[described["layer"] == "all"].set_index("feature")["value"]
    for feature in set(FEATURES) & set(whole.index):
        assert row[feature] == whole[feature], feature
    assert {"h0_mean", "h0_total", "nuclear_norm", "frobenius_norm", "h0_surrogate_z"} <= set(whole.index)

    # Of the whole model h0_total is the sum over matrices, h0_mean the mean.
    drawn = [
        [
            homology.summarize_diagram(
                homology.rips_diagrams(homology.spectrum_surrogate(matrix, seed=(42, layer, draw)), maxdim=0)[0]
            )
            for layer, matrix in weights.items()
        ]
        for draw in range(3)
    ]
    totals = [sum(bars["total"] for bars in draw) for draw in drawn]
    means = [np.mean([bars["mean"] for bars in draw]) for draw in drawn]
    for feature, values in zip(H0, (totals, means), strict=True):
        assert row[surrogate(feature)] == pytest.approx(np.mean(values), rel=1e-12)
        assert row[surrogate_error(feature)] == pytest.approx(np.std(values, ddof=1) / np.sqrt(3), rel=1e-9)


def test_the_rows_stand_in_the_order_of_the_plan(plan, tmp_path):
    train.train_missing(plan, tmp_path / "tables", tmp_path / "work")
    for one in plan:
        table = pd.read_csv(configurations.file_of(tmp_path / "tables", one))
        assert list(table["model"]) == list(one.runs)
        assert "cpu_s" not in table


def test_runs_that_are_trained_at_once_are_those_that_are_trained_alone(plan, tmp_path):
    train.train_missing(plan, tmp_path / "alone", tmp_path / "work-alone")
    work = tmp_path / "work"
    for one in plan:
        together.train_configuration(one, work, torch.device("cpu"), workers=1)
    train.train_missing(plan, tmp_path / "at-once", work)
    for one in plan:
        alone, at_once = (
            pd.read_csv(configurations.file_of(tmp_path / folder, one)) for folder in ("alone", "at-once")
        )
        pd.testing.assert_frame_equal(alone, at_once, rtol=1e-5)
        assert alone["frobenius_norm"].nunique() == len(alone)


def test_runs_that_differ_by_more_than_the_seed_are_not_trained_at_once():
    settings = [trainer.TrainingSettings(steps=2, warmup_steps=1, learning_rate=rate) for rate in (0.1, 0.2)]
    tokens, shape = np.arange(50, dtype=np.uint16), GPTShape(64, 8, 4, 1, 1)
    with pytest.raises(ValueError, match="differ by more than their seed"):
        together.train_together(shape, settings, tokens, np.zeros((1, 9), np.int64), [1], 1, torch.device("cpu"))


def test_a_run_that_diverges_ends_the_training():
    settings = [trainer.TrainingSettings(steps=3, batch_size=2, warmup_steps=0, learning_rate=1e30)]
    tokens, shape = np.arange(50, dtype=np.uint16), GPTShape(64, 8, 4, 1, 1)
    sequences = trainer.validation_sequences(tokens, 8, 2)
    with pytest.raises(trainer.NonFiniteLossError, match="seed 42"):
        together.train_together(shape, settings, tokens, sequences, [3], 1, torch.device("cpu"))
