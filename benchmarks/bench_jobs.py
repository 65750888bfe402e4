"""What a job costs: its imports, and the processor time of a stage in a job a checkpoint against a job a model."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

from benchmarks.runs import ROOT, SHAPES, checkpoint, cost_of, features, snakemake, write_checkpoints
from benchmarks.timing import Line, Row

SCRIPTS = ("gather", "weight_features", "embeddings", "train", "loss_landscape", "analyse", "figures")
MEASURED_STEPS = range(0, 1501, 100)  # of each of the five models: 80 checkpoints
TRAINED_STEPS = range(0, 21, 2)


def rows() -> Iterator[Line]:
    """Imports of scripts, then weight features and training."""
    yield Row("CPU of a Python that does nothing", import_seconds("sys"))
    for script in SCRIPTS:
        yield Row(f"CPU of a Python that imports what scripts/{script}.py does", import_seconds(script))
    yield from weight_features()
    yield from training()


def import_seconds(module: str) -> float:
    """Least processor seconds of a process that imports a script and does nothing else."""
    path = [str(ROOT / "scripts"), str(ROOT / "src")]
    code = f"import sys; sys.path[:0] = {path}; import {module}"
    return min(cost_of([sys.executable, "-c", code]).cpu for _ in range(5))


def weight_features() -> Iterator[Line]:
    """The weight features of 80 checkpoints of the paper's models."""
    chosen = [(model, step) for model in SHAPES for step in MEASURED_STEPS]
    yield from in_both_ways(
        f"weight features of {len(chosen)} checkpoints",
        lambda folder: write_checkpoints(folder, MEASURED_STEPS),
        [f"training={{{{steps: {MEASURED_STEPS[-1]}}}}}", "weights={{jobs: {jobs}}}"],
        lambda jobs: ["--allowed-rules", "weight_features", "--", *features(chosen, jobs)],
        fewer_jobs=len(chosen) - len(SHAPES),
    )


def training() -> Iterator[Line]:
    """Twenty steps of tiny-3k with a checkpoint after every second one; the text is there already."""
    targets = [checkpoint("tiny-3k", step) for step in TRAINED_STEPS]
    yield from in_both_ways(
        f"{TRAINED_STEPS[-1]} steps of tiny-3k, {len(targets)} checkpoints",
        lambda folder: snakemake(folder, "--", "results/paper/corpus/tokens.safetensors"),
        [f"training={{{{steps: {TRAINED_STEPS[-1]}, checkpoint_every: 2, warmup_steps: 0, jobs: {{jobs}}}}}}"],
        lambda jobs: ["--allowed-rules", "train", "--", *targets],
        fewer_jobs=len(targets) - 1,
    )


def in_both_ways(
    name: str,
    prepare: Callable[[str], object],
    settings: Sequence[str],
    arguments: Callable[[str], Sequence[str]],
    fewer_jobs: int,
) -> Iterator[Line]:
    """CPU seconds of both cuts, Snakemake included, and how much each job that is saved is worth."""
    costs = []
    for jobs in ("model", "checkpoint"):
        with tempfile.TemporaryDirectory() as folder:
            prepare(folder)
            chosen = [setting.format(jobs=jobs) for setting in settings]
            costs.append(snakemake(folder, "--config", *chosen, *arguments(jobs)).cpu)
    yield Row(f"{name}, CPU of a job a model / a job a checkpoint", costs[0], reference=costs[1])
    yield Row(f"{name}, CPU of each further job", (costs[1] - costs[0]) / fewer_jobs)
