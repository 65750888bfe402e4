"""Trains the runs of `make nulls`: the smallest model of the default run, many seeds, two warm-ups."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from toposcale.training.corpus import Corpus

STEPS, EVERY = 600, 12
WARMUPS = (60, 120)
SEEDS = 24


def name(warmup: int, seed: int) -> str:
    """The name of one run."""
    return f"warmup-{warmup}.seed-{seed:02d}"


@cache
def _text(context: int) -> Corpus:
    """The text, read once a process."""
    from toposcale.training import corpus

    return corpus.build_corpus(context=context)


def train(folder: Path, warmup: int, seed: int) -> None:
    """Train one run and write its features and metrics; nothing where they are there already."""
    import torch

    from toposcale.features import weights
    from toposcale.io import schemas
    from toposcale.training import corpus, trainer
    from toposcale.training.gpt import GPTShape

    model = name(warmup, seed)
    target = folder / f"{model}.metrics.parquet"
    if target.exists():
        return
    device = trainer.configure_torch("cpu")
    shape = GPTShape(corpus.N_CHARACTERS, 128, d_model=8, n_layers=1, n_heads=1)
    text = _text(shape.context)
    plan = trainer.TrainingPlan(steps=STEPS, batch_size=32, warmup_steps=warmup, seed=seed)
    state = trainer.initial_state(model, shape, plan, device)
    windows = trainer.validation_windows(text.validation, shape.context, 128)
    features, metrics = [], []
    for step in range(0, STEPS + 1, EVERY):
        trainer.train(state, plan, text.train, step)
        loss = trainer.validation_loss(state.model, windows)
        metrics.append({"model": model, "step": step, "metric": "validation_loss", "value": loss})
        matrices = [
            (layer, value.detach().numpy().copy())
            for layer, value in state.model.named_parameters()
            if value.ndim == 2
        ]
        with torch.no_grad():
            found, _ = weights.compute_features(matrices, weights.Settings(), model=model)
        features += [
            {
                "model": model,
                "step": step,
                "source": "weights",
                "layer": layer,
                "feature": key,
                "value": value,
            }
            for layer, values in found.items()
            for key, value in values.items()
        ]
    schemas.TABLES["features"].frame(features).to_parquet(folder / f"{model}.features.parquet")
    schemas.TABLES["metrics"].frame(metrics).to_parquet(target)


def load(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Features and metrics of all runs in a folder."""
    return tuple(  # type: ignore[return-value]
        pd.concat(
            [pd.read_parquet(path) for path in sorted(folder.glob(f"*.{kind}.parquet"))], ignore_index=True
        )
        for kind in ("features", "metrics")
    )


def make(folder: Path, seeds: int, workers: int) -> None:
    """Train every run that is not in the folder yet."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = [(folder, warmup, seed) for seed in range(seeds) for warmup in WARMUPS]
    with ProcessPoolExecutor(workers) as pool:
        for done in [pool.submit(train, *run) for run in runs]:
            done.result()
