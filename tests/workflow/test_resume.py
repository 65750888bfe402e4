"""A killed training goes on from its last checkpoint, and ends in the same bytes."""

import os
import signal
import subprocess
import time

import pytest

from workspace import new_workspace

# One worker for both: they share the training that was not killed.
pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("resume")]

TARGET = "results/small/training/one.parquet"
STEPS, EVERY = 600, 100


def long_training(path, jobs):
    made = new_workspace(path)
    made.config["models"] = {"one": made.config["models"]["one"]}
    made.config["training"] |= {"steps": STEPS, "checkpoint_every": EVERY, "jobs": jobs}
    return made


def checkpoints(workspace):
    return {path.name: path.read_bytes() for path in (workspace.results / "checkpoints" / "one").glob("*")}


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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The training without an interruption."""
    made = long_training(tmp_path_factory.mktemp("whole") / "work", "model")
    made.snakemake(TARGET)
    return made


@pytest.mark.parametrize(
    ("jobs", "pattern"),
    [("model", "checkpoints/one/unfinished/checkpoint-*"), ("checkpoint", "checkpoints/one/*")],
)
def test_a_killed_training_goes_on(whole, tmp_path, jobs, pattern):
    killed = long_training(tmp_path / "killed", jobs)
    start_and_kill(killed, 4, pattern)
    killed.snakemake("--unlock")
    done = killed.snakemake(TARGET)
    if jobs == "model":
        log = (killed.results / "logs" / "train" / "one.log").read_text()
        assert f"step {2 * EVERY} of" in log or f"step {3 * EVERY} of" in log
        assert f"step 0 of {EVERY}," not in log
    else:
        assert done.stderr.count("rule train:") < STEPS // EVERY
    assert checkpoints(killed) == checkpoints(whole)
    assert (killed.path / TARGET).read_bytes() == (whole.path / TARGET).read_bytes()
