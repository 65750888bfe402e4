"""The largest change of a series."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

SETTLED_SHARE = 0.1
"""Share of the largest change below which a series has settled, as in the reproduced paper."""


@dataclass(frozen=True)
class Transition:
    """The step that ends the largest change, that change, and the step at which it settled; NaN if there is none."""

    step: float
    change: float
    settled_step: float


def largest_change(steps: ArrayLike, values: ArrayLike) -> Transition:
    """Find the step of max |change| between checkpoints (T,), and the first later step at which it has settled.

    The transition rule of the reproduced paper (docs/method.md). A change counts for the step at its end; of equal ones
    the first.
    """
    times, series = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if times.ndim != 1 or times.shape != series.shape:
        raise ValueError(f"values: shape {series.shape}, but steps has shape {times.shape}")
    if not np.isfinite(series).all():
        raise ValueError("values: not all finite; leave those points out first")
    if np.any(np.diff(times) <= 0):
        raise ValueError("steps: not increasing")
    changes = np.diff(series)
    sizes = np.abs(changes)
    if len(sizes) == 0 or sizes.max() == 0.0:
        return Transition(float("nan"), float("nan"), float("nan"))
    largest = int(np.argmax(sizes))
    calm = np.flatnonzero(sizes[largest + 1 :] < SETTLED_SHARE * sizes[largest])
    settled = float(times[largest + 2 + calm[0]]) if len(calm) else float("nan")
    return Transition(float(times[largest + 1]), float(changes[largest]), settled)
