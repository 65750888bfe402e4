"""Test whether residuals of a feature follow the loss of their own run more than the losses of runs with other seeds.

What all runs of a configuration share (schedule, warm-up, steps) is the same in every pairing and cancels, so that no
checkpoints need to be left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.statistics.coefficients import Floats, as_series, average_ranks, orthogonal_to, pearson
from toposcale.statistics.freedman_lane import DRAWS, blocks_within_configurations, share_as_extreme
from toposcale.statistics.prewhitening import max_order, trend


@dataclass(frozen=True)
class RunPermutation:
    """Result of `permute_pairs`: mean correlation of runs with themselves, over all pairings, and p-values (...)."""

    correlation: Floats
    null_expectation: Floats
    p: Floats
    n_permutations: int
    exact: bool


def within_configurations(
    configurations: Sequence[object], *, draws: int = DRAWS, seed: int = 0
) -> tuple[NDArray[np.int64], bool]:
    """Return all blocks of `blocks_within_configurations` in one, and whether these are all permutations."""
    blocks = list(blocks_within_configurations(configurations, draws=draws, seed=seed))
    return np.concatenate([orders for orders, _ in blocks]), blocks[0][1]


def pair_correlations(x: ArrayLike, y: ArrayLike, controls: ArrayLike | None = None) -> Floats:
    """Return Spearman correlations (S, M, R, R) of run i's features x (R, S, m) with run j's metrics y (R, M, m).

    controls (R, C, m): y of a run is orthogonal to its own already; every feature that it is paired with is made so
    here, or a run's own pairing alone would have lost these dimensions. NaN where a series is constant or has a NaN.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    runs, n_features, m = first.shape
    rows = first.reshape(-1, m)
    correlations = np.full((n_features, second.shape[1], runs, runs), np.nan)
    for j in range(runs):
        features = rows if controls is None else orthogonal_to(rows, np.asarray(controls, dtype=np.float64)[j])[0]
        features, metrics = average_ranks(features), average_ranks(second[j])
        has_features, has_metrics = np.isfinite(features).all(axis=1), np.isfinite(metrics).all(axis=1)
        values = np.full((len(features), len(metrics)), np.nan)
        if has_features.any() and has_metrics.any():
            values[np.ix_(has_features, has_metrics)] = pearson(features[has_features], metrics[has_metrics])
        correlations[:, :, :, j] = values.reshape(runs, n_features, -1).transpose(1, 2, 0)
    return correlations


def lagged(controls: ArrayLike) -> Floats:
    """Return trend and controls (C, T) at the lags that `prewhiten` may use, at the points of its residuals."""
    control_rows = as_series(controls, "controls")
    n, start = control_rows.shape[1], max_order(control_rows.shape[1])
    return np.vstack([trend(n)[:3, start:], *(control_rows[:, start - lag : n - lag] for lag in range(start + 1))])


def permute_pairs(
    correlations: ArrayLike, configurations: Sequence[object], *, draws: int = DRAWS, seed: int = 0
) -> RunPermutation:
    """Test whether runs correlate with themselves more than with other runs of their configuration.

    The statistic is the mean over runs of the correlation of a run's feature with its own metric. The null distribution
    pairs the runs of a configuration at random.

    Parameters
    ----------
    correlations : array_like of shape (..., R, R)
        Correlation of the feature of run i with the metric of run j, for one or more tests.
    configurations : sequence of length R
        Configuration of each run.
    draws : int
        Random pairings where there are more than 50,000 of them; else all are counted.
    seed : int
        Seed of the random pairings.

    Returns
    -------
    RunPermutation
        `correlation`, `null_expectation` (its mean over pairings) and two-sided `p` of shape (...); `n_permutations`, and
        whether these are all (`exact`). NaN where a correlation within a configuration is NaN.

    Raises
    ------
    ValueError
        If `configurations` does not name one for each run.

    Examples
    --------
    Of the six pairings of three runs, none but their own is as far from the mean of 1/3.

    >>> from studies.run_permutation import permute_pairs
    >>> test = permute_pairs([[1, 0, 0], [0, 1, 0], [0, 0, 1]], ["small"] * 3)
    >>> float(test.correlation), round(float(test.null_expectation), 4), round(float(test.p), 4)
    (1.0, 0.3333, 0.1667)
    """
    table = np.asarray(correlations, dtype=np.float64)
    runs = len(configurations)
    if runs == 0 or table.shape[-2:] != (runs, runs):
        raise ValueError(f"configurations: {len(configurations)} of them for correlations of shape {table.shape}")
    partners, exact = within_configurations(configurations, draws=draws, seed=seed)
    flat = table.reshape(-1, runs, runs)
    means = np.zeros((len(partners), len(flat)))
    for run in range(runs):  # one run at a time keeps the memory at (pairings, tests)
        means += flat[:, run, :].T[partners[:, run]] / runs
    by_test = means[0], means.mean(axis=0), share_as_extreme(means)
    correlation, null_expectation, p = (values.reshape(table.shape[:-2]) for values in by_test)
    return RunPermutation(correlation, null_expectation, p, len(partners), exact)
