"""Correlations of every feature with every metric: as published, with moving blocks, and of first differences.

They say how closely a feature follows a metric. That is no evidence of a relation: whatever drifts follows whatever drifts.
The same given a control, and the tests, are in `partial_correlations`; the table `correlations` holds both.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from toposcale.analysis.controls import NOTHING
from toposcale.analysis.series import MIN_FOR_CORRELATION, SERIES_KEY, Aligned, aligned_series, joined
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
PAIR_KEY = ["model", *SERIES_KEY, "metric"]

INDEPENDENT, BLOCKS, DIFFERENCES = range(3)  # purposes of random numbers: each has its own stream


def correlation_table(
    features: pd.DataFrame, metrics: pd.DataFrame, *, seed: int, resamples: int = RESAMPLES
) -> pd.DataFrame:
    """Correlations of every feature with every metric, per model, with nothing held fixed."""
    rows = [
        group.rows(
            {
                **_plain(group, seed, resamples),
                **_differences(group, seed, resamples),
                "control": NOTHING,
                "n_tested": 0,
                "reason": group.reasons(),
            }
        )
        for group in aligned_series(features, metrics)
    ]
    return schemas.TABLES["correlations"].frame(joined(rows))


def _plain(group: Aligned, seed: int, resamples: int) -> dict[str, Floats]:
    """The part as published."""
    kinds = {"spearman": (spearman, bootstrap_spearman), "pearson": (pearson, bootstrap_pearson)}
    columns = {}
    shape = (len(group.values), len(group.metrics))
    for name, (correlate, bootstrap) in kinds.items():
        names = [name, f"{name}_low", f"{name}_high", f"{name}_block_low", f"{name}_block_high", f"{name}_p"]
        columns.update({column: np.full(shape, np.nan) for column in names})
        if group.n < MIN_FOR_CORRELATION:
            continue
        columns[name] = correlate(group.values, group.targets)
        for infix, counts in (
            ("", independent_counts(group.n, resamples, group.generator(seed, INDEPENDENT))),
            ("block_", moving_block_counts(group.n, resamples, group.generator(seed, BLOCKS))),
        ):
            drawn = bootstrap(group.values, group.targets, counts)
            low, high = percentile_interval(drawn)
            columns[f"{name}_{infix}low"], columns[f"{name}_{infix}high"] = low, high
        if group.n <= MAX_PERMUTED:
            values, targets = group.values, group.targets
            if name == "spearman":
                values, targets = average_ranks(flattened(values)), average_ranks(flattened(targets))
            columns[f"{name}_p"] = permutation_p_value(values, targets)
        else:
            columns[f"{name}_p"] = correlation_p_value(columns[name], group.n)
    return columns


def _differences(group: Aligned, seed: int, resamples: int) -> dict[str, Floats]:
    """The correlation of first differences, and the effective number of points."""
    shape = (len(group.values), len(group.metrics))
    names = ["spearman_differences", "spearman_differences_low", "spearman_differences_high", "differences_p"]
    columns = dict.fromkeys([*names, "n_effective"], np.full(shape, np.nan))
    if group.n > MIN_FOR_CORRELATION:
        x, y = np.diff(group.values, axis=1), np.diff(group.targets, axis=1)
        counts = moving_block_counts(group.n - 1, resamples, group.generator(seed, DIFFERENCES))
        low, high = percentile_interval(bootstrap_spearman(x, y, counts))
        correlation = spearman(x, y)
        p = correlation_p_value(correlation, group.n - 1)
        columns.update(zip(names, (correlation, low, high, p), strict=True))
        columns["n_effective"] = effective_sample_size(group.values, group.targets)
    return columns
