"""Loss curves that come as a table, without weights: what the forecasts and the decision need of a training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toposcale.io import schemas, tables
from toposcale.io.errors import UserError

MOST_CHECKPOINTS = 200
"""Rows of a log without a validation loss that stand for its checkpoints: enough for a curve."""

_REQUIRED = ("step", "loss")
_OPTIONAL = ("gradient_norm", "learning_rate", "validation_loss")
_OTHER_NAMES = {"lr": "learning_rate", "grad_norm": "gradient_norm", "val_loss": "validation_loss"}


def read(path: str | Path, model: str) -> tuple[pa.Table, pa.Table]:
    """The training log (schema TRAINING) and the metrics (schema METRICS) of a loss table.

    The file is CSV or Parquet with the columns step and loss, in nats per token, and perhaps gradient_norm,
    learning_rate and validation_loss; what is missing is NaN. Metrics stand at the steps that have a
    validation loss; without any, at `MOST_CHECKPOINTS` evenly spread rows, the first and the last among them.
    Raises UserError for a file that is not readable, lacks a column, has no rows, or repeats a step.
    """
    data = tables.read_columns(path, _REQUIRED, _OPTIONAL, _OTHER_NAMES)
    columns = {name: _numbers(data[name], name, path) for name in data.schema.names}
    steps = columns["step"]
    if not len(steps):
        raise UserError(f"{path}: no rows; a loss table has one for each step that was logged")
    if np.any(steps % 1 != 0) or np.any(steps < 0):
        raise UserError(
            f"{path}: step holds {steps[(steps % 1 != 0) | (steps < 0)][0]:g}, but is 0, 1, 2, ..."
        )
    found, counts = np.unique(steps, return_counts=True)
    if counts.max() > 1:
        raise UserError(f"{path}: step {found[counts > 1][0]:.0f} stands there {counts.max()} times")
    order = np.argsort(steps)
    columns = {name: values[order] for name, values in columns.items()}
    columns = {name: columns.get(name, np.full(len(steps), np.nan)) for name in (*_REQUIRED, *_OPTIONAL)}
    columns["step"] = columns["step"].astype(np.int64)
    log = pa.table(
        {name: columns[name] for name in schemas.TRAINING.schema.names}, schema=schemas.TRAINING.schema
    )
    return log, _metrics(columns, model)


def _numbers(column: pa.ChunkedArray, name: str, path: str | Path) -> np.ndarray:
    try:
        numbers = pc.cast(column, pa.float64())
    except pa.ArrowException as error:
        raise UserError(f"{path}: column {name} is not all numbers ({str(error).splitlines()[0]})") from error
    if name == "step" and numbers.null_count:
        raise UserError(f"{path}: step is missing in {numbers.null_count} rows")
    return numbers.fill_null(np.nan).to_numpy()


def _metrics(columns: dict[str, np.ndarray], model: str) -> pa.Table:
    validated = np.flatnonzero(np.isfinite(columns["validation_loss"]))
    last = len(columns["step"]) - 1
    chosen = (
        validated if len(validated) else np.unique(np.linspace(0, last, MOST_CHECKPOINTS).round().astype(int))
    )
    named = {"training_loss": "loss"} | ({"validation_loss": "validation_loss"} if len(validated) else {})
    rows = [
        {
            "model": model,
            "step": int(columns["step"][row]),
            "metric": metric,
            "value": float(columns[name][row]),
        }
        for metric, name in named.items()
        for row in chosen
    ]
    return tables.from_rows(schemas.METRICS, rows)
