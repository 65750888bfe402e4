"""Transitions of every series, and whether those of different features coincide beyond chance."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pandas as pd

from toposcale.analysis.series import SERIES_KEY, whole_model
from toposcale.io import schemas
from toposcale.io.schemas import ALL_LAYERS, METRIC_SOURCE
from toposcale.statistics.change_points import change_points, coincidence, largest_change
from toposcale.statistics.multiple_testing import benjamini_hochberg

_KEY = ["model", *SERIES_KEY]


def transition_tables(features: pd.DataFrame, metrics: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables transitions, change_points and change_point_coincidence."""
    return {
        "transitions": transition_table(features, metrics),
        "change_points": change_point_table(features, metrics),
        "change_point_coincidence": change_point_coincidence_table(features, metrics),
    }


def transition_table(features: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """The paper's transition of every feature and metric (source "metric"), and the number of its change points."""
    rows = []
    for key, steps, values in _series(features, metrics):
        found = largest_change(steps, values)
        reason = "constant or a single value" if np.isnan(found.step) else ""
        n_points = len(change_points(values))
        rows.append(
            {
                **key,
                "n": len(steps),
                "transition_step": found.step,
                "change": found.change,
                "settled_step": found.settled_step,
                "n_change_points": n_points,
                "reason": reason,
            }
        )
    return schemas.TRANSITIONS.frame(rows)


def change_point_table(features: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Steps at which a new straight piece of a series begins (PELT)."""
    rows = [
        {**key, "step": int(steps[at])}
        for key, steps, values in _series(features, metrics)
        for at in change_points(values)
    ]
    return schemas.CHANGE_POINTS.frame(rows)


def change_point_coincidence_table(
    features: pd.DataFrame, metrics: pd.DataFrame, *, tolerance: int = 1
) -> pd.DataFrame:
    """Do the change points of two whole-model series fall together beyond chance? One row per pair.

    Change points coincide within `tolerance` checkpoints. p-values are exact over circular shifts, and so at least
    1 / checkpoints. Models count where both series have change points.
    """
    masks: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    whole = whole_model(features)
    grids = {str(model): np.unique(rows["step"]) for model, rows in whole.groupby("model")}
    for key, steps, values in _series(whole, metrics):
        model, source, feature = key["model"], key["source"], key["feature"]
        if model in grids:
            at = change_points(values)
            masks.setdefault((source, feature), {})[model] = np.isin(grids[model], steps[at])
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
        observed, expected, p_value = coincidence(*pair, tolerance=tolerance)
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
    table = schemas.CHANGE_POINT_COINCIDENCE.frame(rows)
    table["p_value_bh"] = benjamini_hochberg(table["p_value"].to_numpy())
    return table


def _series(
    features: pd.DataFrame, metrics: pd.DataFrame
) -> Iterator[tuple[dict[str, str], np.ndarray, np.ndarray]]:
    """Key, steps and values of each feature and metric, in order; values that are not finite are left out."""
    as_features = metrics.rename(columns={"metric": "feature"}).assign(source=METRIC_SOURCE, layer=ALL_LAYERS)
    columns = [*_KEY, "step", "value"]
    both = pd.concat([features[columns], as_features[columns]], ignore_index=True)
    both = both[np.isfinite(both["value"])].sort_values([*_KEY, "step"])
    for key, rows in both.groupby(_KEY, sort=True):
        named = dict(zip(_KEY, map(str, key), strict=True))
        yield named, rows["step"].to_numpy(), rows["value"].to_numpy(np.float64)
