"""Transitions of every series: the step of its largest change, and the step from which it changes little."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from toposcale.analysis.series import SERIES_KEY, with_metrics
from toposcale.io import schemas

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


_KEY = ["model", *SERIES_KEY]


def transition_tables(features: pd.DataFrame, metrics: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Make the table transitions of every feature and metric, from finite values."""
    series = with_metrics(features, metrics)
    series = series[np.isfinite(series["value"])].sort_values([*_KEY, "step"])
    transitions = []
    for key, rows in series.groupby(_KEY, sort=True):
        steps, values = rows["step"].to_numpy(), rows["value"].to_numpy(np.float64)
        largest = largest_change(steps, values)
        transitions.append(
            {
                **dict(zip(_KEY, map(str, key), strict=True)),
                "n": len(steps),
                "transition_step": largest.step,
                "change": largest.change,
                "settled_step": largest.settled_step,
                "reason": "constant or a single value" if np.isnan(largest.step) else "",
            }
        )
    return {"transitions": schemas.TABLES["transitions"].frame(transitions)}
