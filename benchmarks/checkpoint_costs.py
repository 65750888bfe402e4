"""What the weights of a published checkpoint cost: the table of docs/performance.md, from random weights of true shapes.

    python -m benchmarks.checkpoint_costs [NAME ...]

One thread, and each measurement in a process of its own, so that its peak of memory is its own. Small checkpoints are
measured whole. Of a large one, checkpoints with one and two blocks are measured; the whole is computed from them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save_file

from toposcale import checkpoints
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
    """CPU seconds of reading and measuring, the peak of memory in MB, and CPU seconds of plain spectra alone."""

    seconds: float
    peak: float
    plain: float


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
    print("| model | CPU | NumPy's spectra alone | peak of memory | |\n| --- | --- | --- | --- | --- |")
    for name in names or MODELS:
        cost = cost_of(MODELS[name])
        how = "measured" if MODELS[name].whole else "computed from one and two blocks"
        print(f"| {name} | {cost.seconds:.3g} s | {cost.plain:.3g} s | {cost.peak:.0f} MB | {how} |", flush=True)


def cost_of(model: Model) -> Cost:
    """The cost of all matrices of a checkpoint: of a large one that with two blocks, and for each further block the
    difference to that with one."""
    if model.whole:
        return measured(model, model.n_blocks)
    one, two = measured(model, 1), measured(model, 2)
    seconds, plain = (
        second + (model.n_blocks - 2) * (second - first)
        for first, second in ((one.seconds, two.seconds), (one.plain, two.plain))
    )
    return Cost(seconds, max(one.peak, two.peak), plain)


def measured(model: Model, n_blocks: int) -> Cost:
    """The cost of a checkpoint of random weights with so many blocks, in a process of its own."""
    shapes = dict(model.outside)
    for block in range(n_blocks):
        shapes |= {f"h.{block}.{name}": shape for name, shape in model.block.items()}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        save_file(dict(_random(shapes)), file)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.checkpoint_costs", "--file", str(file)],
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


def measure(file: str) -> Cost:
    """The cost of all features of the weights in a file, here and now."""
    start = time.process_time()
    with MemoryPeak() as memory:
        weights.compute_features(checkpoints.Checkpoint(Path(file)).matrices(), weights.WeightSettings())
    seconds = time.process_time() - start
    return Cost(seconds, memory.peak, plain_spectra(file))


class MemoryPeak:
    """The most memory of the process in MB, looked at every 20 ms.

    Without pages of the mapped file: the system takes them back whenever it needs the memory.
    """

    def __init__(self) -> None:
        self.peak = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> MemoryPeak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(0.02):
            status = Path("/proc/self/status").read_text()
            kilobytes = int(status.partition("RssAnon:")[2].split()[0])
            self.peak = max(self.peak, kilobytes / 1024)


def plain_spectra(file: str) -> float:
    """CPU seconds of NumPy's spectra of all matrices in a file."""
    start = time.process_time()
    for _, weight in checkpoints.Checkpoint(Path(file)).matrices():
        plain_eigenvalues(weight)
    return time.process_time() - start


def plain_eigenvalues(matrix: np.ndarray) -> np.ndarray:
    """Eigenvalues of the Gram matrix of the shorter side, by NumPy in float64."""
    whole = matrix.astype(np.float64)
    return np.linalg.eigvalsh(whole.T @ whole if whole.shape[0] >= whole.shape[1] else whole @ whole.T)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--file"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        main(sys.argv[1:])
