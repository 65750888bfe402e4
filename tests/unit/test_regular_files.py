"""A file that may not be read, and a pipe or a device in the place of a file, which may have no end: one line each."""

import os
import tempfile
import threading
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import config_reading
from toposcale import checkpoints
from toposcale.__main__ import main
from toposcale.analysis import lm_eval
from toposcale.forecasting.logs import loss_curves
from toposcale.io import files, schemas, tables, tensor_files
from toposcale.io.errors import UserError, message_of
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


@pytest.fixture
def unprivileged():
    """Return a folder, in which root is an ordinary user who may read and write what its permissions allow."""
    import_module("toposcale.forecasting.decision.check_command")  # now: an ordinary user may not read root's Python
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)
        yield Path(folder)
        if is_root:
            os.seteuid(0)


@pytest.fixture
def locked(tmp_path_factory, unprivileged):
    """Return a function that makes a file which nobody may read."""

    def make(name):
        mine = os.geteuid()
        os.seteuid(os.getuid())
        path = unprivileged / name
        path.write_text("step,loss")
        path.chmod(0)
        os.seteuid(mine)
        return path

    return make


@pytest.mark.parametrize("kind", sorted(READERS.keys() - {"index"}))  # an index without its shards is not read
def test_a_file_that_may_not_be_read_is_named_without_a_code(locked, kind):
    name, read = READERS[kind]
    path = locked(name)
    with pytest.raises((UserError, PermissionError), match=r"[Pp]ermission denied") as caught:
        read(path)
    line = message_of(caught.value)
    assert line.startswith(f"{path}: ")
    assert "Errno" not in line
    assert "complete" not in line


def test_a_command_says_what_to_do_about_permissions(locked, unprivileged, capsys):
    path = locked("losses.jsonl")
    assert main(["check", str(path)]) == 1
    remedy = "change its permissions (chmod), or ask its owner"
    assert capsys.readouterr().err == f"toposcale: {path}: permission denied; {remedy}\n"
    with pytest.raises(UserError) as caught:
        files.write_text(unprivileged / "mine.yaml", "run: mine")
    reason = "not written (permission denied in its folder); write it elsewhere"
    assert str(caught.value) == f"{unprivileged / 'mine.yaml'}: {reason}"


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
