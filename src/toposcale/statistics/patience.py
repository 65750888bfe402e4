"""Patience rules: where training would have been stopped."""

import numpy as np
from numpy.typing import ArrayLike

MODES = ("lower", "higher", "either")


def patience_stop(values: ArrayLike, patience: int, *, mode: str) -> int | None:
    """Index of the checkpoint at which a patience rule stops, or None where it never does.

    It stops once `patience` checkpoints in a row have set no new record: mode `lower` (a loss), `higher` (neural
    persistence, Rieck et al. 2019, section 4.2), `either` (a new largest or a new smallest value, for features whose
    direction is not known beforehand). Reads no value after the index it returns.
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
