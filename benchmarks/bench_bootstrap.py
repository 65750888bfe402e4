"""The moving-block bootstrap of Spearman correlations against arch, on series as long as a paper run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType

import numpy as np
from scipy.stats import rankdata

from benchmarks.timing import Line, beside, compare
from toposcale.statistics.resampling import bootstrap_spearman, moving_block_counts, percentile_interval

POINTS, RESAMPLES, METRICS = 51, 1000, 2
FEATURES = (1, 35, 560)  # one feature, those of one layer, and those of all layers


def rows() -> Iterator[Line]:
    """A row for each number of features."""
    yield from beside("arch.bootstrap", against_arch)


def against_arch(bootstrap: ModuleType) -> Iterator[Line]:
    """95% intervals of all correlations by both, after a check that they agree up to the draws."""
    rng = np.random.default_rng(0)
    for count in FEATURES:
        metrics = rng.standard_normal((METRICS, POINTS)).cumsum(axis=1)
        features = 0.5 * metrics[:1] + rng.standard_normal((count, POINTS)).cumsum(axis=1)

        def ours(features: np.ndarray = features, metrics: np.ndarray = metrics) -> np.ndarray:
            counts = moving_block_counts(POINTS, RESAMPLES, np.random.default_rng(0))
            return np.stack(percentile_interval(bootstrap_spearman(features, metrics, counts)))

        def theirs(features: np.ndarray = features, metrics: np.ndarray = metrics) -> np.ndarray:
            return arch_intervals(bootstrap, features, metrics)

        assert np.abs(ours() - theirs()).mean() < 0.02
        yield compare(
            f"bootstrap of {count} x {METRICS} correlations, {POINTS} points / arch",
            ours,
            theirs,
            limit=1.0,
            rounds=3 if count > 100 else 7,
        )


def arch_intervals(bootstrap: ModuleType, features: np.ndarray, metrics: np.ndarray) -> np.ndarray:
    """Percentile intervals (2, features, metrics): one call of NumPy and SciPy a resample for all series at once."""

    def spearman(series: np.ndarray) -> np.ndarray:
        ranks = rankdata(series, axis=0)
        ranks -= ranks.mean(axis=0)
        ranks /= np.sqrt((ranks * ranks).sum(axis=0))
        return (ranks[:, : len(features)].T @ ranks[:, len(features) :]).ravel()

    series = np.concatenate([features, metrics]).T
    drawn = bootstrap.MovingBlockBootstrap(math.ceil(math.sqrt(POINTS)), series, seed=0)
    bounds = np.quantile(drawn.apply(spearman, RESAMPLES), [0.025, 0.975], axis=0)
    return bounds.reshape(2, len(features), len(metrics))
