"""Do the prewhitened residuals of a feature go with the losses of their own run more than with those of its sister runs?

A configuration is what runs share but for their seed. Statistic: mean over runs of the correlation of a run's feature
prewhitened residuals with its own prewhitened residuals of the loss. Null: the same with the runs of a configuration
paired at random. What all runs of a configuration share (the schedule, the clock, the warm-up) is the same in every
pairing and cancels, so that no segment of the training is barred.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from toposcale.statistics.coefficients import Floats, average_ranks, orthogonal_to, pearson
from toposcale.statistics.permutations import DRAWS, share_as_extreme, within_configurations

MIN_SEEDS = 8
"""A configuration with fewer runs is not tested: its pairings are too few for a p-value that survives many tests."""


@dataclass(frozen=True)
class RunPermutation:
    """Mean correlation of runs with themselves (...), mean over all pairings (...), two-sided p-value (...).

    n_permutations: pairings that were counted; exact: whether these are all.
    """

    correlation: Floats
    null_expectation: Floats
    p: Floats
    n_permutations: int
    exact: bool


def pair_correlations(x: ArrayLike, y: ArrayLike, controls: ArrayLike | None = None) -> Floats:
    """Spearman correlations of run i's features with run j's metrics: x (R, S, m), y (R, M, m) -> (S, M, R, R).

    controls (R, C, m), with the trend: y of a run is orthogonal to its own controls already. The features that it is
    paired with are made so here, whichever run they are of; else a run's own pairing alone would have lost those
    dimensions, and would spread more than the others. NaN where a series is constant or has a NaN.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    runs, n_features, m = first.shape
    rows = first.reshape(-1, m)
    correlations = np.full((n_features, second.shape[1], runs, runs), np.nan)
    for j in range(runs):
        left = rows if controls is None else orthogonal_to(rows, np.asarray(controls, dtype=np.float64)[j])[0]
        left, right = average_ranks(left), average_ranks(second[j])
        usable, complete = np.isfinite(left).all(axis=1), np.isfinite(right).all(axis=1)
        values = np.full((len(left), len(right)), np.nan)
        if usable.any() and complete.any():
            values[np.ix_(usable, complete)] = pearson(left[usable], right[complete])
        correlations[:, :, :, j] = values.reshape(runs, n_features, -1).transpose(1, 2, 0)
    return correlations


def permute_pairs(
    correlations: ArrayLike, configurations: Sequence[object], *, draws: int = DRAWS, seed: int = 0
) -> RunPermutation:
    """The test from the correlations (..., R, R) of run i's feature with run j's metric.

    Two-sided: how far the mean over the diagonal lies from the mean over all pairings. NaN where a correlation within a
    configuration is NaN. ValueError where `configurations` does not name a configuration for each run.
    """
    table = np.asarray(correlations, dtype=np.float64)
    runs = table.shape[-1]
    if len(configurations) != runs or table.shape[-2] != runs:
        raise ValueError(f"configurations: {len(configurations)} of them for correlations of shape {table.shape}")
    partners, exact = within_configurations(configurations, draws=draws, seed=seed)
    flat = table.reshape(-1, runs, runs)
    means = np.zeros((len(partners), len(flat)))
    for run in range(runs):  # one run at a time keeps the memory at (pairings, tests)
        means += flat[:, run, :].T[partners[:, run]] / runs
    by_test = means[0], means.mean(axis=0), share_as_extreme(means)
    correlation, null_expectation, p = (values.reshape(table.shape[:-2]) for values in by_test)
    return RunPermutation(correlation, null_expectation, p, len(partners), exact)
