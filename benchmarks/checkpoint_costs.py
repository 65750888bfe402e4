"""What the weights of a published checkpoint cost: the table of docs/scale.md, from random weights of true shapes.

    python -m benchmarks.checkpoint_costs [NAME ...]
    python -m benchmarks.checkpoint_costs --whole-layer     # exact H0 of all rows of the token embedding of Pythia 1B

One thread, and each measurement in a process of its own, so that its peak of memory is its own. Small checkpoints are
measured whole. Of a large one, one block and one token embedding are measured; the whole is computed from them.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save_file

from toposcale import checkpoints, homology
from toposcale.features import weights

Shapes = dict[str, tuple[int, int]]
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}


class Model(NamedTuple):
    """Shapes of one block and of what stands outside of the blocks; whether all of it is measured."""

    block: Shapes
    outside: Shapes
    n_blocks: int
    whole: bool


class Cost(NamedTuple):
    """CPU seconds of reading and measuring, and the peak of the process in MB."""

    seconds: float
    peak: float


def neox(width: int, n_blocks: int, *, vocabulary: int = 50304, whole: bool = False) -> Model:
    """Pythia's architecture."""
    block = {
        "attention.query_key_value": (3 * width, width),
        "attention.dense": (width, width),
        "mlp.dense_h_to_4h": (4 * width, width),
        "mlp.dense_4h_to_h": (width, 4 * width),
    }
    embedding = (vocabulary, width)
    return Model(block, {"gpt_neox.embed_in": embedding, "embed_out": embedding}, n_blocks, whole)


def gpt2(width: int, n_blocks: int) -> Model:
    """GPT-2's architecture, whose block matrices are stored as (in, out)."""
    block = {
        "attn.c_attn": (width, 3 * width),
        "attn.c_proj": (width, width),
        "mlp.c_fc": (width, 4 * width),
        "mlp.c_proj": (4 * width, width),
    }
    return Model(block, {"wte": (50257, width), "wpe": (1024, width)}, n_blocks, True)


MODELS = {
    "Pythia 70M": neox(512, 6, whole=True),
    "GPT-2 small": gpt2(768, 12),
    "Pythia 410M": neox(1024, 24),
    "Pythia 1B": neox(2048, 16),
    "Pythia 6.9B": neox(4096, 32, vocabulary=50432),
}


def main(names: Iterable[str]) -> None:
    """Print a row for each model as it is measured."""
    print("| model | weights features, CPU | peak of memory | |\n| --- | --- | --- | --- |")
    for name in names or MODELS:
        cost = cost_of(MODELS[name])
        how = "measured" if MODELS[name].whole else "computed from a block and an embedding"
        print(f"| {name} | {cost.seconds:.3g} s | {cost.peak:.0f} MB | {how} |", flush=True)


def cost_of(model: Model) -> Cost:
    """The cost of all matrices of a checkpoint."""
    if model.whole:
        blocks = (
            {f"h.{i}.{name}": shape for name, shape in model.block.items()} for i in range(model.n_blocks)
        )
        return measured([model.outside, *blocks])
    block = measured([{f"h.0.{name}": shape for name, shape in model.block.items()}])
    (name, embedding), *_ = model.outside.items()
    outside = measured([{name: embedding}])
    seconds = model.n_blocks * block.seconds + len(model.outside) * outside.seconds
    return Cost(seconds, max(block.peak, outside.peak))


def measured(parts: Iterable[Shapes], what: str = "--features") -> Cost:
    """The cost of random matrices of these shapes, in a process of its own; `what`: a key of `MEASURES`."""
    shapes = {name: shape for part in parts for name, shape in part.items()}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        save_file(dict(_random(shapes)), file)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.checkpoint_costs", what, str(file)],
            env=os.environ | ONE_THREAD,
            capture_output=True,
            text=True,
            check=True,
        )
    return Cost(*json.loads(done.stdout))


def _random(shapes: Shapes) -> Iterator[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        yield f"{name}.weight", (0.02 * rng.standard_normal(shape, dtype=np.float32)).astype(np.float16)


def all_features(file: str) -> None:
    """All features of the weights in a file."""
    weights.compute_features(checkpoints.iterate_matrices(Path(file)), weights.Settings(), model="m")


def whole_h0(file: str) -> None:
    """Exact H0 of all rows of each matrix in a file."""
    for _, matrix in checkpoints.iterate_matrices(Path(file)):
        homology.h0_lifetimes(matrix)


MEASURES: dict[str, Callable[[str], None]] = {"--features": all_features, "--h0": whole_h0}


def measure(what: str, file: str) -> Cost:
    """The cost of one file, here and now."""
    start = time.process_time()
    MEASURES[what](file)
    seconds = time.process_time() - start
    return Cost(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--whole-layer"]:
        cost = measured([{"embed_in": MODELS["Pythia 1B"].outside["embed_out"]}], "--h0")
        print(f"H0 of all rows: {cost.seconds:.0f} s of CPU, {cost.peak:.0f} MB")
    elif sys.argv[1:2] and sys.argv[1] in MEASURES:
        print(json.dumps(measure(*sys.argv[1:])))
    else:
        main(sys.argv[1:])
