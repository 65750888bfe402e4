"""Transitions of every series, and whether those of different features coincide beyond chance."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toposcale.analysis.series import SERIES_KEY, whole_model, with_metrics
from toposcale.io import schemas
from toposcale.io.schemas import ALL_LAYERS
from toposcale.statistics.change_points import change_points, coincidence, largest_change
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.multiple_testing import benjamini_hochberg

_KEY = ["model", *SERIES_KEY]


class Series(NamedTuple):
    """A feature or metric (source "metric") of one model: its key, steps and values (T,), and the indices of its change
    points (`change_points`)."""

    key: dict[str, str]
    steps: NDArray[np.int64]
    values: Floats
    changes: NDArray[np.int64]


def transition_tables(features: pd.DataFrame, metrics: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables transitions, change_points and change_point_coincidence."""
    series = series_of(features, metrics)
    return {
        "transitions": transition_table(series),
        "change_points": change_point_table(series),
        "change_point_coincidence": change_point_coincidence_table(features, series),
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


def change_point_coincidence_table(features: pd.DataFrame, series: Iterable[Series]) -> pd.DataFrame:
    """Do the change points of two whole-model series fall together beyond chance? One row per pair.

    Change points coincide within one checkpoint. p-values are exact over circular shifts, and so at least
    1 / checkpoints. Models count where both series have change points.
    """
    masks: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    grids = {str(model): np.unique(rows["step"]) for model, rows in whole_model(features).groupby("model")}
    for key, steps, _, changes in series:
        model, source, feature = key["model"], key["source"], key["feature"]
        if model in grids and key["layer"] == ALL_LAYERS:
            masks.setdefault((source, feature), {})[model] = np.isin(grids[model], steps[changes])
    rows = []
    for first, second in combinations(sorted(masks), 2):
        models = [
            model
            for model in sorted(set(masks[first]) & set(masks[second]))
            if masks[first][model].any() and masks[second][model].any()
        ]
        if not models:
            continue
        pair = [masks[first][model] for model in models], [masks[second][model] for model in models]
        counts = [int(sum(mask.sum() for mask in side)) for side in pair]
        observed, expected, p_value = coincidence(*pair)
        rows.append(
            {
                "first_source": first[0],
                "first_feature": first[1],
                "second_source": second[0],
                "second_feature": second[1],
                "n_models": len(models),
                "n_first": counts[0],
                "n_second": counts[1],
                "observed": observed,
                "expected": expected,
                "p_value": p_value,
            }
        )
    table = schemas.TABLES["change_point_coincidence"].frame(rows)
    table["p_value_bh"] = benjamini_hochberg(table["p_value"].to_numpy())
    return table
