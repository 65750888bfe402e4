"""`python -m studies.study4.train TABLES WORK` trains what the plan has and TABLES lacks, small models first.

A finished run leaves its row in WORK, so that an interruption loses one run. When all runs of a configuration are there, or
when it is interrupted, its table is written to TABLES; the runs of an unfinished table are not trained again, so the
study can go on elsewhere. Where WORK has the runs of a configuration that were trained at once
(`studies.study4.together`), they are only measured.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import plan
from studies import small_tables
from studies.norms import MEAN_LAYER_NORM, MEAN_ROW_NORM, mean_row_norm
from studies.over_seeds import SHARE
from studies.study4 import together
from studies.study4.configurations import (
    FEATURES,
    H0,
    LOSS_SHARES,
    Configuration,
    complete,
    file_of,
    loss_column,
    planned,
    surrogate,
    surrogate_error,
)
from studies.study4.runs import begin, checkpoint_at, facts, matrices_of, settings_of, text_of
from toposcale.features import weights
from toposcale.features.feature import WEIGHT_NORM
from toposcale.features.registry import registry
from toposcale.io import tensor_files
from toposcale.io.errors import UserError
from toposcale.io.schemas import ALL_LAYERS
from toposcale.training import trainer
from toposcale.training.corpus import Corpus

Row = dict[str, Any]
RowOf = Callable[[plan.Model, Mapping[str, Any], Corpus], Row]


def train_missing(configurations: Sequence[Configuration], tables: Path, work: Path) -> None:
    """Train every configuration that is not complete in `tables`."""
    trainer.configure_torch("cpu")
    for configuration in configurations:
        if complete(tables, configuration):
            print(f"{configuration.name}: there", flush=True)
            continue
        try:
            train_configuration(configuration, tables, work)
        finally:
            keep(configuration, tables, work)
        done = sum(complete(tables, one) for one in configurations)
        print(
            f"{configuration.name}: {len(configuration.runs)} runs; {done} of {len(configurations)} configurations",
            flush=True,
        )


def train_configuration(configuration: Configuration, tables: Path, work: Path) -> None:
    """Write the row of every run of a configuration that `work` does not have."""
    path = together.file_of(work, configuration)
    if path.exists():
        row_of: RowOf = partial(trained_before, tensor_files.read(path), list(configuration.runs))
    else:
        restore(configuration, tables, work)
        row_of = trained
    text = text_of(configuration, work)
    for name, run in configuration.runs.items():
        if not row_file(work, name).exists():
            write_row(pd.DataFrame([row_of(run, configuration.config, text)]), row_file(work, name))


def row_file(work: Path, run: str) -> Path:
    """Return the file of the row of a run."""
    return work / f"{run}.csv"


def write_row(row: pd.DataFrame, path: Path) -> None:
    """Write the row of a run to a file that is there whole or not at all."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    small_tables.write(row, unfinished)
    os.replace(unfinished, path)


def restore(configuration: Configuration, tables: Path, work: Path) -> None:
    """Put the rows of an unfinished table into `work`, where the runs that it has are not there."""
    path = file_of(tables, configuration)
    if path.exists():
        for name, row in pd.read_csv(path).groupby("model"):
            if name in configuration.runs and not row_file(work, str(name)).exists():
                write_row(row, row_file(work, str(name)))


def keep(configuration: Configuration, tables: Path, work: Path) -> None:
    """Write the rows of the runs that are finished as the table of a configuration."""
    parts = [row_file(work, name) for name in configuration.runs]
    if rows := [pd.read_csv(part) for part in parts if part.exists()]:
        small_tables.write(pd.concat(rows, ignore_index=True), file_of(tables, configuration))


def trained(run: plan.Model, config: Mapping[str, Any], text: Corpus) -> Row:
    """Train a run of the plan, and return its row."""
    state, schedule, tokens = begin(run, text)
    shape = state.model.shape
    sequences = trainer.validation_sequences(text.validation, shape.context, run.training["validation_sequences"])
    row, features = facts(run, shape, text), {}
    for share in LOSS_SHARES:
        trainer.train(state, schedule, tokens, checkpoint_at(run, share))
        row[loss_column(share)] = trainer.validation_loss(state.model, sequences)
        if share == SHARE:
            features = measured(state, config)
    return row | features


def trained_before(
    done: tuple[Mapping[str, np.ndarray], Mapping[str, str]],
    names: Sequence[str],
    run: plan.Model,
    config: Mapping[str, Any],
    text: Corpus,
) -> Row:
    """Return the row of a run that `studies.study4.together` trained. done: its file; names: the runs in its order."""
    (arrays, metadata), index = done, names.index(run.name)
    state, _, _ = begin(run, text)
    state.weights.copy_(torch.from_numpy(arrays["weights"][index]))  # the parameters are views of them
    row = facts(run, state.model.shape, text) | {key: metadata[key] for key in ("processor", "torch")}
    losses = dict(zip(map(loss_column, LOSS_SHARES), arrays["losses"][index].tolist(), strict=True))
    return row | losses | measured(state, config)


def measured(state: trainer.TrainingState, config: Mapping[str, Any]) -> dict[str, float]:
    """Return the features of a model, and H0 of its surrogates."""
    matrices, settings = matrices_of(state), settings_of(config)
    features, _ = weights.compute_features(matrices.items(), settings)
    norms = {
        MEAN_LAYER_NORM: float(np.mean([features[name][WEIGHT_NORM.feature] for name in sorted(matrices)])),
        MEAN_ROW_NORM: mean_row_norm(matrices[name] for name in sorted(matrices)),
    }
    values = features[ALL_LAYERS] | norms
    return {name: values[name] for name in FEATURES} | of_surrogates(matrices, settings)


def of_surrogates(matrices: Mapping[str, np.ndarray], settings: weights.WeightSettings) -> dict[str, float]:
    """Return H0 of the whole model, averaged over surrogates of its matrices (n, d), and the standard errors."""
    drawn = {layer: weights.h0_of_surrogates(matrix, layer, settings) for layer, matrix in matrices.items()}
    draws = [
        registry().aggregate({layer: own[draw] for layer, own in drawn.items()})
        for draw in range(settings.surrogate_draws)
    ]
    row = {}
    for feature in H0:
        values = np.array([draw[feature] for draw in draws])
        row[surrogate(feature)] = float(values.mean())
        row[surrogate_error(feature)] = float(values.std(ddof=1) / np.sqrt(len(values)))
    return row


if __name__ == "__main__":
    try:
        train_missing(planned(Path()), *map(Path, sys.argv[1:]))
    except UserError as error:
        sys.exit(f"toposcale: {error}")
    except KeyboardInterrupt:
        sys.exit("toposcale: interrupted; what is finished is kept")
