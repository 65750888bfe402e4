"""Dependence of the features of a loss surface on the choice of graph."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.landscape_information import landscape_by_model
from toposcale.io import schemas
from toposcale.landscape.measures import TREE_FEATURES
from toposcale.landscape.planes import plane_name
from toposcale.statistics.coefficients import spearman


def graph_dependence_tables(
    all_features: pd.DataFrame, *, planes: Mapping[str, Sequence[float]], graphs: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Make the table graph_dependence: a row for each model, shape feature and plane.

    Spreads are standard deviations (divisor n - 1) in the unit of the feature: over graphs and repeats, means over
    checkpoints; over repeats and training, of the first graph. NaN if there are fewer than two values, or one is not
    finite.
    """
    rows = []
    for model, table in landscape_by_model(all_features):
        for kind, extents in planes.items():
            for feature, extent in product(TREE_FEATURES, extents):
                name = f"{feature}_{plane_name(kind, extent)}"
                row = _row(table, [f"{name}_{graph}" for graph in graphs], graphs)
                rows.append({"model": model, "feature": name, **row})
    return {"graph_dependence": schemas.TABLES["graph_dependence"].frame(rows)}


def _row(table: pd.DataFrame, names: Sequence[str], graphs: Sequence[str]) -> dict[str, Any]:
    values = table[list(names)].to_numpy(dtype=float)  # checkpoints by graphs
    means = values.mean(axis=0)
    all_finite = bool(np.isfinite(means).all())
    low, high = (int(means.argmin()), int(means.argmax())) if all_finite else (0, 0)
    repeats = table.get(f"{names[0]}_spread")
    pairs = combinations(range(len(names)), 2) if all_finite else ()
    agreements = [float(spearman(values[None, :, i], values[None, :, j])[0, 0]) for i, j in pairs]
    return {
        "n_checkpoints": len(values),
        "n_graphs": len(names),
        "lowest": means[low],
        "lowest_graph": graphs[low] if all_finite else "",
        "highest": means[high],
        "highest_graph": graphs[high] if all_finite else "",
        "spread_over_graphs": float(_deviation(values, axis=1).mean()),
        "spread_over_repeats": np.nan if repeats is None else float(repeats.to_numpy(dtype=float).mean()),
        "spread_over_training": float(_deviation(values[:, 0], axis=0)),
        "agreement": float(np.mean(agreements)) if agreements else np.nan,
        "agreement_least": float(np.min(agreements)) if agreements else np.nan,
    }


def _deviation(values: np.ndarray, axis: int) -> np.ndarray:
    if values.shape[axis] < 2:
        return np.full(np.delete(values.shape, axis), np.nan)
    return np.std(values, axis=axis, ddof=1)
