"""Train runs that differ by their seed alone at once, on a GPU: one batch of models instead of one process for each.

`python -m studies.study4.together WORK` writes `WORK/NAME.safetensors` for each configuration of the plan, from which
`studies.study4.train` makes the rows. Initial weights, sequences, schedule and AdamW are those of `training.trainer`; only
the order of sums differs, as between two kinds of processor.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from studies.over_seeds import SHARE
from studies.study4.configurations import LOSS_SHARES, Configuration, planned
from studies.study4.runs import begin, checkpoint_at, processor, text_of
from toposcale.io import tensor_files
from toposcale.training import trainer
from toposcale.training.gpt import GPT, GPTShape


@dataclass(frozen=True)
class Trained:
    """What runs had at some steps of their training.

    weights: float32 (n_runs, n_parameters) at `at`, in the order of `GPT.parameters()`; losses: float64 (n_runs, n_stops),
    the validation losses.
    """

    weights: NDArray[np.float32]
    losses: NDArray[np.float64]


def train_together(
    shape: GPTShape,
    settings: Sequence[trainer.TrainingSettings],
    tokens: NDArray[np.uint16],
    sequences: NDArray[np.int64],
    stops: Sequence[int],
    at: int,
    device: torch.device,
    workers: int = 1,
) -> Trained:
    """Train a model for each of `settings`, which differ by their seed alone, and measure them at the steps `stops`.

    tokens: of the training text; sequences (n, context + 1): on which the validation loss is measured. Raise ValueError if
    settings differ by more than the seed, and NonFiniteLossError if a run diverges.
    """
    first = settings[0]
    if any(replace(one, seed=first.seed) != first for one in settings):
        raise ValueError("settings: they differ by more than their seed")
    states = [trainer.initial_state("", shape, one, torch.device("cpu")) for one in settings]
    model = GPT(shape).to(device)
    weights = torch.stack([state.weights for state in states]).to(device)
    moments = torch.zeros_like(weights), torch.zeros_like(weights)
    starts = _starts(settings, len(tokens), shape.context, workers)  # (n_runs, steps, batch)
    text = torch.from_numpy(tokens.astype(np.int64)).to(device)
    window = torch.arange(shape.context + 1, device=device)
    validation = torch.from_numpy(sequences).to(device)

    def loss(one: Tensor, batch: Tensor) -> Tensor:
        logits = functional_call(model, _by_name(model, one), (batch[:, :-1],))
        return F.cross_entropy(logits.flatten(0, -2), batch[:, 1:].flatten())

    gradient_and_loss = vmap(grad_and_value(loss))
    losses, kept = [], None
    with sdpa_kernel(SDPBackend.MATH):
        for step in range(first.steps + 1):
            if step == at:
                kept = weights.cpu().numpy().copy()
            if step in stops:
                losses.append(_validation_losses(loss, weights, validation))
            if step < first.steps:
                batch = text[torch.from_numpy(starts[:, step]).to(device)[..., None] + window]
                gradient, _ = gradient_and_loss(weights, batch)
                _clip(gradient, first)
                trainer.adamw_step(weights, *moments, gradient, first, step)
    if kept is None or len(losses) < len(stops):
        raise ValueError(f"stops: {list(stops)} and {at}, but the training has {first.steps} steps")
    measured = torch.stack(losses, dim=1).cpu().numpy()
    if not np.isfinite(measured).all():
        bad = int(np.argmin(np.isfinite(measured).all(axis=1)))
        raise trainer.NonFiniteLossError(f"seed {settings[bad].seed}: the loss is not finite")
    return Trained(kept, measured)


def _starts(
    settings: Sequence[trainer.TrainingSettings], n_tokens: int, context: int, workers: int
) -> NDArray[np.int64]:
    """Return where the sequences of every run and step start, (n_runs, steps, batch_size)."""
    with ProcessPoolExecutor(workers) as pool:
        return np.stack(list(pool.map(partial(_starts_of_run, n_tokens, context), settings, chunksize=8)))


def _starts_of_run(n_tokens: int, context: int, settings: trainer.TrainingSettings) -> NDArray[np.int64]:
    """Return where the sequences of a run start, (steps, batch_size)."""
    # `draw_batch` of the positions themselves: the text of position i is i.
    positions = np.arange(n_tokens)
    return np.stack([trainer.draw_batch(positions, context, step, settings)[:, 0] for step in range(settings.steps)])


def _by_name(model: GPT, weights: Tensor) -> dict[str, Tensor]:
    """Return the parameters of a model by name from one vector (n_parameters,)."""
    named = dict(model.named_parameters())
    parts = weights.split([parameter.numel() for parameter in named.values()])
    return {name: part.view(parameter.shape) for (name, parameter), part in zip(named.items(), parts, strict=True)}


def _validation_losses(loss: Callable[[Tensor, Tensor], Tensor], weights: Tensor, sequences: Tensor) -> Tensor:
    """Return the validation loss of every run, float64 (n_runs,)."""
    with torch.no_grad():
        parts = [vmap(loss, in_dims=(0, None))(weights, part).double() * len(part) for part in sequences.split(16)]
    return torch.stack(parts).sum(dim=0) / len(sequences)


@torch.no_grad()
def _clip(gradient: Tensor, settings: trainer.TrainingSettings) -> None:
    """Clip each gradient of (n_runs, n_parameters) in place, as `training.trainer` does."""
    norms = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    gradient *= (settings.clip / (norms + trainer.CLIPPING_EPSILON)).clamp(max=1.0)


def train_configuration(configuration: Configuration, work: Path, device: torch.device, workers: int) -> None:
    """Train the runs of a configuration at once, and write what `studies.study4.train` makes their rows of."""
    runs = list(configuration.runs.values())
    text = text_of(configuration, work)
    starts = [begin(run, text) for run in runs]
    shape = starts[0].state.model.shape
    sequences = trainer.validation_sequences(text.validation, shape.context, runs[0].training["validation_sequences"])
    trained = train_together(
        shape,
        [start.schedule for start in starts],
        starts[0].tokens,
        sequences,
        [checkpoint_at(runs[0], share) for share in LOSS_SHARES],
        checkpoint_at(runs[0], SHARE),
        device,
        workers,
    )
    facts = {"processor": torch.cuda.get_device_name(device) if device.type == "cuda" else processor()}
    arrays: dict[str, NDArray] = {"weights": trained.weights, "losses": trained.losses}
    tensor_files.write(file_of(work, configuration), arrays, facts | {"torch": torch.__version__})


def file_of(work: Path, configuration: Configuration) -> Path:
    """Return the file of the runs of a configuration that were trained at once."""
    return work / f"{configuration.name}.safetensors"


if __name__ == "__main__":
    [folder] = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for one in planned(Path()):
        if not file_of(folder, one).exists():
            train_configuration(one, folder, trainer.configure_torch("cuda"), len(os.sched_getaffinity(0)))
            print(f"{one.name}: {len(one.runs)} runs", flush=True)
