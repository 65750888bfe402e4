"""A killed training goes on from its last checkpoint, and ends in the same bytes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from loaded import PATIENCE
from paths import ROOT
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


def start_and_kill(workspace, wanted, pattern, command=None, environment=()):
    """Start the run, wait until `wanted` files match `pattern`, and kill everything that runs, without warning."""
    process = subprocess.Popen(
        command or workspace.command(TARGET),
        cwd=workspace.path,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | dict(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    give_up = time.monotonic() + PATIENCE
    while len(list(workspace.results.glob(pattern))) < wanted:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < give_up
        time.sleep(0.01)
    # The script of SLURM starts Snakemake in a process group of its own.
    for running in [*psutil.Process(process.pid).children(recursive=True), process]:
        running.kill()
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


def test_a_killed_training_starts_again_where_its_optimiser_is_damaged(tmp_path):
    killed = long_training(tmp_path / "killed")
    start_and_kill(killed, 4, "checkpoints/one/unfinished/checkpoint-*")
    optimiser = killed.results / "checkpoints/one/unfinished/optimiser"
    optimiser.write_bytes(optimiser.read_bytes()[:100])
    killed.snakemake("--unlock")
    killed.snakemake(TARGET)
    log = (killed.results / "logs/train/one/all.log").read_text()
    assert "starts again, since what a killed job left cannot be read" in log
    assert f"step 0 of {EVERY}," in log


def slurm_job(workspace, number):
    """The command of profiles/slurm/run.sh on a workspace, and the environment that SLURM gives to a job of a number."""
    command = workspace.command(TARGET)
    arguments = command[command.index("--snakefile") :]
    del arguments[arguments.index("--cores") : arguments.index("--cores") + 2]
    environment = {"SLURM_JOB_ID": number, "SLURM_CPUS_PER_TASK": "1", "SLURM_MEM_PER_NODE": "4000"}
    environment |= {"SNAKEMAKE": str(Path(sys.executable).with_name("snakemake"))}
    return ["bash", str(ROOT / "profiles/slurm/run.sh"), *arguments], environment


def restart(workspace, number):
    """What the job of a number says when SLURM starts it again, and its exit status."""
    command, environment = slurm_job(workspace, number)
    environment |= {"SLURM_RESTART_COUNT": "1"}
    done = subprocess.run(
        command, cwd=workspace.path, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr, done.returncode


def test_a_job_of_slurm_that_comes_again_removes_its_own_lock_and_no_other(tmp_path):
    workspace = new_workspace(tmp_path / "small")
    locks = workspace.path / ".snakemake" / "locks"
    start_and_kill(workspace, 1, "corpus/tokens.safetensors", *slurm_job(workspace, "7"))
    assert list(locks.iterdir())
    # Another job, and this one where the files of the lock are other ones.
    for other, number in ((workspace, "8"), (workspace.copied(tmp_path / "copy"), "7")):
        said, status = restart(other, number)
        assert status != 0
        assert "Directory cannot be locked" in said
        assert len(list((other.path / ".snakemake" / "locks").iterdir())) == 2
    said, status = restart(workspace, "7")
    assert status == 0, said
    assert (workspace.path / TARGET).exists()
    assert not locks.exists()
