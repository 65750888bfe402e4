"""An input of the user's that has another content is noticed, whatever its time and size say."""

import json
import os
import shutil

import numpy as np
import pytest

import faults
from toposcale.io import tensor_files
from workspace import Workspace

pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("faults")]

TABLES = [f"results/small/tables/{name}.parquet" for name in ("features", "metrics", "models", "schedules", "warnings")]


def weights(path, value):
    tensor_files.write(path, {"w": np.outer(np.arange(4.0), [1.0, value, 3.0]).astype(np.float32)}, {})


# By file of the user's: its content, another one, and a rule that reads it.
INPUTS = {
    "train.txt": ("one text for training, " * 60, "two texts for training " * 60, "corpus"),
    "validation.txt": ("one text for validation, " * 40, "two texts for validation " * 40, "corpus"),
    "losses.csv": ("step,loss\n1,3\n2,2.5\n4,2\n", "step,loss\n1,3\n2,2.4\n4,2\n", "loss_table"),
    "schedule.csv": ("step,lr\n0,0.1\n4,0.01\n", "step,lr\n0,0.2\n4,0.01\n", "schedule_file"),
    "scores.csv": (
        "model,step,metric,value\none,4,acc,0.5\n",
        "model,step,metric,value\none,4,acc,0.6\n",
        "user_metrics",
    ),
    "found/step2.safetensors": (2.0, 7.0, "weight_features"),
    "state/checkpoint-2/trainer_state.json": (2.5, 2.4, "loss_table"),
}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name == "trainer_state.json":
        if not path.with_name("model.safetensors").exists():
            weights(path.with_name("model.safetensors"), 2.0)
        log = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": content}]
        path.write_text(json.dumps({"log_history": log, "global_step": 2, "max_steps": 4}))
    elif isinstance(content, str):
        path.write_text(content)
    else:
        weights(path, content)


def new_workspace(path, which) -> Workspace:
    """The smallest run with an input of every kind; which: 0 for their first contents, 1 for the others."""
    workspace = faults.smallest(path)
    for name, contents in INPUTS.items():
        write(workspace.path / name, contents[which])
    for step in (0, 4):
        weights(workspace.path / f"found/step{step}.safetensors", step)
    models = workspace.config["models"]
    models["one"]["schedule"] = "schedule.csv"
    models["found"] = {"kind": "folder", "path": "found", "tokens_per_step": 16}
    models["state"] = {"kind": "folder", "path": "state", "tokens_per_step": 16}
    models["curve"] = {"kind": "table", "path": "losses.csv", "n_parameters": 9, "tokens_per_step": 16}
    workspace.config["metrics"] = {"tables": ["scores.csv"]}
    return workspace


# How a file gets another content: at the time at which the first one was written, or long before it.
def in_place(path, content, status):
    """`git checkout`, or an editor that keeps the time."""
    write(path, content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def copied(path, content, status):
    """`cp -p` of an older file, or `rsync --inplace -t`."""
    write(path, content)
    os.utime(path, (1e9, 1e9))


def renamed(path, content, status):
    """A backup that is put back, or `rsync -t`: another file, and older."""
    folder = path.with_name("backup")
    write(folder / path.name, content)
    os.utime(folder / path.name, (1e9, 1e9))
    os.replace(folder / path.name, path)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    workspace = new_workspace(tmp_path_factory.mktemp("inputs") / "work", 0)
    workspace.snakemake(*TABLES)
    return workspace


@pytest.mark.parametrize("name", INPUTS)
def test_a_replaced_input_is_planned_whatever_its_time(made, name):
    path = made.path / name
    before, status, folder = path.read_bytes(), path.stat(), path.parent.stat()
    assert made.planned(*TABLES) == {}
    try:
        for replace in (in_place, copied, renamed):
            replace(path, INPUTS[name][1], status)
            assert INPUTS[name][2] in made.planned(*TABLES), replace.__doc__
            path.write_bytes(before)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.utime(path.parent, ns=(folder.st_atime_ns, folder.st_mtime_ns))  # an input too, where it is a checkpoint
    assert made.planned(*TABLES) == {}


def test_replaced_inputs_give_the_bytes_of_a_fresh_run(made, tmp_path):
    workspace, fresh = made.copied(tmp_path / "copy"), new_workspace(tmp_path / "fresh", 1)
    for (name, contents), replace in zip(INPUTS.items(), [copied, renamed, in_place] * 3, strict=False):
        replace(workspace.path / name, contents[1], (workspace.path / name).stat())
    before = workspace.tables()
    for one in (workspace, fresh):
        one.snakemake(*TABLES)
    assert workspace.tables() == fresh.tables()
    assert [name for name, content in before.items() if content == fresh.tables()[name]] == []
