"""Early stopping by patience."""

import numpy as np
from numpy.typing import ArrayLike


def patience_stop(values: ArrayLike, patience: int, *, mode: str) -> int | None:
    """Return the index at which `patience` checkpoints in a row have set no new record; None if that never happens.

    mode: a record is `lower` (a loss), `higher` (neural persistence, Rieck et al. 2019, section 4.2), or `either`.
    """
    series = np.asarray(values, dtype=np.float64)
    lowest = highest = float(series[0])
    waited = 0
    for index, value in enumerate(series[1:].tolist(), start=1):
        lower, higher = value < lowest, value > highest
        lowest, highest = value if lower else lowest, value if higher else highest
        waited = 0 if (lower and mode != "higher") or (higher and mode != "lower") else waited + 1
        if waited == patience:
            return index
    return None
