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
    """255 jobs on two cores against one process that computes and writes the same features in a loop."""
    paths = write_checkpoints(folder)
    wall, cpu = time.perf_counter(), time.process_time()
    for (model, step), path in paths.items():
        found, diagrams = weights.compute_features(
            checkpoints.iterate_matrices(path), weights.Settings(), model=model
        )
        where = {"model": model, "step": step, "source": "weights"}
        tables.write(tables.feature_rows(found, **where), folder / "features.parquet")
        tables.write(tables.diagram_rows(diagrams, **where), folder / "diagrams.parquet")
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    for jobs in ("checkpoint", "model"):
        shutil.rmtree(folder / "results/paper/features", ignore_errors=True)
        stage = feature_jobs(folder, paths, jobs)
        name = f"feature stage of 255 checkpoints, a job a {jobs}"
        yield Row(f"{name} / one loop, wall", stage.wall, 3, wall)
        yield Row(f"{name}: added CPU a checkpoint", (stage.cpu - cpu) / len(paths), 0.25)


def growth(folder: Path) -> Iterator[Line]:
    """Whether the cost of a job stays what it is as jobs become more: 1, 2, 4 and 8 x 30 of them."""
    # By step, so that each stretch has as many checkpoints of large models as of small ones.
    chosen = sorted(write_checkpoints(folder), key=lambda checkpoint: checkpoint[1])
    costs = {}
    for factor in (1, 4, 8):
        shutil.rmtree(folder / "results/paper/features", ignore_errors=True)
        costs[factor] = feature_jobs(folder, chosen[: 30 * factor])
    for name, first, last in (("30 to 120", 1, 4), ("120 to 240", 4, 8)):
        each = (costs[last].cpu - costs[first].cpu) / (30 * (last - first))
        yield Row(f"CPU of one more job, from {name} jobs", each, 0.5)
    yield Row("largest process, 240 jobs / 30 jobs", costs[8].memory, 1.3, costs[1].memory, unit="MB")


def planning(folder: Path) -> Iterator[Line]:
    """Dry runs of the paper run, and of one of about 10,000 jobs. (Of a finished run it is the same work.)"""
    once = min(snakemake(folder, "--dry-run").wall for _ in range(2))
    yield Row("dry run of config/paper.yaml, wall", once, 5)
    # Quiet in these two ways, Snakemake ends when it has planned, and does not go through the jobs to print them.
    more = ["--config", "training={checkpoint_every: 6}", "landscape={every: 5}"]
    many = snakemake(folder, "--dry-run", "--quiet", "rules", "progress", *more).wall
    yield Row("planning 10,000 jobs, wall", many, 15)


def feature_jobs(folder: Path, chosen: Iterable[tuple[str, int]], jobs: str = "checkpoint") -> Cost:
    """The weight features of some checkpoints (model, step), a job a checkpoint or a model."""
    targets = [features(model, step) for model, step in chosen]
    cut = ["--config", f"weights={{jobs: {jobs}}}"]
    return snakemake(folder, *cut, "--allowed-rules", "weight_features", "--", *targets)
