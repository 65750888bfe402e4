"""The training script goes on where a killed job stopped, and only from work with the same settings."""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import train
from toposcale.io import schemas, tables, tensor_files
from toposcale.training import corpus, trainer
from toposcale.training.callbacks import WeightSketch

STEPS = [0, 2, 4]
TRAINING = {
    **{"steps": 4, "batch_size": 2, "context": 8, "learning_rate": 1e-3, "weight_decay": 0.1},
    **{"warmup_steps": 1, "gradient_clip": 1.0, "validation_sequences": 2, "data_fraction": 1.0},
}


@pytest.fixture
def job(tmp_path):
    """A function that makes the job of a whole model; `every` is that of the sketches."""
    texts = ["a text that a small model learns by heart " * 20] * 2
    for name, text in zip(("train", "validation"), texts, strict=True):
        (tmp_path / f"{name}.txt").write_text(text)
    text = corpus.build_corpus(
        "files",
        "characters",
        context=8,
        vocab_size=64,
        train=[str(tmp_path / "train.txt")],
        validation=[str(tmp_path / "validation.txt")],
    )
    corpus.save_corpus(text, tmp_path / "tokens.safetensors")

    def make(every):
        return SimpleNamespace(
            rule="train",
            log=str(tmp_path / "log"),
            wildcards=SimpleNamespace(model="one"),
            input=SimpleNamespace(corpus=tmp_path / "tokens.safetensors", checkpoint=[], optimiser=[], schedule=[]),
            output=SimpleNamespace(
                checkpoints=[str(tmp_path / f"made/step-{step}.safetensors") for step in STEPS],
                log=tmp_path / "made/log.parquet",
                metrics=tmp_path / "made/metrics.parquet",
                sketch=tmp_path / "made/sketch.safetensors",
                optimiser=[],
            ),
            params=Params(
                architecture={"d_model": 4, "n_layers": 1, "n_heads": 1},
                seed=1,
                training=TRAINING,
                digest="0" * 16,
                sketch={"every": every},
                device="cpu",
                steps=STEPS,
            ),
        )

    return make


class Params(dict):
    """Named params, as Snakemake hands them to a script."""

    __getattr__ = dict.__getitem__


def killed_before_its_outputs(snakemake, monkeypatch):
    """Run a job that is killed when all checkpoints are trained, and none has its name."""
    replace = os.replace

    def kill(source, target):
        if Path(target).parent.name == "made":
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", kill)
        with pytest.raises(KeyboardInterrupt):
            train.main(snakemake)


@pytest.mark.parametrize(("every", "trained"), [(2, []), (1, STEPS)])
def test_a_killed_job_goes_on_if_nothing_changed(job, tmp_path, monkeypatch, every, trained):
    killed_before_its_outputs(job(2), monkeypatch)
    advanced = []
    advance = train.TrainingJob.advance

    def counted(self, state, until):
        advanced.append(until)
        advance(self, state, until)

    monkeypatch.setattr(train.TrainingJob, "advance", counted)
    train.main(job(every))
    assert advanced == trained
    log = tables.read(schemas.TABLES["training"], tmp_path / "made/log.parquet")
    assert log["step"].to_pylist() == list(range(5))
    sketches = tensor_files.read(tmp_path / "made/sketch.safetensors")[0]
    np.testing.assert_array_equal(sketches["step"], np.arange(0, 5, every))
    assert not (tmp_path / "made/unfinished").exists()


def test_train_goes_on_only_with_the_rows_of_the_same_schedule_file(job, tmp_path, monkeypatch):
    def with_schedule(last):
        rows = [{"model": "one", "step": step, "learning_rate": rate} for step, rate in ((0, 1e-3), (4, last))]
        tables.write(tables.from_rows(schemas.TABLES["schedules"], rows), tmp_path / "schedule.parquet")
        snakemake = job(1)
        snakemake.params.training = TRAINING | {"schedule": "schedule.csv"}
        snakemake.input.schedule = [tmp_path / "schedule.parquet"]
        return snakemake

    killed_before_its_outputs(with_schedule(1e-4), monkeypatch)
    assert train.TrainingJob(with_schedule(1e-4)).resume()[1] == []
    other = train.TrainingJob(with_schedule(2e-4))
    assert other.settings.schedule.rate(4) == 2e-4
    assert other.resume()[1] == STEPS


def test_trainings_with_other_seeds_are_sketched_by_the_same_projection(job, tmp_path):
    for seed in (1, 2):
        one = job(1)
        one.params.seed = seed
        training = train.TrainingJob(one)
        state, _ = training.resume()
        sketch = WeightSketch(state.weights.numel(), every=1)
        trainer.train(state, training.settings, training.tokens, 1, [sketch])
        training.run()
        made = tensor_files.read(tmp_path / "made/sketch.safetensors")[0]
        np.testing.assert_array_equal(made["sketch"][0], sketch.rows[0])
