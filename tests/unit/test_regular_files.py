"""A pipe or a device in the place of a file is refused in one line, and never read: it may have no end."""

import os
import threading

import numpy as np
import pytest
from safetensors.numpy import save_file

import config_reading
from toposcale import checkpoints
from toposcale.analysis import lm_eval
from toposcale.forecasting.logs import loss_curves
from toposcale.io import files, schemas, tables, tensor_files
from toposcale.io.errors import UserError
from toposcale.training import corpus

READERS = {
    "checkpoint": ("a.safetensors", lambda path: checkpoints.Checkpoint(path).count.total),
    "weights": ("model.safetensors", lambda path: checkpoints.Checkpoint(path.parent).count.total),
    "bin": ("pytorch_model.bin", lambda path: checkpoints.Checkpoint(path.parent).count.total),
    "index": ("model.safetensors.index.json", lambda path: checkpoints.Checkpoint(path.parent).count.total),
    "tensors": ("state.safetensors", tensor_files.read),
    "table": ("features.parquet", lambda path: tables.read(schemas.TABLES["features"], path)),
    "losses": ("losses.csv", loss_curves.read),
    "lines": ("losses.jsonl", loss_curves.read),
    "unnamed": ("losses", loss_curves.read),
    "trainer": ("trainer_state.json", loss_curves.read),
    "json": ("facts.json", files.read_json),
    "scores": ("results.json", lm_eval._load),
    "configuration": ("config.yaml", config_reading.read),
    "corpus": ("train.txt", lambda path: corpus.read_files(str(path), "train")),
}


@pytest.fixture
def pipe(tmp_path):
    """Make a pipe that a reader waits at; it ends after some seconds, so that no test hangs."""
    timers = []

    def make(name):
        path = tmp_path / name
        os.mkfifo(path)
        timers.append(threading.Timer(5, lambda: os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))))
        timers[-1].start()
        return path

    yield make
    for timer in timers:
        timer.cancel()


@pytest.mark.parametrize("kind", READERS)
def test_a_pipe_is_refused_in_one_line(pipe, kind):
    name, read = READERS[kind]
    path = pipe(name)
    with pytest.raises(UserError, match="not a regular file") as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
def test_a_pipe_beside_the_weights_is_refused_before_a_library_reads_it(tmp_path, pipe, name):
    save_file({"w": np.ones((2, 3), np.float32)}, tmp_path / "model.safetensors")
    assert checkpoints.Checkpoint(tmp_path).count.total == 6
    path = pipe(name)
    with pytest.raises(UserError, match="not a regular file") as caught:
        list(checkpoints.Checkpoint(tmp_path).matrices())
    assert str(caught.value).startswith(f"{path}: ")


def test_a_pipe_among_tensorboards_files_is_refused(tmp_path, pipe):
    pytest.importorskip("tensorboard")
    path = pipe("events.out.tfevents.1")
    for named in (path, tmp_path):
        with pytest.raises(UserError, match=r"tfevents\.1: not a regular file"):
            loss_curves.read(named)


def test_a_device_and_a_link_to_one_are_refused(tmp_path):
    (tmp_path / "model.safetensors").symlink_to("/dev/zero")
    for path in ("/dev/zero", tmp_path / "model.safetensors"):
        with pytest.raises(UserError, match="not a regular file"):
            list(checkpoints.Checkpoint(path).matrices())


def test_files_folders_links_and_what_is_missing_pass(tmp_path):
    (tmp_path / "file").write_text("{}")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "broken").symlink_to("nowhere")
    for path in (tmp_path, *tmp_path.iterdir(), tmp_path / "missing"):
        assert files.regular_file(path) == path
    assert files.read_json(tmp_path / "link") == {}
