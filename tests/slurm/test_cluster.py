"""The workflow on a real SLURM cluster: whatever happens to its jobs, the tables end as those of a local run."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import faults
from environment import NO_CAUSE_RECORDED
from jobs import PATIENCE, Cluster, wait_for
from one_node import HOSTS, cluster
from paths import ROOT
from small_hub import Repository, SmallHub
from tiny_model import REPO, save_checkpoints

pytestmark = pytest.mark.workflow

# Jobs take 6 to 12 seconds here: seen at the first look, where the pace of the profile would miss them and wait longer.
PROFILE = ["--workflow-profile", str(ROOT / "profiles/slurm"), "--latency-wait", "5"]
PROFILE += ["--slurm-init-seconds-before-status-checks", "12"]
SUBMITTED = {"train": 4, "weight_features": 4, "diagram_distances": 2}


@contextmanager
def started(slurm, workspace, *arguments, **environment):
    """Snakemake on the cluster as a process, which is ended with the block; its output is in output.txt."""
    with (workspace.path / "output.txt").open("w") as file:
        process = subprocess.Popen(
            workspace.command(*PROFILE, *arguments),
            env=slurm.environment | environment,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            send(process, signal.SIGKILL)
        process.wait()


def send(process, number):
    """A signal to a process and to what it started, as a terminal sends Ctrl-C: no sbatch outlives its Snakemake."""
    os.killpg(process.pid, number)


def output(workspace) -> str:
    return (workspace.path / "output.txt").read_text()


def started_jobs(log: str) -> Counter:
    """How many jobs of each rule, or group of rules, were handed to SLURM."""
    return Counter(re.findall(r"slurm_logs/(?:rule|group)_(\w+?)/", log))


def finished_jobs(log: str) -> Counter:
    return Counter(re.findall(r"Finished jobid: \d+ \(Rule: (\w+)\)", log))


def assert_same_bytes(workspace, undisturbed):
    """The tables that stand in both are the same, and none is missing."""
    expected, found = undisturbed().tables(), workspace.tables()
    assert sorted(found) == sorted(expected)
    assert [name for name in found if found[name] != expected[name]] == []


def test_cancelled_timed_out_and_killed(slurm, workspace, undisturbed):
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
        send(process, signal.SIGKILL)
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
    assert_same_bytes(workspace, undisturbed)


RESULTS = "results/small/"
CHECKPOINT = "checkpoints/one/step-00000000.safetensors"
FEATURES = "features/weights/one/step-00000008.parquet"
TRAIN_ONE = "rule_train_wildcards_one_step-00000000"


def of_run(slurm, job):
    """The jobs of the run of a job, oldest first."""
    return [other for other in slurm.jobs() if other.name == job.name]


def completes(slurm, workspace, undisturbed, name, **environment):
    """Start a run to a file, which ends well and with the bytes of the undisturbed run."""
    with started(slurm, workspace, RESULTS + name, **environment) as process:
        assert process.wait(PATIENCE) == 0, output(workspace)
    assert (workspace.results / name).read_bytes() == (undisturbed().results / name).read_bytes()


def test_out_of_memory_is_one_line_or_a_try_with_more(slurm, workspace, undisturbed):
    """The job needs more than its first 1500 MB, and less than the 3000 MB of its second try."""
    fault = {"where": "job", "event": "os.rename", "path": rf"{CHECKPOINT}$", "victim": "memory"}
    planted = faults.environment({**fault, "bytes": 1_600_000_000, "seconds": 4})
    environment = {name: planted[name] for name in ("PYTHONPATH", "TOPOSCALE_FAULT")}
    with started(slurm, workspace, "--retries", "0", RESULTS + CHECKPOINT, **environment) as process:
        alone = wait_for(lambda: slurm.jobs(TRAIN_ONE, "PENDING", "RUNNING"), process)[0]
        assert process.wait(PATIENCE) == 1
    assert output(workspace).rstrip().splitlines()[-1] == NO_CAUSE_RECORDED
    assert [(job.memory, job.state) for job in of_run(slurm, alone)] == [(1500, "FAILED")]
    completes(slurm, workspace, undisturbed, CHECKPOINT, **environment)
    tries = of_run(slurm, slurm.jobs(TRAIN_ONE)[-1])
    assert [(job.memory, job.state) for job in tries] == [(1500, "FAILED"), (3000, "COMPLETED")]
    logs = [path.read_text() for path in (workspace.path / ".snakemake" / "slurm_logs").rglob("*.log")]
    assert sum("exceeded memory limit" in log for log in logs) == 2


def test_ctrl_c_cancels_the_jobs(slurm, workspace, undisturbed):
    with started(slurm, workspace, RESULTS + FEATURES) as process:
        job = wait_for(lambda: slurm.jobs(TRAIN_ONE, "RUNNING"), process)[0]
        wait_for(lambda: f"{job.number}.0" in slurm.call("squeue", "--steps"), process)
        send(process, signal.SIGINT)
        assert process.wait(PATIENCE) != 0
    assert output(workspace).rstrip().splitlines()[-1] == NO_CAUSE_RECORDED
    wait_for(lambda: not slurm.call("squeue", "--noheader", "--name", job.name))
    assert [other.state for other in of_run(slurm, job)] == ["CANCELLED"]
    assert not (workspace.results / CHECKPOINT).exists()
    completes(slurm, workspace, undisturbed, FEATURES)


def test_sigterm_waits_for_the_jobs_that_are_submitted(slurm, workspace, undisturbed):
    """Also for one that has not begun; what would come next is not submitted, and what is done is kept."""
    slurm.call("scontrol", "update", "PartitionName=main", "State=DOWN")
    try:
        with started(slurm, workspace, RESULTS + FEATURES) as process:
            job = wait_for(lambda: slurm.jobs(TRAIN_ONE, "PENDING"), process)[0]
            wait_for(lambda: f"SLURM jobid {job.number}" in output(workspace), process)
            process.send_signal(signal.SIGTERM)
            wait_for(lambda: "Will exit after finishing" in output(workspace), process)
            slurm.call("scontrol", "update", "PartitionName=main", "State=UP")
            assert process.wait(PATIENCE) != 0
    finally:
        slurm.call("scontrol", "update", "PartitionName=main", "State=UP")
    assert [other.state for other in of_run(slurm, job)] == ["COMPLETED"]
    assert finished_jobs(output(workspace))["train"] == 1
    completes(slurm, workspace, undisturbed, FEATURES)
    assert started_jobs(output(workspace)) == {"train": 1, "weight_features": 1}


def of_a_hub(workspace, *, keep):
    """The features of the weights of two published checkpoints, as the targets of a run."""
    published = {"kind": "hub", "repo": REPO, "revisions": "step{step}", "steps": [0, 10], "tokens_per_step": 1024}
    workspace.config["models"] = {"tiny": published}
    workspace.config["hub"] = {"cache": str(workspace.path / "cache"), "keep": keep}
    return [f"{RESULTS}features/weights/tiny/step-{step:08}.parquet" for step in (0, 10)]


def test_published_checkpoints(slurm, workspace, tmp_path, monkeypatch):
    """With keep: false the nodes fetch them, and nothing is left; with keep: true the nodes need no network."""
    kept = workspace.copied(tmp_path / "kept")
    files = of_a_hub(workspace, keep=False)
    of_a_hub(kept, keep=True)
    folders = save_checkpoints(tmp_path / "saved")
    steps = ("step0", "step10")
    branches = {step: {file.name: file.read_bytes() for file in folders[step].iterdir()} for step in steps}
    with SmallHub() as hub:
        hub.repositories[REPO] = Repository(branches)
        user = {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.url}
        with started(slurm, workspace, *files, **user) as process:
            assert process.wait(PATIENCE) == 0, output(workspace)
        # A checkpoint is fetched and measured by one job of SLURM.
        assert started_jobs(output(workspace)) == {"checkpoint_fetch_weight_features": 2}
        assert hub.fetched("model.safetensors") == 2
        for name, value in user.items():
            monkeypatch.setenv(name, value)
        kept.snakemake("--until", "fetch", "--", *files)
        assert hub.fetched("model.safetensors") == 4
    assert not list(workspace.path.rglob("model.safetensors"))
    # There is no hub any more.
    with started(slurm, kept, *files, **user, HF_HUB_OFFLINE="1") as process:
        assert process.wait(PATIENCE) == 0, output(kept)
    assert started_jobs(output(kept)) == {"weight_features": 2}
    for file in files:
        assert (workspace.path / file).read_bytes() == (kept.path / file).read_bytes()


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


def test_one_job_for_the_whole_workflow(slurm, workspace, undisturbed):
    """Sent back into the queue in the middle, as it is a minute before its time is up."""
    command = workspace.command("tables", cores=0)
    arguments = command[command.index("--snakefile") :]
    del arguments[arguments.index("--cores") : arguments.index("--cores") + 2]
    environment = slurm.environment | {"SNAKEMAKE": str(Path(sys.executable).with_name("snakemake"))}
    user = Cluster(environment)
    size = ["--cpus-per-task=2", "--mem=8000", "--time=10", f"--chdir={workspace.path}", "--parsable"]
    number = user.call("sbatch", *size, str(ROOT / "profiles/slurm/run.sh"), *arguments).strip()
    log = workspace.path / f"toposcale-{number}.log"
    ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")

    def jobs_that_ended():
        return [job for job in user.jobs("", *ended) if job.number == number]

    wait_for(lambda: list(workspace.results.glob("checkpoints/*/*.safetensors")) or jobs_that_ended())
    assert not jobs_that_ended(), log.read_text()
    user.call("scancel", "--batch", "--signal=USR1", number)
    # SLURM lets two minutes pass before it starts the job again. No sooner: the node still refuses the job's credential.
    wait_for(lambda: user.jobs("", "PENDING") and not processes(f"SLURM_JOB_ID={number}\0"))
    assert "(100%) done" not in log.read_text(), "the first start went on to the end"
    job = wait_for(jobs_that_ended)[0]
    assert job.state == "COMPLETED", log.read_text()
    assert finished_jobs(log.read_text())["train"] <= SUBMITTED["train"] + 2
    assert_same_bytes(workspace, undisturbed)


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
        # SLURM reports a job as RUNNING before its script starts; a script that is stopped then never starts `sleep`.
        wait_for(lambda: [line for line in processes(f"{folder}/") if line.startswith("sleep 1000")][1:])
        running = other.jobs("", "RUNNING")
        assert len(running) == 2
        other.call("scancel", "--full", "--signal=STOP", running[1].number)
        before = " ".join(processes(f"{folder}/"))
        for name in ("munged", "slurmctld", "slurmd", "sleep 1000"):
            assert name in before
    assert processes(f"{folder}/") == []
    assert not folder.exists()
    assert HOSTS.read_bytes() == hosts
    assert sorted(Path("/etc/slurm").glob("**/*")) == configurations
