"""What the workflow adds to the work itself: the feature stage of a paper run, its growth, and planning."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.runs import Cost, features, snakemake, write_checkpoints
from benchmarks.timing import Line, Row
from toposcale import checkpoints
from toposcale.features import weights
from toposcale.io import tables


def rows() -> Iterator[Line]:
    """Each in a temporary folder."""
    for measure in (feature_stage, growth, planning):
        with tempfile.TemporaryDirectory() as folder:
            yield from measure(Path(folder))


def feature_stage(folder: Path) -> Iterator[Line]:
    """255 checkpoints in a job a model on two cores, against one process that does the same in a loop."""
    paths = write_checkpoints(folder)
    wall, cpu = time.perf_counter(), time.process_time()
    for (model, step), path in paths.items():
        matrices = checkpoints.Checkpoint(path).matrices()
        found, diagrams = weights.compute_features(matrices, weights.WeightSettings())
        where = {"model": model, "step": step, "source": "weights"}
        tables.write(tables.feature_rows(found, **where), folder / "features.parquet")
        tables.write(tables.diagram_rows(diagrams, **where), folder / "diagrams.parquet")
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    stage = feature_jobs(folder, paths, "model")
    yield Row("features of 255 checkpoints, a job a model / one loop, wall", stage.wall, 3, wall)
    yield Row("CPU that this adds to each checkpoint", (stage.cpu - cpu) / len(paths), 0.25)


def growth(folder: Path) -> Iterator[Line]:
    """Whether the cost of a job stays what it is as jobs become more: 15, 60 and 120 of them."""
    # By step, so that each segment has as many checkpoints of large models as of small ones.
    chosen = sorted(write_checkpoints(folder), key=lambda checkpoint: checkpoint[1])
    costs = {}
    for jobs in (15, 60, 120):
        shutil.rmtree(folder / "results/paper/features", ignore_errors=True)
        costs[jobs] = feature_jobs(folder, chosen[:jobs], "checkpoint")
    for first, last in ((15, 60), (60, 120)):
        each = (costs[last].cpu - costs[first].cpu) / (last - first)
        yield Row(f"CPU of one more job, from {first} to {last} jobs", each, 0.5)
    yield Row("largest process, 120 jobs / 15 jobs", costs[120].memory, 1.3, costs[15].memory, unit="MB")


def planning(folder: Path) -> Iterator[Line]:
    """Dry runs of the paper run, and of one of about 10,000 jobs. (Of a finished run it is the same work.)"""
    # Quiet in these two ways, Snakemake ends when it has planned, and does not go through the jobs to print them.
    arguments = ["--dry-run", "--quiet", "rules", "progress"]
    once = min(snakemake(folder, *arguments).wall for _ in range(2))
    yield Row("dry run of config/paper.yaml, wall", once, 5)
    many = ["training={checkpoint_every: 6, jobs: checkpoint}", "landscape={every: 5}"]
    many += [f"{section}={{jobs: checkpoint}}" for section in ("weights", "embeddings")]
    yield Row("planning 10,098 jobs, wall", snakemake(folder, *arguments, "--config", *many).wall, 15)


def feature_jobs(folder: Path, chosen: Iterable[tuple[str, int]], jobs: str) -> Cost:
    """The weight features of some checkpoints (model, step), a job a checkpoint or a model."""
    cut = ["--config", f"weights={{jobs: {jobs}}}"]
    return snakemake(folder, *cut, "--allowed-rules", "weight_features", "--", *features(chosen, jobs))
