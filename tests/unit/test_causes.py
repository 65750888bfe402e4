"""Why a run failed: the first cause, of this run and not of an earlier one."""

import os

import causes


def left(run, name, text, at):
    path = run / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    os.utime(path, (at, at))


def test_the_first_job_that_failed_in_this_run_is_named(tmp_path):
    left(tmp_path, "features/one.cause.txt", "toposcale: features: of another day", 100)
    left(tmp_path, "train/two.cause.txt", "toposcale: train: out of room", 1005)
    left(tmp_path, "train/one.cause.txt", "toposcale: train: first", 1001)
    assert causes.cause(str(tmp_path), 1000) == "toposcale: train: first (and 1 more)"
    assert causes.cause(str(tmp_path), 1003) == "toposcale: train: out of room"


def test_a_run_that_left_no_cause(tmp_path):
    assert causes.cause(str(tmp_path), 0) == causes.NONE_LEFT
