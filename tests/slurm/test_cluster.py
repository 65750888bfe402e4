"""The workflow on a real SLURM cluster: whatever happens to its jobs, the tables end as those of a local run."""

import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs import PATIENCE, Cluster, wait_for
from one_node import HOSTS, cluster
from paths import ROOT

pytestmark = pytest.mark.workflow

# Jobs take 6 to 12 seconds here: seen at the first look, where the pace of the profile would miss them and wait longer.
PROFILE = ["--workflow-profile", str(ROOT / "profiles/slurm"), "--latency-wait", "5"]
PROFILE += ["--slurm-init-seconds-before-status-checks", "12"]
SUBMITTED = {"train": 4, "weight_features": 4, "diagram_distances": 2}


@contextmanager
def started(slurm, workspace, *arguments):
    """Snakemake on the cluster as a process, which is ended with the block; its output is in output.txt."""
    with (workspace.path / "output.txt").open("w") as file:
        process = subprocess.Popen(
            workspace.command(*PROFILE, *arguments), env=slurm.environment, stdout=file, stderr=file
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def output(workspace) -> str:
    return (workspace.path / "output.txt").read_text()


def started_jobs(log: str) -> Counter:
    """How many jobs of each rule were handed to SLURM."""
    return Counter(re.findall(r"slurm_logs/rule_(\w+?)/", log))


def finished_jobs(log: str) -> Counter:
    return Counter(re.findall(r"Finished jobid: \d+ \(Rule: (\w+)\)", log))


def test_cancelled_timed_out_and_killed(slurm, workspace, local_tables):
    one, two = (f"rule_train_wildcards_{model}_step-00000000" for model in ("one", "two"))
    with started(slurm, workspace, "tables") as process:
        # One job is cancelled, another one hangs until SLURM ends it at its time limit.
        cancelled = wait_for(lambda: slurm.jobs(two), process)[0]
        slurm.call("scancel", cancelled.number)
        stalled = wait_for(lambda: slurm.jobs(one, "RUNNING"), process)[0]
        wait_for(lambda: f"{stalled.number}.0" in slurm.call("squeue", "--steps"), process)
        slurm.call("scancel", "--full", "--signal=STOP", stalled.number)
        slurm.call("scontrol", "update", f"JobId={stalled.number}", "EndTime=now+1")
        for comment, first, state in ((two, cancelled, "CANCELLED"), (one, stalled, "TIMEOUT")):
            second = wait_for(lambda comment=comment: slurm.jobs(comment)[1:], process)[0]
            assert slurm.jobs(comment)[0].state == state
            assert (second.limit, second.memory) == (2 * first.limit, 2 * first.memory)
        assert (first.limit, first.memory) == (60, 1500)
        # The main process is killed when it has seen jobs end and others are left.
        wait_for(lambda: finished_jobs(output(workspace))["train"], process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    slurm.cancel(stalled.name)
    done = finished_jobs(output(workspace))
    workspace.snakemake("--unlock")
    planned = workspace.planned("tables")
    left = {rule: planned.get(rule, 0) for rule in SUBMITTED}
    assert all(left[rule] <= SUBMITTED[rule] - done[rule] for rule in SUBMITTED), (
        f"finished work is done again: {left} are left, {done} were done"
    )
    with started(slurm, workspace, "tables") as process:
        assert process.wait(PATIENCE) == 0, output(workspace)
    assert {rule: started_jobs(output(workspace))[rule] for rule in SUBMITTED} == left
    expected, found = local_tables(), workspace.tables()
    assert sorted(found) == sorted(expected)
    assert [name for name in found if found[name] != expected[name]] == []


def processes(variable: str) -> list[str]:
    """The command lines of the processes whose environment has a text."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if variable in (process / "environ").read_text(errors="replace"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            pass  # it has ended
    return found


def test_one_job_for_the_whole_workflow(slurm, workspace, local_tables):
    """Sent back into the queue in the middle, as it is a minute before its time is up."""
    command = workspace.command("tables", cores=0)
    arguments = command[command.index("--snakefile") :]
    del arguments[arguments.index("--cores") : arguments.index("--cores") + 2]
    environment = slurm.environment | {"SNAKEMAKE": str(Path(sys.executable).with_name("snakemake"))}
    user = Cluster(environment)
    size = ["--cpus-per-task=2", "--mem=8000", "--time=10", f"--chdir={workspace.path}", "--parsable"]
    number = user.call("sbatch", *size, str(ROOT / "profiles/slurm/run.sh"), *arguments).strip()
    log = workspace.path / f"toposcale-{number}.log"
    wait_for(lambda: list(workspace.results.glob("checkpoints/*/*.safetensors")))
    user.call("scancel", "--batch", "--signal=USR1", number)
    # SLURM lets two minutes pass before it starts the job again, so that nothing of it runs any more.
    wait_for(lambda: user.jobs("", "PENDING") and not processes(f"SLURM_JOB_ID={number}\0"))
    user.call("scontrol", "update", f"JobId={number}", "StartTime=now")
    ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
    job = wait_for(lambda: [job for job in user.jobs("", *ended) if job.number == number])[0]
    assert job.state == "COMPLETED", log.read_text()
    assert finished_jobs(log.read_text())["train"] <= SUBMITTED["train"] + 2
    assert workspace.tables() == local_tables()


def test_a_model_that_asks_for_cuda_gets_a_gpu(slurm, workspace):
    workspace.config["training"]["device"] = "cuda"
    slurm.call("scontrol", "update", "PartitionName=main", "State=DOWN")
    try:
        with started(slurm, workspace, "tables") as process:
            jobs = wait_for(lambda: slurm.jobs("rule_train", "PENDING"), process)
            assert "TresPerJob=gres:gpu:1" in slurm.call("scontrol", "show", "job", jobs[0].number)
        slurm.cancel(jobs[0].name)
    finally:
        slurm.call("scontrol", "update", "PartitionName=main", "State=UP")


def test_nothing_is_left_of_a_cluster():
    hosts = HOSTS.read_bytes()
    configurations = sorted(Path("/etc/slurm").glob("**/*"))
    with cluster() as environment:
        folder = Path(environment["SLURM_CONF"]).parent
        other = Cluster(environment)
        for _ in range(2):
            other.call("sbatch", "--output=/dev/null", "--wrap", "sleep 1000")
        running = wait_for(lambda: other.jobs("", "RUNNING")[1:])
        other.call("scancel", "--full", "--signal=STOP", running[0].number)
        before = " ".join(processes(f"{folder}/"))
        for name in ("munged", "slurmctld", "slurmd", "sleep 1000"):
            assert name in before
    assert processes(f"{folder}/") == []
    assert not folder.exists()
    assert HOSTS.read_bytes() == hosts
    assert sorted(Path("/etc/slurm").glob("**/*")) == configurations
