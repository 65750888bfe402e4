"""`python -m studies.study4.train TABLES WORK` trains what the plan has and TABLES lacks, small models first.

A finished run leaves its row in WORK, so that an interruption loses one run. When all runs of a configuration are there, or
when it is interrupted, its table is written to TABLES; the runs of an unfinished table are not trained again, so the
study can go on elsewhere. Runs are trained as those of the third study are (`studies.study3.train`); where WORK has the
runs of a configuration that were trained at once (`studies.study4.together`), they are only measured.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from studies import small_tables
from studies.study3 import train as third
from studies.study3.configurations import Configuration, file_of
from studies.study4 import together
from studies.study4.configurations import (
    FEATURES,
    H0,
    LOSS_SHARES,
    TABLE,
    complete,
    loss_column,
    planned,
    surrogate,
    surrogate_error,
)
from toposcale.analysis.over_seeds import SHARE
from toposcale.features import weights
from toposcale.features.registry import aggregate
from toposcale.io import tensor_files
from toposcale.io.errors import UserError
from toposcale.training import trainer
from toposcale.training.corpus import Corpus


def train_missing(plan: Sequence[Configuration], tables: Path, work: Path) -> None:
    """Train every configuration that is not complete in `tables`."""

    def train_one(configuration: Configuration) -> None:
        path = together.file_of(work, configuration)
        if path.exists():
            row_of: third.TrainOne = partial(trained_before, tensor_files.read(path), list(configuration.runs))
        else:
            restore(configuration, tables, work)
            row_of = trained
        try:
            third.train_runs(configuration, tables, work, row_of, [TABLE])
        except KeyboardInterrupt:
            keep(configuration, tables, work)
            raise

    third.train_each(plan, partial(complete, tables), train_one)


def restore(configuration: Configuration, tables: Path, work: Path) -> None:
    """Put the rows of an unfinished table into `work`, where the runs that it has are not there."""
    path = file_of(tables, TABLE, configuration.name)
    if path.exists():
        for name, row in pd.read_csv(path).groupby("model"):
            if name in configuration.runs and not (work / str(name)).exists():
                third.write_run({TABLE: row}, work / str(name))


def keep(configuration: Configuration, tables: Path, work: Path) -> None:
    """Write the rows of the runs that are finished as the unfinished table of a configuration."""
    parts = [work / name / f"{TABLE}.csv" for name in configuration.runs]
    if rows := [pd.read_csv(part) for part in parts if part.exists()]:
        small_tables.write(pd.concat(rows, ignore_index=True), file_of(tables, TABLE, configuration.name))


def trained(run: Any, config: Mapping[str, Any], text: Corpus) -> third.Rows:
    """Train a run of the plan, and return its row."""
    state, schedule, tokens = third.begin(run, text)
    shape = state.model.shape
    sequences = trainer.validation_sequences(text.validation, shape.context, run.training["validation_sequences"])
    row, features = third.facts(run, shape, text), {}
    for share in LOSS_SHARES:
        trainer.train(state, schedule, tokens, third.checkpoint_at(run, share))
        row[loss_column(share)] = trainer.validation_loss(state.model, sequences)
        if share == SHARE:
            features = measured(state, config)
    return {TABLE: pd.DataFrame([row | features])}


def trained_before(
    done: tuple[Mapping[str, np.ndarray], Mapping[str, str]],
    names: Sequence[str],
    run: Any,
    config: Mapping[str, Any],
    text: Corpus,
) -> third.Rows:
    """Return the row of a run that `studies.study4.together` trained. done: its file; names: the runs in its order."""
    (arrays, metadata), index = done, names.index(run.name)
    state, _, _ = third.begin(run, text)
    state.weights.copy_(torch.from_numpy(arrays["weights"][index]))  # the parameters are views of them
    row = third.facts(run, state.model.shape, text) | {key: metadata[key] for key in ("processor", "torch")}
    losses = dict(zip(map(loss_column, LOSS_SHARES), arrays["losses"][index].tolist(), strict=True))
    return {TABLE: pd.DataFrame([row | losses | measured(state, config)])}


def measured(state: trainer.TrainingState, config: Mapping[str, Any]) -> dict[str, float]:
    """Return the features of a model, and H0 of its surrogates."""
    values = third.measured(state, config)
    of_model = {name: values[name] for name in FEATURES}
    return of_model | of_surrogates(third.matrices_of(state), third.settings_of(config))


def of_surrogates(matrices: Mapping[str, np.ndarray], settings: weights.WeightSettings) -> dict[str, float]:
    """Return H0 of the whole model, averaged over surrogates of its matrices (n, d), and the standard errors."""
    drawn = {layer: weights.h0_of_surrogates(matrix, layer, settings) for layer, matrix in matrices.items()}
    draws = [aggregate({layer: own[draw] for layer, own in drawn.items()}) for draw in range(settings.surrogate_draws)]
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
