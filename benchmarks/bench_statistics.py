"""Statistics of a paper run in seconds: 5 models, 51 checkpoints, 560 series, 2 metrics, 1,000 resamples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.timing import Line, Row, seconds_of
from toposcale.analysis.early_stopping import early_stopping_tables
from toposcale.analysis.scaling import scaling_tables
from toposcale.analysis.transitions import transition_tables
from toposcale.analysis.verdicts import verdict_tables

LIMIT = 60.0
SIZES = {"tiny-3k": 2936, "small-7k": 7408, "med-21k": 20640, "large-46k": 46368, "xl-97k": 97200}


def paper_run(
    *, checkpoints: int = 51, layers: int = 16, features: int = 35, seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Made-up features, metrics and models tables of a paper run's size: mixtures of loss, norm and noise."""
    rng = np.random.default_rng(seed)
    steps = 100 * np.arange(checkpoints)
    feature_rows, metric_rows = [], []
    for model, size in SIZES.items():
        loss = 2.0 + 8.0 * size**-0.2 * (1.0 + np.arange(checkpoints)) ** -0.5
        norm = np.log1p(np.arange(checkpoints)) + 0.05 * rng.standard_normal(checkpoints).cumsum()
        for layer in range(layers):
            for feature in range(features):
                whole = layer == 0
                name = ["frobenius_norm", "neural_persistence", "stable_rank"][feature : feature + 1]
                mixture = rng.standard_normal(2)
                value = mixture[0] * norm + mixture[1] * loss + 0.05 * rng.standard_normal(checkpoints)
                row = {"model": model, "step": steps, "source": "weights", "layer": "all" if whole else f"l{layer}"}
                row |= {"feature": name[0] if name else f"h0_{feature:02d}"}
                feature_rows.append(pd.DataFrame({**row, "value": norm if whole and feature == 0 else value}))
        for metric in ("training_loss", "validation_loss"):
            value = loss + 0.02 * rng.standard_normal(checkpoints)
            metric_rows.append(pd.DataFrame({"model": model, "step": steps, "metric": metric, "value": value}))
    models = pd.DataFrame({"model": list(SIZES), "n_parameters": list(SIZES.values()), "warmup_steps": 200})
    return pd.concat(feature_rows, ignore_index=True), pd.concat(metric_rows, ignore_index=True), models


def rows() -> Iterator[Line]:
    """Seconds of all tables together, each called once."""
    features, metrics, models = paper_run()
    total = 0.0

    def timed(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        nonlocal total
        seconds, result = seconds_of(function, *arguments, **options)
        total += seconds
        return result

    timed(verdict_tables, features, metrics, models)
    timed(scaling_tables, features, metrics, models)
    timed(transition_tables, features, metrics)
    timed(early_stopping_tables, features, metrics)
    yield Row("statistics of a paper run, 12 tables", total, LIMIT)
