"""The runs of the third study: as the workflow trains and measures them, resumed by run, skipped by configuration."""

import numpy as np
import pandas as pd
import pytest
import yaml

import toposcale
from studies.study3 import configurations, train
from studies.study3.configurations import TABLES, complete, file_of
from toposcale.training import corpus, trainer
from toposcale.training.gpt import GPTShape

CONFIG = {
    "run": "small-study",
    "models": {"nano-third": {"d_model": 4, "n_layers": 1, "n_heads": 1}},
    "sweep": {"models": ["nano-third"], "learning_rate": [0.003], "weight_decay": [0, 0.1], "seeds": 2},
    "training": {
        "steps": 10,
        "checkpoint_every": 1,
        "batch_size": 2,
        "context": 8,
        "warmup_steps": 1,
        "validation_sequences": 4,
        "jobs": "model",
    },
    "weights": {"jobs": "model", "distances": False},
    "embeddings": {"enabled": False},
    "trajectory": {"enabled": False},
}


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Two configurations of two short runs on a text of their own."""
    for split in ("train", "validation"):
        (tmp_path / f"{split}.txt").write_text(f"some words of the {split} text, again and again. " * 40)
    files = {split: [f"{split}.txt"] for split in ("train", "validation")}
    config = CONFIG | {"corpus": {"source": "files", **files}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setattr(train, "GAP_SEQUENCES", 16)
    return configurations.planned(tmp_path, ["study.yaml"])


def bytes_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*.csv.gz"))}


def test_a_configuration_whose_tables_are_there_is_not_trained_again_and_a_finished_run_neither(
    planned, tmp_path, monkeypatch
):
    tables, work = tmp_path / "tables", tmp_path / "work"
    trained, names = train.trained, []

    def counted(run, *rest):
        if len(names) == 3:
            raise KeyboardInterrupt
        names.append(run.name)
        return trained(run, *rest)

    monkeypatch.setattr(train, "trained", counted)
    with pytest.raises(KeyboardInterrupt):
        train.train_missing(planned, tables, work)
    assert [complete(tables, configuration) for configuration in planned] == [True, False]
    first = bytes_of(tables)
    assert len(first) == len(TABLES)

    # A later session goes on from the committed configuration alone, in a folder that has no finished run.
    monkeypatch.setattr(train, "trained", lambda run, *rest: names.append(run.name) or trained(run, *rest))
    names.clear()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    first_run, second_run = planned[1].runs
    (work / first_run).rename(elsewhere / first_run)
    train.train_missing(planned, tables, elsewhere)
    assert names == [second_run]
    assert all(complete(tables, configuration) for configuration in planned)
    assert {path: data for path, data in bytes_of(tables).items() if path in first} == first

    names.clear()
    train.train_missing(planned, tables, tmp_path / "nowhere")
    assert names == []


def test_a_configuration_that_lacks_a_run_or_a_checkpoint_is_not_complete(planned, tmp_path):
    configuration, tables = planned[0], tmp_path / "tables"
    train.train_configuration(configuration, tables, tmp_path / "work")
    assert complete(tables, configuration)
    for table in TABLES:
        path = file_of(tables, table, configuration.name)
        whole = path.read_bytes()
        pd.read_csv(path).iloc[:-1].to_csv(path, index=False)
        assert not complete(tables, configuration), table
        path.unlink()
        assert not complete(tables, configuration), table
        path.write_bytes(whole)
    assert complete(tables, configuration)


def test_a_run_has_the_losses_and_features_of_the_workflow(planned, tmp_path):
    [name, *_], configuration = planned[0].runs, planned[0]
    run = configuration.runs[name]
    text = train.text_of(configuration, tmp_path / "work")
    rows = train.trained(run, configuration.config, text)

    # As scripts/train.py and scripts/weight_features.py do it, from a checkpoint on disk.
    shape = GPTShape(text.vocab_size, 8, 4, 1, 1)
    schedule = trainer.TrainingSettings(
        steps=10, batch_size=2, learning_rate=0.003, weight_decay=0, warmup_steps=1, seed=run.seed
    )
    assert configuration.config["training"]["gradient_clip"] == schedule.clip
    state = trainer.initial_state(name, shape, schedule, trainer.configure_torch("cpu"))
    sequences = [trainer.validation_sequences(one, 8, 4) for one in (text.validation, text.train)]
    series, early = rows["series"].set_index("step"), rows["early"].iloc[0]
    for step in range(11):
        trainer.train(state, schedule, text.train, step)
        losses = [trainer.validation_loss(state.model, one) for one in sequences]
        assert series.loc[step, "validation_loss"] == losses[0]
        assert series.loc[step, "generalisation_gap"] == losses[0] - losses[1]
        if step == 3:
            trainer.save_weights(tmp_path / "checkpoint.safetensors", state, {})
            described = toposcale.features_of(tmp_path / "checkpoint.safetensors")
    assert early["step"] == 3
    whole = described[described["layer"] == "all"].set_index("feature")["value"]
    for feature, value in whole.items():
        np.testing.assert_equal(early[feature], value, err_msg=feature)
    for feature in ("nuclear_norm", "nearest_neighbour_mean"):
        by_layer = described[(described["feature"] == feature) & (described["layer"] != "all")]
        for layer, value in zip(by_layer["layer"], by_layer["value"], strict=True):
            assert early[f"{feature}/{layer}"] == value
    assert series.loc[3, "nuclear_norm"] == whole["nuclear_norm"]


def test_the_gap_of_many_sequences_is_measured_in_parts_of_both_texts(planned, tmp_path):
    configuration = planned[0]
    text = train.text_of(configuration, tmp_path / "work")
    rows = train.trained(next(iter(configuration.runs.values())), configuration.config, text)
    gaps, series = rows["gaps"], rows["series"].set_index("step")
    assert sorted(gaps["step"].unique()) == [2, 3, 5, 10]
    assert (gaps.groupby("step")["sequences"].sum() == 16).all()
    # The parts are different sequences: their losses differ, and lie around those of the few sequences.
    final = gaps[gaps["step"] == 10]
    assert final["validation_loss"].nunique() == train.GAP_PARTS
    assert final["validation_loss"].mean() == pytest.approx(series.loc[10, "validation_loss"], abs=0.2)
    assert isinstance(text, corpus.Corpus)
