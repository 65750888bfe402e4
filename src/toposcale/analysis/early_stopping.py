"""Early stopping: patience on a feature compared with patience on the validation loss."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from toposcale.analysis.series import SERIES_KEY, whole_model
from toposcale.io import schemas

MODES = ("lower", "higher", "either")


def patience_stop(values: ArrayLike, patience: int, *, mode: str) -> int | None:
    """Return the index at which `patience` checkpoints in a row have set no new record; None if that never happens.

    mode: a record is `lower` (a loss), `higher` (neural persistence, Rieck et al. 2019, section 4.2), or `either`.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1 or len(series) == 0 or not np.isfinite(series).all():
        raise ValueError("values: expected one finite series")
    if patience < 1:
        raise ValueError(f"patience: {patience} is below 1")
    if mode not in MODES:
        raise ValueError(f"mode: {mode!r} is not one of {', '.join(MODES)}")
    lowest = highest = float(series[0])
    waited = 0
    for index, value in enumerate(series[1:].tolist(), start=1):
        lower, higher = value < lowest, value > highest
        lowest, highest = value if lower else lowest, value if higher else highest
        waited = 0 if (lower and mode != "higher") or (higher and mode != "lower") else waited + 1
        if waited == patience:
            return index
    return None


DIRECTIONS = {"neural_persistence": "higher", "neural_persistence_p2": "higher"}
"""Direction in which a feature improves; others count any new record, up or down, as progress."""


def early_stopping_tables(
    features: pd.DataFrame, metrics: pd.DataFrame, *, patience: Sequence[int] = (2, 3, 5)
) -> dict[str, pd.DataFrame]:
    """Make the tables early_stopping and early_stopping_summary.

    Patience (in checkpoints) on each whole-model feature is compared with patience on the validation loss. A rule that
    never stops ends at the last step; the best checkpoint up to the stop is kept.
    """
    losses = metrics[(metrics["metric"] == "validation_loss") & np.isfinite(metrics["value"])]
    usable = whole_model(features)[lambda rows: np.isfinite(rows["value"])]
    pairs = usable.merge(losses[["model", "step", "value"]], on=["model", "step"], suffixes=("", "_metric"))
    rows = []
    for key, series in pairs.sort_values("step").groupby(["model", *SERIES_KEY], sort=True):
        steps = series["step"].to_numpy(np.int64)
        values, loss = series["value"].to_numpy(np.float64), series["value_metric"].to_numpy(np.float64)
        best = np.minimum.accumulate(loss)
        for wait in patience:
            stop_at = patience_stop(values, wait, mode=DIRECTIONS.get(str(key[-1]), "either"))
            reference = patience_stop(loss, wait, mode="lower")
            end, reference_end = (len(steps) - 1 if stop is None else stop for stop in (stop_at, reference))
            row: dict[str, Any] = dict(zip(["model", *SERIES_KEY], key, strict=True)) | {
                "patience": int(wait),
                "stop_step": int(steps[end]),
                "triggered": stop_at is not None,
                "metric_stop_step": int(steps[reference_end]),
                "metric_triggered": reference is not None,
                "steps_saved": int(steps[reference_end] - steps[end]),
                "regret": float(best[end] - best[reference_end]),
            }
            rows.append(row)
    table = schemas.TABLES["early_stopping"].frame(rows)
    return {"early_stopping": table, "early_stopping_summary": early_stopping_summary(table)}


def early_stopping_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Average steps_saved and regret over models, with Student intervals (NaN for a single model)."""
    groups = table.groupby([*SERIES_KEY, "patience"], sort=True)
    summary = groups.size().rename("n_models").to_frame()
    quantile = stdtrit(summary["n_models"] - 1.0, 0.975)
    for name in ("steps_saved", "regret"):
        mean, half = groups[name].mean(), quantile * groups[name].sem()
        summary = summary.assign(**{name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half})
    return schemas.TABLES["early_stopping_summary"].frame(summary.reset_index())
