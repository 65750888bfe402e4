"""What a user can get wrong ends in one clear line, and finished work stays."""

import os
import subprocess

import pytest
import yaml

import faults
import toposcale
from toposcale.io.errors import UserError

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


def test_a_text_from_the_future(workspace):
    os.utime(workspace.path / "train.txt", (4e9, 4e9))
    text = complaint(workspace, "results/small/corpus/tokens.safetensors")
    assert "train.txt: dated in the future" in text
    assert text.rstrip().splitlines()[-1].endswith("date them now, with touch, and run again")
    assert not (workspace.results / "corpus/tokens.safetensors").exists()


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
    workspace.config["models"]["one"]["training"] = {"learning_rate": 1000}
    logs = [f"results/small/training/{model}.parquet" for model in ("one", "two")]
    [line] = faults.complaints(complaint(workspace, "--keep-going", "--", *logs))
    assert line.startswith("toposcale: train: one: loss ")
    assert "try a lower learning rate" in line
    assert [(workspace.path / log).exists() for log in logs] == [False, True]


def test_a_mistake_in_what_the_advice_reads_is_one_line(workspace):
    (workspace.path / "losses.csv").write_text("step,loss\n1,2\n")
    scores = workspace.path / "scores.csv"
    scores.write_text("model,step,metric,value\nm,1,accuracy,0.5\n")
    workspace.config["models"] = {"m": {"kind": "table", "path": "losses.csv", "n_parameters": 9}}
    workspace.config["metrics"] = {"tables": ["scores.csv"]}
    workspace.snakemake("--nolock", "resolved_configuration")
    scores.write_text("model,step\nm,1\n")
    with pytest.raises(UserError, match=r"scores\.csv: no column metric, value"):
        toposcale.advise_run(workspace.results)


def test_a_log_that_goes_on_after_the_final_step_is_refused(workspace):
    (workspace.path / "losses.csv").write_text("step,loss\n1,3\n9584,2\n")
    workspace.config["models"] = {"m": {"kind": "table", "path": "losses.csv", "n_parameters": 9, "final_step": 100}}
    said = "models.m.final_step holds 100, but the log goes to step 9,584"
    assert said in complaint(workspace, "--quiet", "all", "--", "results/small/tables/models.parquet")
    workspace.snakemake("--nolock", "resolved_configuration")
    with pytest.raises(UserError, match=said):
        toposcale.advise_run(workspace.results)


def test_code_in_the_default_configuration_is_refused_before_it_runs(workspace):
    """Of a file that --configfile names, Snakemake runs the code before it reads the Snakefile: there, make looks first."""
    code = ["import os", "os.mkdir('owned')"]
    workspace.config |= {"__use_yte__": True, "__definitions__": code}
    command = workspace.command("--dry-run")
    at = command.index("--configfile")
    del command[at : at + 2]
    (workspace.path / "config").mkdir()
    (workspace.path / "config" / "config.yaml").write_text(yaml.safe_dump(workspace.config))
    done = subprocess.run(command, cwd=workspace.path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("toposcale: config/config.yaml: holds __use_yte__")
    assert not list(workspace.path.rglob("owned"))


def test_config_values_are_never_run_by_a_shell(workspace):
    mark = workspace.path / "owned"
    workspace.config["corpus"]["train"] = [f"$(touch {mark})"]
    complaint(workspace)
    workspace.config["run"] = f"x; touch {mark}"
    assert "must be a text that is safe in a path" in complaint(workspace)
    assert not mark.exists()
