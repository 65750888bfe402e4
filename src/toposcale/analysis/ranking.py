"""Topology against spectra, norms and curvature: how closely each follows a metric, with paired intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toposcale.analysis.correlations import RESAMPLES
from toposcale.analysis.series import MIN_POINTS, SERIES_KEY, aligned_series, whole_model
from toposcale.features.registry import WEIGHT_NORM, group_of
from toposcale.io import schemas
from toposcale.statistics.coefficients import Floats, spearman
from toposcale.statistics.resampling import bootstrap_spearman, moving_block_counts, percentile_interval


def ranking_tables(
    features: pd.DataFrame, metrics: pd.DataFrame, *, seed: int, resamples: int = RESAMPLES
) -> dict[str, pd.DataFrame]:
    """The table ranking."""
    if set(features["model"]).isdisjoint(metrics["model"]):
        return {}
    return {"ranking": ranking_table(strengths_of(features, metrics, seed=seed, resamples=resamples))}


def ranking_table(strengths: Strengths) -> pd.DataFrame:
    """Whole-model features ranked by strength = mean over models of |Spearman| with the metric.

    Intervals: moving-block bootstrap; one resample takes the same checkpoints for all features and models, so
    differences are paired.
    """
    table = strengths.keys.copy()
    table["group"] = [group_of(feature) for feature in table["feature"]]
    table["n_models"] = strengths.n_models
    _add(table, "strength", strengths.point, strengths.drawn)
    reference, drawn_reference = np.full(len(table), np.nan), np.full_like(strengths.drawn, np.nan)
    is_norm = (table[SERIES_KEY] == list(WEIGHT_NORM)).all(axis=1).to_numpy()
    for row in np.flatnonzero(is_norm):
        same = (table["metric"] == table["metric"].iloc[row]).to_numpy()
        reference[same], drawn_reference[:, same] = strengths.point[row], strengths.drawn[:, row, None]
    _add(table, "over_norm", strengths.point - reference, strengths.drawn - drawn_reference)
    table["rank"] = table.groupby("metric")["strength"].rank(ascending=False, method="min")
    return schemas.TABLES["ranking"].frame(table)


@dataclass(frozen=True)
class Strengths:
    """Mean |Spearman| over models of each (source, layer, feature, metric)."""

    keys: pd.DataFrame  # P rows
    point: Floats  # (P,)
    drawn: Floats  # (resamples, P)
    n_models: NDArray[np.int64]  # (P,)


def strengths_of(
    features: pd.DataFrame, metrics: pd.DataFrame, *, seed: int, resamples: int = RESAMPLES
) -> Strengths:
    """The strengths of every whole-model feature, in the data and in the moving-block resamples."""
    sums: dict[tuple[str, ...], tuple[float, Floats, int]] = {}
    whole = whole_model(features)
    grids = {str(model): np.unique(rows["step"]) for model, rows in whole.groupby("model")}
    for group in aligned_series(whole, metrics):
        columns = group.pairs()
        pairs: Iterator[tuple[str, ...]] = zip(
            *(columns[name] for name in (*SERIES_KEY, "metric")), strict=True
        )
        if group.n < MIN_POINTS:
            point = np.full((len(group.values), len(group.metrics)), np.nan)
            drawn = np.full((resamples, *point.shape), np.nan)
        else:
            # Drawn from all checkpoints of the model, and then cut to those of this group: series with a gap
            # stay paired.
            grid = grids[group.model]
            rng = np.random.default_rng([seed, len(grid)])
            counts = moving_block_counts(len(grid), resamples, rng)[:, np.isin(grid, group.steps)]
            point = np.abs(spearman(group.values, group.targets))
            drawn = np.abs(bootstrap_spearman(group.values, group.targets, counts))
        for pair, value, draws in zip(pairs, point.ravel(), drawn.reshape(resamples, -1).T, strict=True):
            total, total_draws, count = sums.get(pair, (0.0, np.zeros(resamples), 0))
            # A model in which the feature is constant has no correlation: it is not counted, and n_models
            # says so.
            if np.isfinite(value):
                total, total_draws, count = total + float(value), total_draws + draws, count + 1
            sums[pair] = (total, total_draws, count)
    keys = sorted(sums)
    n_models = np.array([sums[key][2] for key in keys], dtype=np.int64)
    divisor = np.where(n_models > 0, n_models, np.nan)
    point = np.array([sums[key][0] for key in keys]) / divisor
    drawn = np.stack([sums[key][1] for key in keys], axis=1) / divisor
    return Strengths(pd.DataFrame(keys, columns=[*SERIES_KEY, "metric"]), point, drawn, n_models)


def _add(table: pd.DataFrame, name: str, point: Floats, drawn: Floats) -> None:
    table[name] = point
    table[f"{name}_low"], table[f"{name}_high"] = percentile_interval(drawn)
