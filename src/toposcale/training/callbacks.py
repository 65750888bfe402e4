"""Training callbacks (see `trainer.train`): a progress log, and a sketch of the weights' trajectory."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
from numpy.typing import NDArray

from toposcale.io import tensor_files
from toposcale.training.trainer import Row, TrainingState

# Stream of the seed, distinct from the one from which `trainer` draws batches.
_SKETCH_STREAM = 2
_SKETCH_CHUNK = 16384


class WeightSketch:
    """Callback that keeps a seeded Gaussian projection of the n weights to `size` numbers every few steps.

    Its entries are N(0, 1 / size), so the expected squared distance of two sketches is that of the weights
    (Johnson-Lindenstrauss), with relative standard deviation sqrt(2 / size). The projection takes 4 size n bytes of memory,
    25 MB for xl-97k at size 64, and depends on n, `size` and `seed` only: not the seed
    of the training, so that models of n weights share it.
    """

    def __init__(self, n_parameters: int, *, every: int, seed: int = 42, size: int = 64) -> None:
        self.every = every
        self.steps: list[int] = []
        self.rows: list[NDArray[np.float32]] = []
        projection = np.empty((size, n_parameters), dtype=np.float32)
        for chunk, start in enumerate(range(0, n_parameters, _SKETCH_CHUNK)):
            columns = projection[:, start : start + _SKETCH_CHUNK]
            random = np.random.default_rng((seed, _SKETCH_STREAM, chunk))
            columns[:] = random.standard_normal(columns.shape, dtype=np.float32)
        projection /= np.float32(math.sqrt(size))
        self._projection = torch.from_numpy(projection)

    def __call__(self, state: TrainingState, row: Row) -> None:
        if row["step"] % self.every == 0:
            self._projection = self._projection.to(state.weights.device)
            self.steps.append(int(row["step"]))
            self.rows.append((self._projection @ state.weights).cpu().numpy())

    def save(self, path: str | Path, metadata: Mapping[str, str]) -> None:
        """Write the sketches since the last call as safetensors: `step` (m,) and `sketch` (m, size)."""
        sketches = np.stack(self.rows) if self.rows else np.empty((0, len(self._projection)), np.float32)
        arrays: dict[str, NDArray] = {"step": np.array(self.steps, dtype=np.int64), "sketch": sketches}
        tensor_files.write(path, arrays, metadata)
        self.steps, self.rows = [], []


class ProgressLog:
    """Callback that logs step, loss, steps per second and remaining time, at most every `interval` seconds."""

    def __init__(
        self, file: TextIO, until_step: int, *, interval: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file, self._until_step, self._interval, self._clock = file, until_step, interval, clock
        self._start: tuple[float, int] | None = None
        self._last_written = -math.inf

    def __call__(self, state: TrainingState, row: Row) -> None:
        now, step = self._clock(), int(row["step"])
        if self._start is None:
            self._start = (now, step)
        if now - self._last_written < self._interval and step != self._until_step:
            return
        self._last_written = now
        line = f"{state.name}: step {step} of {self._until_step}, loss {row['loss']:.4f}"
        start_time, first_step = self._start
        if step > first_step and now > start_time:
            speed = (step - first_step) / (now - start_time)
            minutes, seconds = divmod(round((self._until_step - step) / speed), 60)
            line += f", {speed:.1f} steps/s, {minutes}:{seconds:02d} left"
        print(line, file=self._file, flush=True)
