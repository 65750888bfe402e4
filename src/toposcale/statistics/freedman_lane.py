"""Test whether a feature predicts which run of a configuration ends lower: partial correlations with permuted residuals.

Each configuration has a mean and slopes of its own for the controls, and gives one partial correlation, so that none
decides because its runs spread more.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, permutations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.statistics.coefficients import Floats, as_series, is_constant, orthogonal_to, unit_rows

MAX_EXACT = 50_000
"""Most permutations that are all counted: a configuration of eight runs has 40,320."""
DRAWS = 10_000
"""Random permutations of a test where not all are counted."""
_BLOCK = 10_000


def members_of(configurations: Sequence[object]) -> list[NDArray[np.int64]]:
    """Return the indices of the runs of each configuration."""
    return [np.flatnonzero([label == name for label in configurations]) for name in dict.fromkeys(configurations)]


def blocks_within_configurations(
    configurations: Sequence[object], *, draws: int = DRAWS, seed: int = 0
) -> Iterator[tuple[NDArray[np.int64], bool]]:
    """Yield permutations (P, R) of R runs that leave every run in its configuration, and whether these are all, in blocks.

    The first is the identity. Beyond `MAX_EXACT` the others are `draws` random ones, so that a share of the rows is a valid
    p-value (Phipson and Smyth 2010); the first rows do not depend on the number of draws.
    """
    members = members_of(configurations)
    count = math.prod(math.factorial(len(runs)) for runs in members)
    if count <= MAX_EXACT:
        table = np.empty((count, len(configurations)), dtype=np.int64)
        table[:, np.concatenate(members)] = [[*chain(*orders)] for orders in product(*map(permutations, members))]
        yield table, True
        return
    random = np.random.default_rng(seed)
    identity = np.arange(len(configurations))[None]
    yield identity, False
    for start in range(0, draws, _BLOCK):
        table = np.tile(identity, (min(_BLOCK, draws - start), 1))
        for runs in members:
            table[:, runs] = random.permuted(table[:, runs], axis=1)
        yield table, False


def share_as_extreme(statistics: ArrayLike) -> Floats:
    """Return two-sided p-values of the first of P statistics (P, ...): the share that lies as far from the mean."""
    values = np.asarray(statistics, dtype=np.float64)
    distance = np.abs(values - values.mean(axis=0))
    # Equal permutations differ only by rounding; they count as equal.
    extreme = distance >= distance[0] - 1e-9 * np.maximum(np.abs(values).max(axis=0), 1e-300)
    return np.where(np.isfinite(values).all(axis=0), extreme.mean(axis=0), np.nan)


MIN_DEGREES_OF_FREEDOM = 3
"""Degrees of freedom that the controls must leave in a configuration; a configuration with fewer is left out."""


@dataclass(frozen=True)
class BetweenRuns:
    """Result of `between_runs`, NaN where nothing is left."""

    correlation: Floats  # (S,): mean partial correlations
    p: Floats  # (S,), two-sided
    degrees_of_freedom: int
    n_runs: int  # runs that were tested
    n_configurations: int
    n_permutations: int
    exact: bool  # True if these are all permutations


def between_runs(
    x: ArrayLike,
    y: ArrayLike,
    configurations: Sequence[object],
    controls: ArrayLike | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> BetweenRuns:
    """Test the partial correlation of features with an outcome over runs, given controls, within configurations.

    The statistic is the mean over configurations of the partial correlation, weighted by degrees of freedom (runs less
    controls, mean and one). The null distribution permutes the residuals of the outcome within configurations [1]_.

    Parameters
    ----------
    x : array_like of shape (S, R)
        S features of R runs.
    y : array_like of shape (R,)
        Outcome of each run, for example its final loss in nats per token.
    configurations : sequence of length R
        Configuration of each run; one with fewer than 3 degrees of freedom is left out.
    controls : array_like of shape (C, R), optional
        What is held fixed. One that is constant within a configuration costs no degree of freedom there.
    draws : int
        Random permutations where there are more than 50,000 of them; else all are counted.
    seed : int
        Seed of the random permutations.

    Returns
    -------
    BetweenRuns
        `correlation` and two-sided `p` of shape (S,), `degrees_of_freedom`, `n_runs`, `n_configurations`, `n_permutations`
        and whether these are all (`exact`).

    Raises
    ------
    ValueError
        If the arguments do not describe the same runs, or hold values that are not finite.

    References
    ----------
    .. [1] Freedman and Lane, "A nonstochastic interpretation of reported significance levels", 1983.

    Examples
    --------
    Of the 120 orders of five runs, two are as extreme as the given one: that one and its reverse.

    >>> from toposcale.statistics import between_runs
    >>> test = between_runs([[1, 2, 3, 4, 5]], [2, 4, 6, 8, 10], ["small"] * 5)
    >>> test.correlation.round(6), test.p.round(4), test.degrees_of_freedom
    (array([1.]), array([0.0167]), 3)
    """
    features, outcome = as_series(x, "x"), as_series(y, "y")
    runs = outcome.shape[1]
    controls_of_runs = as_series(controls, "controls") if controls is not None else np.zeros((0, runs))
    counts = features.shape[1], runs, len(configurations), controls_of_runs.shape[1]
    if len(set(counts)) > 1:
        raise ValueError("x, y, configurations and controls: {}, {}, {} and {} runs".format(*counts))
    fits = fitted_configurations(features, outcome, controls_of_runs, configurations)
    if not fits:
        nothing = np.full((2, len(features)), np.nan)
        return BetweenRuns(nothing[0], nothing[1], 0, 0, 0, 0, False)
    weights = sum(fit.degrees_of_freedom * fit.features.any(axis=1) for fit in fits)
    blocks, exact = [], False
    for correlations_of_fits, is_exhaustive in permuted_correlations(fits, draws=draws, seed=seed):
        total = np.zeros_like(correlations_of_fits[0])
        for fit, correlations in zip(fits, correlations_of_fits, strict=True):
            total += fit.degrees_of_freedom * correlations
        blocks.append(total)
        exact = is_exhaustive
    statistics = np.concatenate(blocks)
    with np.errstate(invalid="ignore", divide="ignore"):
        statistics = statistics / weights
    p, n_free = share_as_extreme(statistics), sum(fit.degrees_of_freedom for fit in fits)
    n_runs = sum(len(fit.residuals) for fit in fits)
    return BetweenRuns(statistics[0], p, n_free, n_runs, len(fits), len(statistics), exact)


class ConfigurationFit(NamedTuple):
    """Least-squares fit of n runs by mean and controls, and its residuals."""

    design: Floats  # (k, n): mean and controls
    features: Floats  # (S, n): residuals of the features, rows of length 1 or zeros
    residuals: Floats  # (n,): of the outcome
    degrees_of_freedom: int  # n less rank and one

    def correlations(self, outcomes: Floats) -> Floats:
        """Return the partial correlations (P, S) with outcomes (P, n), which are fitted first."""
        return unit_rows(orthogonal_to(outcomes, self.design)[0]) @ self.features.T


def fitted_configurations(
    features: Floats, outcome: Floats, controls: Floats, configurations: Sequence[object]
) -> list[ConfigurationFit]:
    """Fit each configuration with enough degrees of freedom: features (S, R), outcome (1, R), controls (C, R)."""
    fits = [fit_of_configuration(features, outcome, controls, runs) for runs in members_of(configurations)]
    return [fit for fit in fits if fit.degrees_of_freedom >= MIN_DEGREES_OF_FREEDOM and fit.residuals.any()]


def permuted_correlations(
    fits: Sequence[ConfigurationFit], *, draws: int, seed: int
) -> Iterator[tuple[list[Floats], bool]]:
    """Yield the partial correlations (P, S) of each configuration under P permutations, and whether these are all.

    The first permutation of all is the identity.
    """
    labels = np.repeat(np.arange(len(fits)), [len(fit.residuals) for fit in fits])
    members = [np.flatnonzero(labels == index) for index in range(len(fits))]
    for orders, is_exhaustive in blocks_within_configurations(labels.tolist(), draws=draws, seed=seed):
        permuted = zip(fits, (orders[:, runs] - runs[0] for runs in members), strict=True)
        yield [fit.correlations(fit.residuals[order]) for fit, order in permuted], is_exhaustive


def fit_of_configuration(
    features: Floats, outcome: Floats, controls: Floats, runs: NDArray[np.int64]
) -> ConfigurationFit:
    """Fit the given runs of features (S, R), outcome (1, R) and controls (C, R)."""
    varying = controls[:, runs]
    varying = varying[~is_constant(varying)]
    # Without their mean, so that the fit is well conditioned.
    design = np.vstack([np.ones((1, len(runs))), varying - varying.mean(axis=1, keepdims=True)])
    outcome_residuals, rank = orthogonal_to(outcome[:, runs], design)
    feature_residuals, _ = orthogonal_to(features[:, runs], design)
    feature_residuals[is_constant(features[:, runs])] = 0.0
    return ConfigurationFit(design, unit_rows(feature_residuals), outcome_residuals[0], len(runs) - rank - 1)
