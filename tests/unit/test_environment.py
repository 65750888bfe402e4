"""What jobs inherit, such as the revision that tables name; and why a run failed: the first cause, only of this run."""

import os
import time
from pathlib import Path

import pytest

import environment
from paths import ROOT
from toposcale.io.errors import UserError


def test_a_node_without_git_names_the_revision_of_the_start(monkeypatch, tmp_path):
    monkeypatch.setenv("TOPOSCALE_REVISION", "stale")
    here = environment.revision(ROOT)
    assert here != "stale"
    monkeypatch.setenv("TOPOSCALE_REVISION", here)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.revision(ROOT) == here
    monkeypatch.delenv("TOPOSCALE_REVISION")
    assert environment.revision(ROOT) == "unknown"


def left(run, name, text, at):
    path = run / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    os.utime(path, (at, at))


def test_the_first_job_that_failed_in_this_run_is_named(tmp_path):
    left(tmp_path, "features/one.cause.txt", "toposcale: features: of another day", 100)
    left(tmp_path, "train/two.cause.txt", "toposcale: train: out of room", 1005)
    left(tmp_path, "train/one.cause.txt", "toposcale: train: first", 1001)
    assert environment.cause(str(tmp_path), 1000) == "toposcale: train: first (and 1 more)"
    assert environment.cause(str(tmp_path), 1003) == "toposcale: train: out of room"


def test_a_run_that_left_no_cause(tmp_path):
    assert environment.cause(str(tmp_path), 0) == environment.NO_CAUSE_RECORDED


def test_a_cause_that_a_full_disk_did_not_take_is_told_all_the_same(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "one.cause.txt").touch()
    assert environment.cause(str(tmp_path), 0) == f"toposcale: {tmp_path}: no room to write; make room and run again"
    left(tmp_path, "two.cause.txt", "toposcale: train: out of room", time.time() + 1)
    assert environment.cause(str(tmp_path), 0) == "toposcale: train: out of room (and 1 more)"


def test_refuse_future_names_what_is_dated_ahead(tmp_path):
    run, text = tmp_path / "results" / "small", tmp_path / "text.txt"
    (run / "tables").mkdir(parents=True)
    for file in (text, run / "tables" / "a.parquet"):
        file.touch()
        environment.refuse_future(run, [str(text)])
        os.utime(file, (time.time() + 3600,) * 2)
        with pytest.raises(UserError, match=rf"^{file}: dated in the future, .*touch, and run again$"):
            environment.refuse_future(run, [str(text)])
        os.utime(file)


def test_mistakes_in_a_line_ends_with_the_file_that_cannot_be_read():
    with pytest.raises(SystemExit) as end, environment.mistakes_in_a_line():
        Path(5000 * "x").read_bytes()
    assert str(end.value).startswith("toposcale: x")
    assert str(end.value).endswith("x: file name too long")
    assert len(str(end.value)) < 400
