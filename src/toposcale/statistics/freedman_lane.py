"""Does a feature early in training tell which run of a configuration ends lower, beyond what its loss tells by then?

Each configuration is fitted by itself, with a mean and slopes of its own for the controls, and gives one partial
correlation of the outcome with the feature. So the runs of a configuration are told apart in units of their own spread,
and no configuration decides because it spreads more. The statistic is the mean over configurations, weighted by the
degrees of freedom.

Permutations of the residuals within configurations (Freedman and Lane 1983): the outcome is fitted by the controls of
its configuration, its residuals are permuted among the runs of the configuration, and the partial correlations are
computed again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.statistics.coefficients import Floats, as_series, is_constant, orthogonal_to, unit_rows
from toposcale.statistics.permutations import DRAWS, blocks_within_configurations, share_as_extreme

MIN_DEGREES_OF_FREEDOM = 3
"""Degrees of freedom that the controls must leave in a configuration; a configuration with fewer is left out."""


@dataclass(frozen=True)
class BetweenRuns:
    """Mean partial correlations (S,) and two-sided p-values (S,), NaN where nothing is left of a feature in any
    configuration.

    degrees_of_freedom: runs less controls, mean and one, summed over the n_configurations configurations that were
    tested, which have n_runs runs; n_permutations: those counted; exact: whether these are all.
    """

    correlation: Floats
    p: Floats
    degrees_of_freedom: int
    n_runs: int
    n_configurations: int
    n_permutations: int
    exact: bool


def between_runs(
    x: ArrayLike,
    y: ArrayLike,
    configurations: Sequence[object],
    controls: ArrayLike | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> BetweenRuns:
    """The test of S features x (S, R) against an outcome y (R,) of R runs, given their configurations and controls (C, R).

    A control that is constant within a configuration costs no degree of freedom there. ValueError where the arguments
    do not name the same runs.
    """
    features, outcome = as_series(x, "x"), as_series(y, "y")
    runs = outcome.shape[1]
    controls_of_runs = as_series(controls, "controls") if controls is not None else np.zeros((0, runs))
    counts = features.shape[1], runs, len(configurations), controls_of_runs.shape[1]
    if len(set(counts)) > 1:
        raise ValueError("x, y, configurations and controls: {}, {}, {} and {} runs".format(*counts))
    fitted = [
        fit_of_configuration(
            features, outcome, controls_of_runs, np.flatnonzero([configuration == other for other in configurations])
        )
        for configuration in dict.fromkeys(configurations)
    ]
    tested = [
        configuration
        for configuration in fitted
        if configuration.degrees_of_freedom >= MIN_DEGREES_OF_FREEDOM and configuration.residuals.any()
    ]
    if not tested:
        nothing = np.full((2, len(features)), np.nan)
        return BetweenRuns(nothing[0], nothing[1], 0, 0, 0, 0, False)
    weights = sum(configuration.degrees_of_freedom * configuration.features.any(axis=1) for configuration in tested)
    labels = np.repeat(np.arange(len(tested)), [len(configuration.residuals) for configuration in tested])
    parts, exact = [], False
    for orders, all_of_them in blocks_within_configurations(labels.tolist(), draws=draws, seed=seed):
        total = np.zeros((len(orders), len(features)))
        for index, configuration in enumerate(tested):
            members = np.flatnonzero(labels == index)
            total += configuration.degrees_of_freedom * configuration.correlations(
                configuration.residuals[orders[:, members] - members[0]]
            )
        parts.append(total)
        exact = all_of_them
    statistics = np.concatenate(parts)
    with np.errstate(invalid="ignore", divide="ignore"):
        statistics = statistics / weights
    p, degrees_of_freedom = (
        share_as_extreme(statistics),
        sum(configuration.degrees_of_freedom for configuration in tested),
    )
    return BetweenRuns(statistics[0], p, degrees_of_freedom, len(labels), len(tested), len(statistics), exact)


class ConfigurationFit(NamedTuple):
    """One configuration of n runs: the fit by its mean and controls (k, n), and what that leaves.

    features (S, n): of length 1, zeros where nothing is left; residuals (n,) of the outcome; degrees_of_freedom: n less
    rank and one.
    """

    design: Floats
    features: Floats
    residuals: Floats
    degrees_of_freedom: int

    def correlations(self, outcomes: Floats) -> Floats:
        """Partial correlations (P, S) of outcomes (P, n), of which the fit takes its part first."""
        return unit_rows(orthogonal_to(outcomes, self.design)[0]) @ self.features.T


def fit_of_configuration(
    features: Floats, outcome: Floats, controls: Floats, runs: NDArray[np.int64]
) -> ConfigurationFit:
    """The fit of the runs of one configuration: features (S, R), outcome (1, R), controls (C, R)."""
    kept = controls[:, runs]
    kept = kept[~is_constant(kept)]
    # Without their mean, so that the fit is well conditioned.
    design = np.vstack([np.ones((1, len(runs))), kept - kept.mean(axis=1, keepdims=True)])
    rest, rank = orthogonal_to(outcome[:, runs], design)
    left, _ = orthogonal_to(features[:, runs], design)
    left[is_constant(features[:, runs])] = 0.0
    return ConfigurationFit(design, unit_rows(left), rest[0], len(runs) - rank - 1)
