"""Correlations of every feature with every metric: as published, with moving blocks, and of first differences.

They are not evidence of a relation: all series that drift correlate.
"""

from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.controls import NOTHING
from toposcale.analysis.series import MIN_FOR_CORRELATION, Aligned, aligned_series, joined
from toposcale.io import schemas
from toposcale.statistics import coefficients, resampling

RESAMPLES = 1000
COEFFICIENTS = {
    "spearman": (coefficients.spearman, resampling.bootstrap_spearman),
    "pearson": (coefficients.pearson, resampling.bootstrap_pearson),
}
INDEPENDENT, BLOCKS, DIFFERENCES = range(3)  # purposes of random numbers: each has its own stream


def correlation_table(
    features: pd.DataFrame, metrics: pd.DataFrame, *, seed: int, resamples: int = RESAMPLES
) -> pd.DataFrame:
    """Correlate every feature with every metric, per model, with nothing held fixed."""
    rows = []
    for group in aligned_series(features, metrics):
        columns = {"control": NOTHING, "n_tested": 0, "reason": group.reasons()}
        for name in COEFFICIENTS:
            columns |= _as_published(group, name, seed, resamples)
        rows.append(group.rows(columns | _differences(group, seed, resamples)))
    return schemas.TABLES["correlations"].frame(joined(rows))


def _as_published(group: Aligned, name: str, seed: int, resamples: int) -> dict[str, Any]:
    """Compute a correlation with its intervals and its p-value under independence."""
    names = [f"{name}{part}" for part in ("", "_low", "_high", "_block_low", "_block_high", "_p")]
    if group.n < MIN_FOR_CORRELATION:
        return dict.fromkeys(names, np.nan)
    correlate, bootstrap = COEFFICIENTS[name]
    correlation = correlate(group.values, group.targets)
    intervals = [
        resampling.percentile_interval(bootstrap(group.values, group.targets, counts))
        for counts in (
            resampling.independent_counts(group.n, resamples, group.generator(seed, INDEPENDENT)),
            resampling.moving_block_counts(group.n, resamples, group.generator(seed, BLOCKS)),
        )
    ]
    if group.n > coefficients.MAX_PERMUTED:
        p = coefficients.correlation_p_value(correlation, group.n)
    else:
        series = [group.values, group.targets]
        if name == "spearman":
            series = [coefficients.average_ranks(coefficients.flattened(rows)) for rows in series]
        p = coefficients.permutation_p_value(*series)
    return dict(zip(names, (correlation, *intervals[0], *intervals[1], p), strict=True))


def _differences(group: Aligned, seed: int, resamples: int) -> dict[str, Any]:
    """Compute the correlation of first differences, and the effective number of points."""
    names = ("spearman_differences", "spearman_differences_low", "spearman_differences_high", "differences_p")
    if group.n <= MIN_FOR_CORRELATION:
        return dict.fromkeys([*names, "n_effective"], np.nan)
    x, y = np.diff(group.values, axis=1), np.diff(group.targets, axis=1)
    counts = resampling.moving_block_counts(group.n - 1, resamples, group.generator(seed, DIFFERENCES))
    interval = resampling.percentile_interval(resampling.bootstrap_spearman(x, y, counts))
    correlation = coefficients.spearman(x, y)
    p = coefficients.correlation_p_value(correlation, group.n - 1)
    n_effective = coefficients.effective_sample_size(group.values, group.targets)
    return dict(zip(names, (correlation, *interval, p), strict=True)) | {"n_effective": n_effective}
