"""Transitions of every series: the step of its largest change, and the step from which it changes little."""

import numpy as np
import pandas as pd

from toposcale.analysis.series import SERIES_KEY, with_metrics
from toposcale.io import schemas
from toposcale.statistics.changes import largest_change

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
