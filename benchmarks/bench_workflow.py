"""What the workflow adds to the work itself: the feature stage of a paper run, planning, a large checkpoint in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.timing import Row
from toposcale import checkpoints
from toposcale.features import weights
from toposcale.io import tables, tensor_files

ROOT = Path(__file__).resolve().parent.parent
SHAPES = {"tiny-3k": (8, 1), "small-7k": (16, 1), "med-21k": (24, 2), "large-46k": (32, 3), "xl-97k": (48, 3)}
STEPS = range(0, 5001, 100)


def random_checkpoint(path: Path, d_model: int, n_layers: int, seed: int) -> None:
    """A checkpoint of the family's shape with random weights."""
    random = np.random.default_rng(seed)
    shapes = {"token_embedding.weight": (128, d_model), "position_embedding.weight": (128, d_model)}
    for block in range(n_layers):
        for name, shape in {
            "attention.qkv": (3 * d_model, d_model),
            "attention.projection": (d_model, d_model),
            "feed_forward.expansion": (4 * d_model, d_model),
            "feed_forward.projection": (d_model, 4 * d_model),
        }.items():
            shapes[f"blocks.{block}.{name}.weight"] = shape
    arrays = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    tensor_files.write(path, arrays, {})


class Cost(NamedTuple):
    """What a command took: wall and CPU seconds, its children's included, and the largest process in MB."""

    wall: float
    cpu: float
    memory: float


def cost_of(command: list[str], **environment: Any) -> Cost:
    """Run a command to its end; raises CalledProcessError where it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def snakemake(folder: str, *arguments: str, configuration: str = "config/paper.yaml") -> Cost:
    """One Snakemake call in a folder of its own, on two cores."""
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--directory",
        folder,
    ]
    command += ["--configfile", str(ROOT / configuration), "--cores", "2", "--quiet", "all"]
    command += ["--workflow-profile", str(ROOT / "profiles/default"), *arguments]
    return cost_of(command)


def checkpoints_of_a_paper_run(folder: str) -> dict[tuple[str, int], Path]:
    """Its 255 checkpoints with random weights, by model and step."""
    run = Path(folder) / "results/paper"
    paths = {
        (model, step): run / "checkpoints" / model / f"step-{step:08d}.safetensors"
        for model in SHAPES
        for step in STEPS
    }
    for seed, ((model, _), path) in enumerate(paths.items()):
        random_checkpoint(path, *SHAPES[model], seed)
    return paths


def feature_jobs(folder: str, paths: Iterable[Path]) -> Cost:
    """The weight features of some checkpoints, a job each."""
    targets = [f"results/paper/features/weights/{path.parent.name}/{path.stem}.parquet" for path in paths]
    return snakemake(folder, "--allowed-rules", "weight_features", "--", *targets)


def feature_stage(folder: str) -> Iterator[Row]:
    """255 jobs on two cores against one process that computes and writes the same features in a loop."""
    paths = checkpoints_of_a_paper_run(folder)
    start = time.perf_counter(), time.process_time()
    for (model, step), path in paths.items():
        features, diagrams = weights.compute_features(
            checkpoints.iterate_matrices(path), weights.Settings(), model=model
        )
        where = {"model": model, "step": step, "source": "weights"}
        tables.write(tables.feature_rows(features, **where), Path(folder) / "features.parquet")
        tables.write(tables.diagram_rows(diagrams, **where), Path(folder) / "diagrams.parquet")
    loop, loop_cpu = time.perf_counter() - start[0], time.process_time() - start[1]
    jobs = feature_jobs(folder, paths.values())
    yield Row("feature stage of a paper run, 255 jobs / one loop", jobs.wall, loop, 3)
    overhead = (jobs.cpu - loop_cpu) / len(paths)
    yield Row("CPU that the workflow adds to a job of weight features", overhead, 1, 0.25, absolute=True)


def growth(folder: str) -> Iterator[Row]:
    """Whether the cost of a job stays what it is as jobs become more: 1, 2, 4 and 8 x 30 of them."""
    # By step, so that each stretch has as many checkpoints of large models as of small ones.
    paths = sorted(checkpoints_of_a_paper_run(folder).values(), key=lambda path: path.stem)
    costs = {}
    for factor in (1, 2, 4, 8):
        shutil.rmtree(Path(folder) / "results/paper/features", ignore_errors=True)
        costs[factor] = feature_jobs(folder, paths[: 30 * factor])
    for name, first, last in (("1 to 4 x", 1, 4), ("4 to 8 x", 4, 8)):
        each = (costs[last].cpu - costs[first].cpu) / (30 * (last - first))
        yield Row(f"CPU of one more job, {name} 30 jobs", each, 1, 0.5, absolute=True)
    yield Row("largest process, 8 x / 1 x the jobs", costs[8].memory, costs[1].memory, 1.3, unit="MB")


def planning(folder: str) -> Iterator[Row]:
    """Dry runs of the paper run, and of one of 10,097 jobs. (Of a finished run it is the same work.)"""
    once = min(snakemake(folder, "--dry-run").wall for _ in range(2))
    yield Row("dry run of config/paper.yaml", once, 1, 5, absolute=True)
    # Quiet in these two ways, Snakemake ends when it has planned, and does not go through the jobs to print them.
    more = ["--config", "training={checkpoint_every: 6}", "landscape={every: 5}"]
    many = snakemake(folder, "--dry-run", "--quiet", "rules", "progress", *more).wall
    yield Row("planning 10,000 jobs", many, 1, 15, absolute=True)


def memory(folder: str) -> Iterator[Row]:
    """Peak memory of the features of a checkpoint with 100 million parameters, in a process of its own."""
    path = Path(folder) / "large.safetensors"
    random = np.random.default_rng(0)
    shapes = {"embedding.weight": (50304, 768)}
    for block in range(9):
        shapes |= {f"{block}.qkv.weight": (2304, 768), f"{block}.projection.weight": (768, 768)}
        shapes |= {f"{block}.expansion.weight": (3072, 768), f"{block}.contraction.weight": (768, 3072)}
    tensor_files.write(
        path, {name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}, {}
    )
    code = (
        "import sys; from pathlib import Path; from toposcale import checkpoints, weights;"
        "weights.compute_features(checkpoints.iterate_matrices(sys.argv[1]), weights.Settings(), model='m');"
        # Not getrusage: a child's peak there starts from its parent's.
        "status = Path('/proc/self/status').read_text();"
        "print(int(status.split('VmHWM:')[1].split()[0]) / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
    )
    yield Row(
        "memory, features of 102 million parameters", float(done.stdout), 1, 1500, absolute=True, unit="MB"
    )


def rows() -> Iterator[Row]:
    """Each in a temporary folder."""
    for measure in (feature_stage, growth, planning, memory):
        with tempfile.TemporaryDirectory() as folder:
            yield from measure(folder)
