"""Transitions of every series: the largest change, and the change points."""

import numpy as np
import pandas as pd

from toposcale.analysis.series import SERIES_KEY, with_metrics
from toposcale.io import schemas
from toposcale.statistics.changes import change_points, largest_change

_KEY = ["model", *SERIES_KEY]


def transition_tables(features: pd.DataFrame, metrics: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Make the tables transitions and change_points of every feature and metric, from finite values."""
    series = with_metrics(features, metrics)
    series = series[np.isfinite(series["value"])].sort_values([*_KEY, "step"])
    transitions, points = [], []
    for key, rows in series.groupby(_KEY, sort=True):
        key_columns = dict(zip(_KEY, map(str, key), strict=True))
        steps, values = rows["step"].to_numpy(), rows["value"].to_numpy(np.float64)
        largest, changes = largest_change(steps, values), change_points(values)
        transitions.append(
            {
                **key_columns,
                "n": len(steps),
                "transition_step": largest.step,
                "change": largest.change,
                "settled_step": largest.settled_step,
                "reason": "constant or a single value" if np.isnan(largest.step) else "",
            }
        )
        points += [{**key_columns, "step": int(steps[index])} for index in changes]
    return {
        "transitions": schemas.TABLES["transitions"].frame(transitions),
        "change_points": schemas.TABLES["change_points"].frame(points),
    }
