"""Transitions of every series: the largest change, and the change points."""

import numpy as np
import pandas as pd

from toposcale.analysis.series import SERIES_KEY, with_metrics
from toposcale.io import schemas
from toposcale.statistics.changes import change_points, largest_change

_KEY = ["model", *SERIES_KEY]


def transition_tables(features: pd.DataFrame, metrics: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Make the tables transitions and change_points (PELT) of every feature and metric, from finite values."""
    both = with_metrics(features, metrics)
    both = both[np.isfinite(both["value"])].sort_values([*_KEY, "step"])
    transitions, points = [], []
    for key, rows in both.groupby(_KEY, sort=True):
        named = dict(zip(_KEY, map(str, key), strict=True))
        steps, values = rows["step"].to_numpy(), rows["value"].to_numpy(np.float64)
        largest, changes = largest_change(steps, values), change_points(values)
        transitions.append(
            {
                **named,
                "n": len(steps),
                "transition_step": largest.step,
                "change": largest.change,
                "settled_step": largest.settled_step,
                "n_change_points": len(changes),
                "reason": "constant or a single value" if np.isnan(largest.step) else "",
            }
        )
        points += [{**named, "step": int(steps[index])} for index in changes]
    return {
        "transitions": schemas.TABLES["transitions"].frame(transitions),
        "change_points": schemas.TABLES["change_points"].frame(points),
    }
