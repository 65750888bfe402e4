"""Transitions of every series, and whether those of different features coincide beyond chance."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pandas as pd

from toposcale.statistics.multiple_testing import benjamini_hochberg
from toposcale.statistics.series import SERIES_KEY, whole_model
from toposcale.statistics.transitions import change_points, coincidence, largest_change
from toposcale.tables import ALL_LAYERS

_KEY = ["model", *SERIES_KEY]


def transition_table(features: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """The paper's transition of every feature and metric (source "metric"), and the number of its change
    points.

    Columns: model, source, layer, feature, n, transition_step, change, settled_step, n_change_points, reason.
    """
    rows = []
    for key, steps, values in _series(features, metrics):
        found = largest_change(steps, values)
        reason = "constant or a single value" if np.isnan(found.step) else ""
        n_points = len(change_points(values))
        rows.append((*key, len(steps), found.step, found.change, found.settled_step, n_points, reason))
    columns = [*_KEY, "n", "transition_step", "change", "settled_step", "n_change_points", "reason"]
    return pd.DataFrame(rows, columns=columns)


def change_point_table(features: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Steps at which a new straight piece begins (PELT): model, source, layer, feature, step."""
    rows = [
        (*key, int(steps[at]))
        for key, steps, values in _series(features, metrics)
        for at in change_points(values)
    ]
    return pd.DataFrame(rows, columns=[*_KEY, "step"])


def coincidence_table(features: pd.DataFrame, metrics: pd.DataFrame, *, tolerance: int = 1) -> pd.DataFrame:
    """Do the change points of two whole-model series fall together beyond chance? One row per pair.

    Columns: first_source, first_feature, second_source, second_feature, n_models (where both have change
    points), n_first, n_second (change points), observed (of the first with one of the second within
    `tolerance` checkpoints), expected, p_value (circular shifts, exact, at least 1 / checkpoints),
    p_value_bh.
    """
    masks: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    whole = whole_model(features)
    grids = {str(model): np.unique(rows["step"]) for model, rows in whole.groupby("model")}
    for (model, source, _, feature), steps, values in _series(whole, metrics):
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
        rows.append((*first, *second, len(models), *counts, *coincidence(*pair, tolerance=tolerance)))
    columns = ["first_source", "first_feature", "second_source", "second_feature", "n_models", "n_first"]
    table = pd.DataFrame(rows, columns=[*columns, "n_second", "observed", "expected", "p_value"])
    table["p_value_bh"] = benjamini_hochberg(table["p_value"].to_numpy(np.float64))
    return table


def _series(
    features: pd.DataFrame, metrics: pd.DataFrame
) -> Iterator[tuple[tuple[str, str, str, str], np.ndarray, np.ndarray]]:
    """Key, steps and values of each feature and metric, in order; values that are not finite are left out."""
    as_features = metrics.rename(columns={"metric": "feature"}).assign(source="metric", layer=ALL_LAYERS)
    columns = [*_KEY, "step", "value"]
    both = pd.concat([features[columns], as_features[columns]], ignore_index=True)
    both = both[np.isfinite(both["value"])].sort_values([*_KEY, "step"])
    for key, rows in both.groupby(_KEY, sort=True):
        model, source, layer, feature = map(str, key)
        yield (model, source, layer, feature), rows["step"].to_numpy(), rows["value"].to_numpy(np.float64)
