"""Correlations pooled over models and seeds: random-effects means, and one surrogate test for all models
together."""

from __future__ import annotations

import numpy as np
import pandas as pd

from toposcale.analysis.correlations import CONTROLS, PAIR_KEY
from toposcale.analysis.series import SERIES_KEY, Aligned, aligned_series
from toposcale.io import schemas
from toposcale.statistics.correlation import Floats
from toposcale.statistics.innovations import MIN_POINTS, innovation_test, sign_flip_p_value
from toposcale.statistics.multiple_testing import benjamini_hochberg
from toposcale.statistics.pooling import pooled_correlation

NOTHING = "nothing"
POOLED_KEY = [*SERIES_KEY, "metric", "given"]


def pooled_table(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    correlations: pd.DataFrame,
    partials: pd.DataFrame,
    *,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Pooled correlations, one row per (source, layer, feature, metric, given).

    correlations, partials: the tables of `correlations` from the same features and metrics. Random-effects means are
    of Fisher's z, their variance from the effective number of points.

    The pooled surrogate test flips the sign of one checkpoint's innovations in all models at once: models
    that share batches and learning rates are not independent witnesses, and the shared flips keep what ties
    them. At 5% it rejects 4 to 6% of unrelated drifts of five models with 51 checkpoints, 6 to 8% with 20 or
    30.
    """
    estimates = _random_effects(correlations, partials, confidence)
    tests = pd.concat(
        [
            pooled_surrogate_test(features, metrics, given_norm=given_norm, confidence=confidence).assign(
                given=given
            )
            for given_norm, names in (
                (False, (NOTHING, "step")),
                (True, ("weight_norm", "weight_norm_and_step")),
            )
            for given in names
        ],
        ignore_index=True,
    )
    table = estimates.merge(tests, on=POOLED_KEY, how="left", validate="one_to_one")
    table["p_surrogate_bh"] = table.groupby("given")["p_surrogate"].transform(
        lambda p_values: benjamini_hochberg(p_values.to_numpy())
    )
    return schemas.POOLED_CORRELATIONS.frame(table)


def _random_effects(correlations: pd.DataFrame, partials: pd.DataFrame, confidence: float) -> pd.DataFrame:
    columns = [*PAIR_KEY, "given", "spearman", "n_effective"]
    plain = correlations.assign(given=NOTHING)[columns]
    partial = partials.rename(columns={"partial_spearman": "spearman"})[columns]
    parts = []
    for given, rows in pd.concat([plain, partial], ignore_index=True).groupby("given"):
        wide = rows.pivot(index=POOLED_KEY, columns="model", values=["spearman", "n_effective"])
        pooled = pooled_correlation(
            wide["spearman"].to_numpy(np.float64),
            wide["n_effective"].to_numpy(np.float64),
            n_controls=CONTROLS.get(str(given), 0),
            confidence=confidence,
        )
        table = wide.index.to_frame(index=False)
        table["n_models"] = pooled.n_studies.astype(np.int64)
        table["spearman"], table["spearman_low"], table["spearman_high"] = (
            pooled.estimate,
            pooled.low,
            pooled.high,
        )
        table["i_squared"] = pooled.i_squared
        parts.append(table)
    return pd.concat(parts, ignore_index=True)


def pooled_surrogate_test(
    features: pd.DataFrame, metrics: pd.DataFrame, *, given_norm: bool, confidence: float = 0.95
) -> pd.DataFrame:
    """Innovation correlations pooled over models, with one p-value for all: the second half of
    `pooled_table`.

    One row per (source, layer, feature, metric): innovation_correlation, innovation_low, innovation_high,
    innovation_i_squared, p_surrogate. given_norm: also given the weight norm; the step's trend is given
    always.
    """
    groups = [
        group
        for group in aligned_series(features, metrics)
        if group.n >= MIN_POINTS and not (given_norm and group.norm is None)
    ]
    columns = [*SERIES_KEY, "metric", "innovation_correlation", "innovation_low", "innovation_high"]
    if not groups:
        return pd.DataFrame(columns=[*columns, "innovation_i_squared", "p_surrogate"])
    pairs = pd.MultiIndex.from_frame(
        pd.concat([group.rows({}) for group in groups])[[*SERIES_KEY, "metric"]].drop_duplicates()
    )
    models = sorted({group.model for group in groups})
    steps = np.unique(np.concatenate([group.steps for group in groups]))
    products = np.zeros((len(pairs), len(steps)))
    correlations = np.full((len(pairs), len(models)), np.nan)
    freedom, statistics = correlations.copy(), np.zeros_like(correlations)
    for group in groups:
        test = innovation_test(group.values, group.targets, group.norm if given_norm else None)
        rows = _positions(pairs, group)
        column = models.index(group.model)
        correlations[rows, column] = test.correlation.ravel()
        freedom[rows, column] = test.freedom.ravel()
        statistics[rows, column] = np.nan_to_num(test.statistic).ravel()
        at = np.searchsorted(steps, group.steps[test.start :])
        products[np.ix_(rows, at)] += np.nan_to_num(test.products).reshape(len(rows), -1)
    # r of residuals with `freedom` degrees left spreads like r of freedom + 1 independent points.
    pooled = pooled_correlation(correlations, freedom + 1, confidence=confidence)
    table = pairs.to_frame(index=False)
    for name, values in zip(columns[4:], (pooled.estimate, pooled.low, pooled.high), strict=True):
        table[name] = values
    table["innovation_i_squared"] = pooled.i_squared
    table["p_surrogate"] = _shared_flips(statistics.sum(axis=1), products)
    return table


def _shared_flips(statistics: Floats, products: Floats) -> Floats:
    p_values = sign_flip_p_value(statistics, products)
    return np.where((products != 0).any(axis=1), p_values, np.nan)


def _positions(pairs: pd.MultiIndex, group: Aligned) -> np.ndarray:
    keys = group.rows({})[[*SERIES_KEY, "metric"]]
    return pairs.get_indexer(pd.MultiIndex.from_frame(keys))
