"""Ranking of features by how closely they follow a metric, with paired intervals."""

import numpy as np
import pandas as pd

from toposcale.analysis.correlations import RESAMPLES
from toposcale.analysis.series import MIN_FOR_CORRELATION, PAIR_KEY, SERIES_KEY, aligned_series, whole_model
from toposcale.features import weights  # noqa: F401  # registers features on import
from toposcale.features.registry import WEIGHT_NORM, group_of
from toposcale.io import schemas
from toposcale.statistics.coefficients import Floats, spearman
from toposcale.statistics.resampling import bootstrap_spearman, moving_block_counts, percentile_interval


def ranking_tables(
    features: pd.DataFrame, metrics: pd.DataFrame, *, seed: int, resamples: int = RESAMPLES
) -> dict[str, pd.DataFrame]:
    """Make the table ranking: whole-model features by strength, the mean over models of |Spearman| with the metric.

    A moving-block resample takes the same checkpoints for all features and models, so differences are paired.
    """
    if set(features["model"]).isdisjoint(metrics["model"]):
        return {}
    table, point, drawn = _strengths(whole_model(features), metrics, seed, resamples)
    table["group"] = [group_of(feature) for feature in table["feature"]]
    _add(table, "strength", point, drawn)
    reference, drawn_reference = np.full(len(table), np.nan), np.full_like(drawn, np.nan)
    is_norm = (table[SERIES_KEY] == list(WEIGHT_NORM)).all(axis=1).to_numpy()
    for row in np.flatnonzero(is_norm):
        same = (table["metric"] == table["metric"].iloc[row]).to_numpy()
        reference[same], drawn_reference[:, same] = point[row], drawn[:, row, None]
    _add(table, "over_norm", point - reference, drawn - drawn_reference)
    table["rank"] = table.groupby("metric")["strength"].rank(ascending=False, method="min")
    return {"ranking": schemas.TABLES["ranking"].frame(table)}


def _strengths(
    features: pd.DataFrame, metrics: pd.DataFrame, seed: int, resamples: int
) -> tuple[pd.DataFrame, Floats, Floats]:
    """Return the keys of P features and metrics, their strengths (P,) and those of resamples (resamples, P)."""
    sums: dict[tuple[str, ...], tuple[float, Floats, int]] = {}
    for group in aligned_series(features, metrics):
        pairs = zip(*(group.pairs()[name] for name in PAIR_KEY), strict=True)
        if group.n < MIN_FOR_CORRELATION:
            point = np.full((len(group.values), len(group.metrics)), np.nan)
            drawn = np.full((resamples, *point.shape), np.nan)
        else:
            # Drawn from all checkpoints of the model, then cut to those of this group: incomplete series stay paired.
            grid = np.unique(features.loc[features["model"] == group.model, "step"])
            rng = np.random.default_rng([seed, len(grid)])
            counts = moving_block_counts(len(grid), resamples, rng)[:, np.isin(grid, group.steps)]
            point = np.abs(spearman(group.values, group.targets))
            drawn = np.abs(bootstrap_spearman(group.values, group.targets, counts))
        for pair, value, draws in zip(pairs, point.ravel(), drawn.reshape(resamples, -1).T, strict=True):
            total, total_draws, count = sums.get(pair, (0.0, np.zeros(resamples), 0))
            # A model in which the feature is constant has no correlation: it is not counted, and n_models says so.
            if np.isfinite(value):
                total, total_draws, count = total + float(value), total_draws + draws, count + 1
            sums[pair] = (total, total_draws, count)
    keys = sorted(sums)
    n_models = np.array([sums[key][2] for key in keys], dtype=np.int64)
    divisor = np.where(n_models > 0, n_models, np.nan)
    point = np.array([sums[key][0] for key in keys]) / divisor
    drawn = np.stack([sums[key][1] for key in keys], axis=1) / divisor
    return pd.DataFrame(keys, columns=PAIR_KEY).assign(n_models=n_models), point, drawn


def _add(table: pd.DataFrame, name: str, point: Floats, drawn: Floats) -> None:
    table[name] = point
    table[f"{name}_low"], table[f"{name}_high"] = percentile_interval(drawn)
