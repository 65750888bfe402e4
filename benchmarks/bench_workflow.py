"""What the workflow adds to the work itself: the feature stage of a paper run, planning, a large checkpoint in memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.timing import Row
from toposcale import checkpoints, tables, tensor_files, weights

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


def snakemake(folder: str, *arguments: str) -> float:
    """Wall seconds of one Snakemake call on config/paper.yaml in a folder of its own."""
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--directory",
        folder,
    ]
    command += ["--configfile", str(ROOT / "config/paper.yaml"), "--cores", "2", "--quiet", "all"]
    command += ["--workflow-profile", str(ROOT / "profiles/default"), *arguments]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def feature_stage(folder: str) -> Row:
    """255 jobs on two cores against one process that computes and writes the same features in a loop."""
    run = Path(folder) / "results/paper"
    paths = {
        (model, step): run / "checkpoints" / model / f"step-{step:08d}.safetensors"
        for model in SHAPES
        for step in STEPS
    }
    for seed, ((model, _), path) in enumerate(paths.items()):
        random_checkpoint(path, *SHAPES[model], seed)
    start = time.perf_counter()
    for (model, step), path in paths.items():
        features, diagrams = weights.describe(
            checkpoints.iterate_matrices(path), weights.Settings(), model=model
        )
        where = {"model": model, "step": step, "source": "weights"}
        tables.write(tables.feature_rows(features, **where), Path(folder) / "features.parquet")
        tables.write(tables.diagram_rows(diagrams, **where), Path(folder) / "diagrams.parquet")
    loop = time.perf_counter() - start
    targets = [
        f"results/paper/features/weights/{path.parent.name}/{path.stem}.parquet" for path in paths.values()
    ]
    jobs = snakemake(folder, "--allowed-rules", "weight_features", "--", *targets)
    return Row("feature stage of a paper run, 255 jobs / one loop", jobs, loop, 3)


def planning(folder: str) -> Row:
    """A dry run of the whole paper run: about 600 jobs. (That of a finished one is the same work and fewer lines.)"""
    return Row(
        "dry run of config/paper.yaml",
        min(snakemake(folder, "--dry-run") for _ in range(2)),
        1,
        5,
        absolute=True,
    )


def memory(folder: str) -> Row:
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
        "weights.describe(checkpoints.iterate_matrices(sys.argv[1]), weights.Settings(), model='m');"
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
    return Row(
        "memory, features of 102 million parameters", float(done.stdout), 1, 1500, absolute=True, unit="MB"
    )


def rows() -> Iterator[Row]:
    """The three, each in a temporary folder."""
    for measure in (feature_stage, planning, memory):
        with tempfile.TemporaryDirectory() as folder:
            yield measure(folder)
