"""Transitions of every series: the largest change, and the change points."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toposcale.analysis.series import SERIES_KEY, with_metrics
from toposcale.io import schemas
from toposcale.statistics.change_points import change_points, largest_change
from toposcale.statistics.coefficients import Floats

_KEY = ["model", *SERIES_KEY]


class Series(NamedTuple):
    """A feature or metric (source "metric") of one model: its key, steps and values (T,), and the indices of its change
    points (`change_points`)."""

    key: dict[str, str]
    steps: NDArray[np.int64]
    values: Floats
    changes: NDArray[np.int64]


def transition_tables(features: pd.DataFrame, metrics: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables transitions and change_points."""
    series = series_of(features, metrics)
    return {
        "transitions": transition_table(series),
        "change_points": change_point_table(series),
    }


def series_of(features: pd.DataFrame, metrics: pd.DataFrame) -> list[Series]:
    """Every feature and metric in order; values that are not finite are left out."""
    both = with_metrics(features, metrics)
    both = both[np.isfinite(both["value"])].sort_values([*_KEY, "step"])
    found = []
    for key, rows in both.groupby(_KEY, sort=True):
        values = rows["value"].to_numpy(np.float64)
        named = dict(zip(_KEY, map(str, key), strict=True))
        found.append(Series(named, rows["step"].to_numpy(), values, change_points(values)))
    return found


def transition_table(series: Iterable[Series]) -> pd.DataFrame:
    """The paper's transition of every feature and metric, and the number of its change points."""
    rows = []
    for key, steps, values, changes in series:
        found = largest_change(steps, values)
        rows.append(
            {
                **key,
                "n": len(steps),
                "transition_step": found.step,
                "change": found.change,
                "settled_step": found.settled_step,
                "n_change_points": len(changes),
                "reason": "constant or a single value" if np.isnan(found.step) else "",
            }
        )
    return schemas.TABLES["transitions"].frame(rows)


def change_point_table(series: Iterable[Series]) -> pd.DataFrame:
    """Steps at which a new straight piece of a series begins (PELT)."""
    rows = [{**key, "step": int(steps[at])} for key, steps, _, changes in series for at in changes]
    return schemas.TABLES["change_points"].frame(rows)
