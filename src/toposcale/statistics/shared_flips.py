"""One test of prewhitened residuals for several runs together: a checkpoint's sign is flipped in all of them at once."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from toposcale.statistics.coefficients import Floats
from toposcale.statistics.prewhitening import ResidualTest, sign_flip_p_value


class SharedFlips:
    """Sum of the tests of runs, for `n_pairs` pairs of a feature and a metric.

    Runs that share batches and learning rates are dependent; shared flips keep that dependence.
    """

    def __init__(self, n_pairs: int, steps: ArrayLike) -> None:
        self._steps = np.unique(np.asarray(steps, dtype=np.float64))
        self._products = np.zeros((n_pairs, len(self._steps)))
        self._statistics = np.zeros(n_pairs)

    def add(self, test: ResidualTest, steps: ArrayLike, *, rows: Any = slice(None), weight: float = 1.0) -> None:
        """Add the test of a run at `rows` of the pairs; steps (T,): all its checkpoints."""
        columns = np.searchsorted(self._steps, np.asarray(steps, dtype=np.float64)[test.start :])
        products = weight * np.nan_to_num(test.products).reshape(-1, test.products.shape[-1])
        self._products[np.ix_(np.arange(len(self._products))[rows], columns)] += products
        self._statistics[rows] += weight * np.nan_to_num(test.statistic).ravel()

    def p_values(self) -> Floats:
        """Return the p-values (n_pairs,), NaN for a pair that no run could test."""
        p_values = sign_flip_p_value(self._statistics, self._products)
        return np.where((self._products != 0).any(axis=1), p_values, np.nan)
