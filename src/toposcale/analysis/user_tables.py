"""Tables of a run from files of the user: tables in the same columns, and a loss curve."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from toposcale.forecasting.logs.loss_curves import LossCurve
from toposcale.forecasting.logs.table_files import read_any
from toposcale.forecasting.runs.facts import FACTS_OF_A_LOG
from toposcale.io import schemas, tables
from toposcale.io.errors import UserError, as_user_error
from toposcale.io.schemas import Table


def read_user_table(table: Table, path: str | Path) -> pa.Table:
    """Read a Parquet or CSV file of the user's with the columns of `table`, in any order; raise UserError otherwise."""
    data, separator = read_any(path)
    if missing := [name for name in table.names if name not in data.schema.names]:
        how = f", separated by {separator}" if separator else ""
        raise UserError(
            f"{path}: no column {', '.join(missing)}; it needs {', '.join(table.names)}, "
            f"and has {', '.join(data.schema.names)}{how}"
        )
    with as_user_error(path, "it has a column of another type", (pa.ArrowException, ValueError)):
        return data.select(table.names).cast(table.schema)


def training_table(curve: LossCurve) -> pa.Table:
    """Return the training log."""
    log = curve.log()
    schema = schemas.TABLES["training"].schema
    return pa.table(log | {"step": log["step"].astype(np.int64)}, schema=schema)


def metric_table(curve: LossCurve, model: str, checkpoints: Sequence[int] = ()) -> pa.Table:
    """Return the metrics, with the training loss at their steps and at the checkpoints, as `LossCurve.metric_series`."""
    return tables.from_rows(
        schemas.TABLES["metrics"],
        (
            {"model": model, "step": int(step), "metric": name, "value": float(value)}
            for name, series in curve.metric_series(checkpoints).items()
            for step, value in zip(*series, strict=True)
        ),
    )


def log_columns(curve: LossCurve) -> dict[str, str]:
    """Return what a log says of its model as texts: notes and reasons for low confidence, one per line, and its facts."""
    facts = {name: f"{getattr(curve.facts, name):.0f}" for name in FACTS_OF_A_LOG if curve.facts.is_known(name)}
    return {
        "log_notes": "\n".join(curve.notes),
        "log_low_confidence_reasons": "\n".join(curve.low_confidence_reasons),
        **{f"log_{name}": text for name, text in facts.items()},
    }
