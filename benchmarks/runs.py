"""Runs of the workflow that benchmarks measure: their processor time, children included, and their checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toposcale.io import tensor_files

ROOT = Path(__file__).resolve().parent.parent
# Width and layers of the models of config/paper.yaml, and its checkpoints.
SHAPES = {"tiny-3k": (8, 1), "small-7k": (16, 1), "med-21k": (24, 2), "large-46k": (32, 3), "xl-97k": (48, 3)}
STEPS = range(0, 5001, 100)


class Cost(NamedTuple):
    """What a command took: wall and processor seconds, its children's included, and the largest process in MB."""

    wall: float
    cpu: float
    memory: float


def cost_of(command: list[str], cwd: str | Path | None = None) -> Cost:
    """Run a command to its end. RuntimeError, with the end of what it printed, where it fails."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=cwd, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise RuntimeError(f"{command[:4]} failed: {output.read().decode()[-2000:]}")
    return Cost(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def snakemake(folder: str | Path, *arguments: str, configuration: str = "config/paper.yaml") -> Cost:
    """One call of Snakemake in a folder of its own, on two cores."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
    command += ["--directory", str(folder), "--configfile", str(ROOT / configuration), "--cores", "2"]
    command += ["--workflow-profile", str(ROOT / "profiles/default"), "--quiet", "all", *arguments]
    return cost_of(command)


def write_checkpoints(folder: str | Path, steps: Iterable[int] = STEPS) -> dict[tuple[str, int], Path]:
    """The checkpoints of a paper run with random weights, by model and step."""
    paths = {(model, step): Path(folder) / checkpoint(model, step) for model in SHAPES for step in steps}
    for seed, ((model, _), path) in enumerate(paths.items()):
        write_checkpoint(path, *SHAPES[model], seed)
    return paths


def checkpoint(model: str, step: int) -> str:
    """A checkpoint of the paper run, as a path in its folder."""
    return f"results/paper/checkpoints/{model}/step-{step:08d}.safetensors"


def features(chosen: Iterable[tuple[str, int]], jobs: str) -> list[str]:
    """The files of the weight features of some checkpoints (model, step), with a job a checkpoint or a model."""
    names = dict.fromkeys(f"{model}/{'all' if jobs == 'model' else f'step-{step:08d}'}" for model, step in chosen)
    return [f"results/paper/features/weights/{name}.parquet" for name in names]


def write_checkpoint(path: Path, d_model: int, n_layers: int, seed: int) -> None:
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
