"""What a user can get wrong ends in one clear line, and finished work stays."""

import pytest

import faults

pytestmark = pytest.mark.workflow


def complaint(workspace, *arguments):
    done = workspace.snakemake(*arguments, check=False)
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    return text


def test_an_unknown_key(workspace):
    workspace.config["training"]["stepz"] = 3
    assert "config key training.stepz is unknown; did you mean steps?" in complaint(workspace, "--dry-run")


def test_a_missing_text(workspace):
    workspace.config["corpus"]["train"] = ["absent/*.txt"]
    text = complaint(workspace, "--dry-run")
    assert "config key corpus.train: no file matches 'absent/*.txt'" in text


def test_a_text_that_is_too_short(workspace):
    (workspace.path / "validation.txt").write_text("too short")
    text = complaint(workspace)
    [line] = faults.complaints(text)
    assert line.startswith("toposcale: corpus: ")
    assert "validation" in line
    assert "context" in line


def test_a_text_that_is_not_utf8(workspace):
    (workspace.path / "train.txt").write_bytes(b"abc" * 100 + b"\xff" + b"abc" * 100)
    [line] = faults.complaints(complaint(workspace))
    assert line.startswith("toposcale: corpus: ")
    assert "train.txt" in line
    assert "300" in line


def test_a_diverging_model_stops_alone_and_the_others_go_on(workspace):
    workspace.config["training"]["gradient_clip"] = 1e6
    workspace.config["models"]["one"]["training"] = {"learning_rate": 1000.0}
    logs = [f"results/small/training/{model}.parquet" for model in ("one", "two")]
    [line] = faults.complaints(complaint(workspace, "--keep-going", "--", *logs))
    assert line.startswith("toposcale: train: ")
    assert "step" in line
    assert "learning rate" in line
    assert [(workspace.path / log).exists() for log in logs] == [False, True]


def test_config_values_are_never_run_by_a_shell(workspace):
    mark = workspace.path / "owned"
    workspace.config["corpus"]["train"] = [f"$(touch {mark})"]
    complaint(workspace)
    workspace.config["run"] = f"x; touch {mark}"
    assert "is not safe in a path" in complaint(workspace)
    assert not mark.exists()
