"""What jobs inherit, such as the revision that tables name; and why a run failed: the first cause, of this run alone."""

import os
import time

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
    assert environment.cause(str(tmp_path), 0) == environment.NONE_LEFT


def test_a_cause_that_a_full_disk_did_not_take_is_told_all_the_same(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "one.cause.txt").touch()
    assert environment.cause(str(tmp_path), 0) == f"toposcale: {tmp_path}: no room to write; make room and run again"
    left(tmp_path, "two.cause.txt", "toposcale: train: out of room", time.time() + 1)
    assert environment.cause(str(tmp_path), 0) == "toposcale: train: out of room (and 1 more)"


def test_files_of_a_run_from_the_future_are_dated_now_in_their_order(tmp_path):
    now, paths = time.time(), [tmp_path / name for name in "abc"]
    for path, ahead in zip(paths, (90_000, -90_000, 80_000), strict=True):
        path.touch()
        os.utime(path, (now + ahead, now + ahead))
    environment.date_back(tmp_path)
    times = [path.stat().st_mtime_ns for path in paths]
    assert now * 1e9 < times[2] < times[0] <= time.time_ns()
    assert times[1] < now * 1e9 - 8e13


def test_a_file_of_the_users_from_the_future_is_named_with_its_time(tmp_path):
    path = tmp_path / "train.txt"
    path.touch()
    environment.refuse_future([str(path), str(tmp_path / "missing.txt")])
    os.utime(path, (4e9, 4e9))
    with pytest.raises(UserError, match=r"train\.txt: dated 2096-10-0\d .*, which is in the future"):
        environment.refuse_future([str(path)])
