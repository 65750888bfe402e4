"""A killed training goes on from its last checkpoint, and ends in the same bytes."""

import os
import signal
import subprocess
import time

import pytest

from workspace import new_workspace

pytestmark = pytest.mark.workflow

TARGET = "results/small/training/one.parquet"
STEPS, EVERY = 600, 100


def long_training(path):
    made = new_workspace(path)
    made.config["models"] = {"one": made.config["models"]["one"]}
    made.config["training"] |= {"steps": STEPS, "checkpoint_every": EVERY, "jobs": "model"}
    return made


def checkpoints(workspace):
    found = (workspace.results / "checkpoints" / "one").glob("*")
    return {path.name: path.read_bytes() for path in found}


def start_and_kill(workspace, wanted, pattern):
    """Start the run, wait until `wanted` files match `pattern`, and kill everything that runs, without warning."""
    process = subprocess.Popen(
        workspace.command(TARGET),
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    give_up = time.monotonic() + 120
    while len(list(workspace.results.glob(pattern))) < wanted:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < give_up
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_killed_training_goes_on(tmp_path):
    """One job trains the whole model; test_faults.py kills trainings of a checkpoint a job."""
    whole = long_training(tmp_path / "whole")
    whole.snakemake(TARGET)
    killed = long_training(tmp_path / "killed")
    start_and_kill(killed, 4, "checkpoints/one/unfinished/checkpoint-*")
    killed.snakemake("--unlock")
    killed.snakemake(TARGET)
    log = (killed.results / "logs" / "train" / "one" / "all.log").read_text()
    assert f"step {2 * EVERY} of" in log or f"step {3 * EVERY} of" in log
    assert f"step 0 of {EVERY}," not in log
    assert checkpoints(killed) == checkpoints(whole)
    for name in (TARGET, "results/small/metrics/training/one/all.parquet"):
        assert (killed.path / name).read_bytes() == (whole.path / name).read_bytes()
    sketches = "results/small/sketches/one/all.safetensors"
    assert (killed.path / sketches).read_bytes() == (whole.path / sketches).read_bytes()
