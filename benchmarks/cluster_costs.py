"""What a job costs on SLURM, by how the workflow is started. On a cluster of one node, as root:

    python tests/slurm/one_node.py .venv/bin/python -m benchmarks.cluster_costs [local] [allocation] [groups] [single]

Two small models are trained through six checkpoints each, and the weights of each are measured: 24 jobs, the same in every
row. CPU seconds are those of everything that the start set off, jobs included, as a control group counts them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "workflow")]

from workspace import Workspace, new_workspace  # noqa: E402

JOBS = 24
CORES = 2
SNAKEMAKE = str(Path(sys.executable).with_name("snakemake"))
PROFILE = ["--workflow-profile", str(ROOT / "profiles/slurm"), "--slurm-init-seconds-before-status-checks", "1"]
GROUPS = ["--groups", "train=model", "weight_features=model"]


def targets(workspace: Workspace) -> list[str]:
    """The features of every checkpoint."""
    folder = workspace.results.relative_to(workspace.path) / "features/weights"
    steps = range(0, workspace.config["training"]["steps"] + 1, workspace.config["training"]["checkpoint_every"])
    return [f"{folder}/{model}/step-{step:08d}.parquet" for model in workspace.config["models"] for step in steps]


def local(workspace: Workspace) -> list[str]:
    """No SLURM: what the jobs themselves cost."""
    return workspace.command(*targets(workspace), cores=CORES)


def allocation(workspace: Workspace) -> list[str]:
    """One SLURM job, which runs Snakemake on its cores."""
    command = workspace.command(*targets(workspace))
    arguments = command[command.index("--snakefile") :]
    size = [f"--cpus-per-task={CORES}", "--mem=8000", f"--chdir={workspace.path}", "--wait"]
    return ["sbatch", *size, str(ROOT / "profiles/slurm/run.sh"), *arguments]


def single(workspace: Workspace) -> list[str]:
    """A SLURM job a job."""
    return workspace.command(*PROFILE, "--", *targets(workspace))


def groups(workspace: Workspace) -> list[str]:
    """A SLURM job a model."""
    return workspace.command(*PROFILE, *GROUPS, "--", *targets(workspace))


class CpuClock:
    """CPU seconds of this process and all that comes of it, jobs that SLURM starts included."""

    def __init__(self, jobs: str) -> None:
        first = Path("/sys/fs/cgroup/cpuacct")
        self.folder = (first if first.is_dir() else Path("/sys/fs/cgroup")) / jobs
        self.folder.mkdir(exist_ok=True)
        (self.folder / "cgroup.procs").write_text(str(os.getppid()))
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))
        for process in Path("/proc").glob("[0-9]*"):  # slurmd was there before
            if (process / "comm").read_text().strip() in ("slurmd", "slurmctld"):
                (self.folder / "cgroup.procs").write_text(process.name)

    def read(self) -> float:
        usage = self.folder / "cpuacct.usage"
        if usage.exists():
            return int(usage.read_text()) / 1e9
        return int((self.folder / "cpu.stat").read_text().split()[1]) / 1e6


def main() -> None:
    """Print a row a way."""
    clock = CpuClock("toposcale-costs")
    print(f"{'':<12} {'wall s':>8} {'a job':>8} {'CPU s':>8} {'a job':>8}")
    ways = (local, allocation, groups, single)
    for way in [way for way in ways if way.__name__ in sys.argv[1:]] or ways:
        with TemporaryDirectory() as folder:
            workspace = new_workspace(Path(folder) / "work")
            workspace.config["training"]["jobs"] = workspace.config["weights"]["jobs"] = "checkpoint"
            command = way(workspace)
            begin, cpu = time.perf_counter(), clock.read()
            done = subprocess.run(
                command, env=os.environ | {"SNAKEMAKE": SNAKEMAKE}, capture_output=True, text=True, check=False
            )
            wall, cpu = time.perf_counter() - begin, clock.read() - cpu
            if done.returncode or not all((workspace.path / target).exists() for target in targets(workspace)):
                sys.exit(f"{way.__name__} failed:\n{done.stdout}{done.stderr}")
            print(f"{way.__name__:<12} {wall:8.1f} {wall / JOBS:8.2f} {cpu:8.1f} {cpu / JOBS:8.2f}", flush=True)


if __name__ == "__main__":
    main()
