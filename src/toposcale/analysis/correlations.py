"""Correlations of every feature with every metric: as published, with moving blocks, and of first differences.

They say how closely a feature follows a metric. That is no evidence of a relation: whatever drifts follows whatever drifts.
The same given a control, and the tests, are in `partial_correlations`; the table `correlations` holds both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.controls import NOTHING
from toposcale.analysis.series import MIN_FOR_CORRELATION, Aligned, aligned_series, joined
from toposcale.io import schemas
from toposcale.statistics.coefficients import (
    MAX_PERMUTED,
    Floats,
    average_ranks,
    correlation_p_value,
    effective_sample_size,
    flattened,
    pearson,
    permutation_p_value,
    spearman,
)
from toposcale.statistics.resampling import (
    bootstrap_pearson,
    bootstrap_spearman,
    independent_counts,
    moving_block_counts,
    percentile_interval,
)

RESAMPLES = 1000
Coefficient = Callable[..., Floats]
INDEPENDENT, BLOCKS, DIFFERENCES = range(3)  # purposes of random numbers: each has its own stream


def correlation_table(
    features: pd.DataFrame, metrics: pd.DataFrame, *, seed: int, resamples: int = RESAMPLES
) -> pd.DataFrame:
    """Correlations of every feature with every metric, per model, with nothing held fixed."""
    rows = []
    for group in aligned_series(features, metrics):
        columns = {"control": NOTHING, "n_tested": 0, "reason": group.reasons()}
        columns |= _as_published(group, "spearman", spearman, bootstrap_spearman, seed, resamples)
        columns |= _as_published(group, "pearson", pearson, bootstrap_pearson, seed, resamples)
        rows.append(group.rows(columns | _differences(group, seed, resamples)))
    return schemas.TABLES["correlations"].frame(joined(rows))


def _as_published(
    group: Aligned, name: str, correlate: Coefficient, bootstrap: Coefficient, seed: int, resamples: int
) -> dict[str, Any]:
    """A correlation with its intervals and its p-value under independence."""
    names = [f"{name}{part}" for part in ("", "_low", "_high", "_block_low", "_block_high", "_p")]
    if group.n < MIN_FOR_CORRELATION:
        return dict.fromkeys(names, np.nan)
    correlation = correlate(group.values, group.targets)
    intervals = [
        percentile_interval(bootstrap(group.values, group.targets, counts))
        for counts in (
            independent_counts(group.n, resamples, group.generator(seed, INDEPENDENT)),
            moving_block_counts(group.n, resamples, group.generator(seed, BLOCKS)),
        )
    ]
    if group.n > MAX_PERMUTED:
        p = correlation_p_value(correlation, group.n)
    elif name == "spearman":
        p = permutation_p_value(average_ranks(flattened(group.values)), average_ranks(flattened(group.targets)))
    else:
        p = permutation_p_value(group.values, group.targets)
    return dict(zip(names, (correlation, *intervals[0], *intervals[1], p), strict=True))


def _differences(group: Aligned, seed: int, resamples: int) -> dict[str, Any]:
    """The correlation of first differences, and the effective number of points."""
    names = ("spearman_differences", "spearman_differences_low", "spearman_differences_high", "differences_p")
    if group.n <= MIN_FOR_CORRELATION:
        return dict.fromkeys([*names, "n_effective"], np.nan)
    x, y = np.diff(group.values, axis=1), np.diff(group.targets, axis=1)
    counts = moving_block_counts(group.n - 1, resamples, group.generator(seed, DIFFERENCES))
    interval = percentile_interval(bootstrap_spearman(x, y, counts))
    correlation = spearman(x, y)
    p = correlation_p_value(correlation, group.n - 1)
    n_effective = effective_sample_size(group.values, group.targets)
    return dict(zip(names, (correlation, *interval, p), strict=True)) | {"n_effective": n_effective}
