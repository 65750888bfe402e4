"""Patience rules: where training would have been stopped."""

import numpy as np
from numpy.typing import ArrayLike

MODES = ("lower", "higher", "either")


def patience_stop(values: ArrayLike, patience: int, *, mode: str) -> int | None:
    """Index of the checkpoint at which a patience rule stops, or None where it never does.

    It stops once `patience` checkpoints in a row have set no new record: mode `lower` (a loss), `higher` (neural
    persistence, Rieck et al. 2019, section 4.2), `either` (a new largest or a new smallest value, for features whose
    direction is not known beforehand). What comes after the index that is returned does not matter.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1 or len(series) == 0 or not np.isfinite(series).all():
        raise ValueError("values: expected one finite series")
    if patience < 1:
        raise ValueError(f"patience: {patience} is below 1")
    if mode not in MODES:
        raise ValueError(f"mode: {mode!r} is not one of {', '.join(MODES)}")
    lower = series < np.minimum.accumulate(np.append(np.inf, series[:-1]))
    higher = series > np.maximum.accumulate(np.append(-np.inf, series[:-1]))
    at, is_record = np.arange(len(series)), {"lower": lower, "higher": higher, "either": lower | higher}[mode]
    waited = at - np.maximum.accumulate(np.where(is_record, at, 0))
    stops = np.flatnonzero(waited == patience)
    return int(stops[0]) if len(stops) else None
