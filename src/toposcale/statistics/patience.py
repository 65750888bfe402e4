"""Early stopping by patience."""

import numpy as np
from numpy.typing import ArrayLike

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
