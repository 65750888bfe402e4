"""Loss and gradient of tiny models in C: the training of the controls, which one core has to do.

`gradient.c` is compiled for a shape with the C compiler of the system, and kept in the folder of temporary files. Training
is that of `training.trainer`, whose batches, schedule, clipping and AdamW are called; only the order of sums differs.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from toposcale.training import trainer
from toposcale.training.gpt import GPTShape

SOURCE = Path(__file__).with_name("gradient.c")
FLAGS = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", "-lm")
Update = Callable[[trainer.TrainingState, Tensor, trainer.TrainingSettings, int], None]


@cache
def _compiled(shape: GPTShape) -> ctypes.CDLL:
    sizes = {"D": shape.d_model, "L": shape.n_layers, "H": shape.n_heads, "T": shape.context, "V": shape.vocab_size}
    defined = [f"-D{name}={value}" for name, value in sizes.items()]
    command = [os.environ.get("CC", "cc"), *defined, str(SOURCE), *FLAGS]
    key = hashlib.sha256(SOURCE.read_bytes() + "".join([*command[:1], *defined, *FLAGS, platform.node()]).encode())
    library = Path(tempfile.gettempdir()) / f"toposcale-gradient-{key.hexdigest()[:16]}.so"
    if not library.exists():
        unfinished = library.with_name(f"{library.name}.{os.getpid()}")
        subprocess.run([*command[:-1], "-o", str(unfinished), command[-1]], check=True)
        os.replace(unfinished, library)
    loaded = ctypes.CDLL(str(library))
    loaded.loss_and_gradient.restype = ctypes.c_double
    return loaded


def loss_and_gradient(
    shape: GPTShape, weights: Tensor, sequences: NDArray[np.int64], *, gradient: bool = True
) -> tuple[float, Tensor]:
    """Return the mean loss of sequences (n, context + 1), and its gradient (n_parameters,), empty if it is not asked for.

    weights: float32 (n_parameters,), in the order of `GPT.parameters()`.
    """
    slope = torch.empty_like(weights) if gradient else torch.empty(0)
    rows = np.ascontiguousarray(sequences, dtype=np.int64)
    if rows.shape[1] != shape.context + 1 or rows.max() >= shape.vocab_size or rows.min() < 0:
        raise ValueError(f"sequences: {rows.shape}, of the tokens {rows.min()} to {rows.max()}")
    loss = _compiled(shape).loss_and_gradient(
        ctypes.c_void_p(weights.data_ptr()),
        ctypes.c_void_p(rows.ctypes.data),
        ctypes.c_int(len(rows)),
        ctypes.c_void_p(slope.data_ptr() if gradient else None),
        ctypes.c_int(weights.numel()),
    )
    return loss, slope


def validation_loss(state: trainer.TrainingState, sequences: NDArray[np.int64]) -> float:
    """Return the mean loss of a model on sequences (n, context + 1)."""
    return loss_and_gradient(state.model.shape, state.weights, sequences, gradient=False)[0]


@torch.no_grad()
def adamw(state: trainer.TrainingState, gradient: Tensor, settings: trainer.TrainingSettings, step: int) -> None:
    """Make an update of AdamW in place, with the clipping of `training.trainer`."""
    norm = torch.linalg.vector_norm(gradient).item()
    gradient *= min(1.0, settings.clip / (norm + trainer.CLIPPING_EPSILON))
    trainer.adamw_step(state.weights, state.first_moment, state.second_moment, gradient, settings, step)


def train(
    state: trainer.TrainingState,
    settings: trainer.TrainingSettings,
    tokens: NDArray[np.integer],
    until_step: int,
    update: Update = adamw,
) -> None:
    """Train a model in place up to so many updates. NonFiniteLossError: it diverged."""
    shape = state.model.shape
    for step in range(state.step, until_step):
        sequences = trainer.draw_batch(tokens, shape.context, step, settings)
        loss, gradient = loss_and_gradient(shape, state.weights, sequences)
        if not (np.isfinite(loss) and torch.isfinite(gradient).all()):
            raise trainer.NonFiniteLossError(f"{state.name}: the loss is not finite at step {step}")
        update(state, gradient, settings, step)
        state.step += 1
