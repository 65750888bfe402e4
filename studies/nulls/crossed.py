"""Features of one run against the losses of another run of its configuration: every pair at once, on arrays.

Runs of a configuration share schedule and size; seed and order of the text differ. The norms, and what else a test
holds fixed, go with the features. Whatever a test finds there is a false positive. The tests are those of
`toposcale.analysis`; only the bookkeeping of tables is left out, and tests/studies/test_nulls.py holds both against each
other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from studies.nulls.configurations import Configuration
from studies.run_permutation import lagged, permute_pairs
from toposcale.analysis.controls import Control
from toposcale.statistics.coefficients import Floats, average_ranks, orthogonal_to, pearson
from toposcale.statistics.prewhitening import prewhiten, residual_test, sign_flip_p_value, with_squares

_PERMUTED_TOGETHER = 100
"""Tests of the run permutation that are made at a time, to spare memory."""


class Tested(NamedTuple):
    """p (D, F) of D draws and F features, and the runs that each draw took (D, n)."""

    p: Floats
    runs: NDArray[np.int64]


class CrossedResiduals:
    """The tests of prewhitened residuals of F features of each of R runs against the losses of each.

    products (R, R, F, m) and statistics (R, R, F): of the features of the first run and the losses of the second.
    """

    def __init__(self, configuration: Configuration, features: Sequence[str], control: Control) -> None:
        products, statistics = [], []
        for values, controls in _of_runs(configuration, features, control):
            test = residual_test(values, configuration.losses, controls)
            products.append(test.products.swapaxes(0, 1))
            statistics.append(test.statistic.T)
        self.products, self.statistics = np.array(products), np.array(statistics)

    def every_pair(self) -> Tested:
        """One run at a time: each of the R (R - 1) pairs."""
        runs = np.array(np.nonzero(~np.eye(len(self.products), dtype=bool))).T
        return self._tested(runs, 1)

    def together(self, size: int, draws: int, seed: int = 0) -> Tested:
        """So many runs together, as configurations of their own: features of `size` runs, losses of as many others."""
        return self._tested(_draws(len(self.products), 2 * size, draws, seed), size)

    def _tested(self, runs: NDArray[np.int64], size: int) -> Tested:
        pairs = runs[:, :size], runs[:, size:]
        products, statistics = self.products[pairs].sum(axis=1), self.statistics[pairs].sum(axis=1)
        return Tested(sign_flip_p_value(statistics, products), runs)


def run_permutations(
    configuration: Configuration, features: Sequence[str], control: Control, size: int, draws: int, seed: int = 0
) -> Tested:
    """The run permutation of configurations of `size` crossed runs."""
    tests = list(_of_runs(configuration, features, control))
    residuals = [prewhiten(values, controls).values for values, controls in tests]
    stacked = np.concatenate(residuals)
    shape = len(residuals), len(features), len(residuals)
    correlations = np.empty((len(residuals), *shape))
    for index, (_, controls) in enumerate(tests):
        losses = prewhiten(configuration.losses, controls).values
        rest = orthogonal_to(stacked, lagged(controls))[0]
        correlations[index] = pearson(average_ranks(rest), average_ranks(losses)).reshape(shape)
    runs = _draws(len(residuals), 2 * size, draws, seed)
    first, second = runs[:, :size], runs[:, size:]
    # (D, index of the losses, index of the features, F): the features of a run against the losses of a crossed one.
    chosen = correlations[first[:, :, None], first[:, None, :], :, second[:, :, None]]
    tables = chosen.transpose(0, 3, 2, 1).reshape(-1, size, size)
    p = [
        permute_pairs(tables[start : start + _PERMUTED_TOGETHER], ["one"] * size).p
        for start in range(0, len(tables), _PERMUTED_TOGETHER)
    ]
    return Tested(np.concatenate(p).reshape(draws, len(features)), runs)


def _of_runs(
    configuration: Configuration, features: Sequence[str], control: Control
) -> Iterator[tuple[Floats, Floats]]:
    """Of each run: features (F, T), and what is held fixed, with squares."""
    for run in range(len(configuration.losses)):
        covariates = np.array([configuration.series[name][run] for name in dict.fromkeys(control.of_model)])
        yield np.array([configuration.series[name][run] for name in features]), with_squares(covariates)


def _draws(runs: int, size: int, draws: int, seed: int) -> NDArray[np.int64]:
    """Draws (D, size) of different runs."""
    random = np.random.default_rng([seed, size])
    return random.permuted(np.tile(np.arange(runs), (draws, 1)), axis=1)[:, :size]


def rates(found: NDArray[np.bool_], runs: NDArray[np.int64], n_runs: int) -> tuple[Floats, Floats]:
    """Share of draws (D, F) that find something, and its standard error over runs.

    Draws of one configuration share its runs, so the error is that of a jackknife that leaves out a run at a time, less
    what the number of draws adds to it; never less than that of independent draws.
    """
    values = found.astype(np.float64)
    without = np.ones((len(values), n_runs), dtype=bool)
    without[np.arange(len(values))[:, None], runs] = False
    count = without.sum(axis=0)[:, None]
    left = (without.T.astype(np.float64) @ values) / count
    share, spread = values.mean(axis=0), values.var(axis=0)
    variance = (n_runs - 1) / n_runs * ((left - share) ** 2).sum(axis=0)
    of_draws = (n_runs - 1) / n_runs * (spread * (1 / count - 1 / len(values))).sum(axis=0)
    return share, np.sqrt(np.maximum(variance - of_draws, spread / len(values)))
