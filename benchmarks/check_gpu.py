"""`make check-gpu`: whether CPU and GPU agree, and how much faster the GPU is; one line, and no failure, without a GPU."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from toposcale.checkpoints import language_models
from toposcale.features import embeddings
from toposcale.training import trainer
from toposcale.training.gpt import GPTShape

LOSSES, FEATURES = 1e-4, 1e-5
STEPS = 100
SHAPE = GPTShape(vocab_size=128, context=128, d_model=48, n_layers=3, n_heads=4)  # the default family's largest
SETTINGS = trainer.TrainingSettings(steps=1000, batch_size=32)


def text(length: int = 50_000) -> np.ndarray:
    """Tokens with something to learn: each is the one before plus a little."""
    steps = np.random.default_rng(0).integers(1, 5, size=length)
    return (np.cumsum(steps) % SHAPE.vocab_size).astype(np.uint16)


def trained(device: torch.device, steps: int = STEPS) -> tuple[trainer.TrainingState, np.ndarray, float]:
    """A model after `steps` steps, their losses (steps,), and the seconds that a step took once it was warm."""
    tokens = text()
    state = trainer.initial_state("check", SHAPE, SETTINGS, device)
    marks = []

    def watch(_: trainer.TrainingState, row: trainer.Row) -> None:
        marks.append(time.perf_counter())  # the loss has been read: the GPU has nothing left to do

    _, rows = trainer.train(state, SETTINGS, tokens, steps, [watch])
    return state, np.array([row["loss"] for row in rows]), float(np.median(np.diff(marks)))


def embedded(checkpoint: Path, device: torch.device) -> dict[str, float]:
    """Every embedding feature of a checkpoint, and its perplexity."""
    tokens = text()
    probes = [tokens[start : start + 100].tolist() for start in range(0, 6000, 60)]
    passed = embeddings.forward_pass(language_models.load_model(checkpoint, device=str(device)), probes)
    features, _ = embeddings.compute_features(passed.embeddings, embeddings.EmbeddingSettings(repeats=0))
    return {**features["all"], "perplexity": passed.perplexity}


def largest_difference(ours: Mapping[str, float], theirs: Mapping[str, float]) -> tuple[float, str]:
    """The largest |a - b| / max(1, |a|) over features, and of which; NaN agrees with NaN only."""
    differences = {
        name: 0.0 if np.isnan(a) and np.isnan(theirs[name]) else abs(a - theirs[name]) / max(1.0, abs(a))
        for name, a in ours.items()
    }
    worst = max(differences, key=lambda name: (np.isnan(differences[name]), differences[name]))
    return differences[worst], worst


def verdict(what: str, difference: float, limit: float) -> tuple[bool, str]:
    """Whether a difference is within its limit, and the line that says so. NaN is not."""
    agrees = difference <= limit
    return (agrees, f"{what}: largest difference {difference:.2g}, limit {limit:g}: {'ok' if agrees else 'MISSED'}")


def compare(device: torch.device) -> Iterator[tuple[bool, str]]:
    """The checks of a device against the CPU, and the speed-up, a line each."""
    cpu = torch.device("cpu")
    state, losses, seconds = trained(cpu)
    _, others, other_seconds = trained(device)
    yield verdict(f"losses over {STEPS} steps", float(np.abs(losses - others).max()), LOSSES)
    again = trained(device)[1]
    yield (bool((others == again).all()), f"the same losses twice: {'ok' if (others == again).all() else 'MISSED'}")
    with TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint.safetensors"
        trainer.save_weights(checkpoint, state, {name: str(size) for name, size in vars(SHAPE).items()})
        difference, name = largest_difference(embedded(checkpoint, cpu), embedded(checkpoint, device))
    yield verdict(f"embedding features (worst: {name})", difference, FEATURES)
    yield (
        True,
        f"a training step: {seconds * 1e3:.2f} ms on one core, {other_seconds * 1e3:.2f} ms here: "
        + (f"{seconds / other_seconds:.1f} x as fast"),
    )


def main() -> int:
    """Print the checks; 1 where one is missed."""
    if not torch.cuda.is_available():
        print("no GPU: PyTorch sees no CUDA device here, so there is nothing to compare")
        return 0
    device = trainer.configure_torch("cuda")
    print(torch.cuda.get_device_name(device))
    agree = True
    for agrees, line in compare(device):
        agree &= agrees
        print(line, flush=True)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
