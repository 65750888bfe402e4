"""Corrections of p-values for the number of tests; NaN stands for a test that could not be made."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from toposcale.statistics.coefficients import Floats


def holm(p_values: ArrayLike) -> Floats:
    """Adjusted p-values of Holm (1979): max over p_j <= p_i of (m - rank(p_j) + 1) p_j, at most 1.

    Of the m p-values that are not NaN; NaN stays NaN. Any shape.
    """

    def adjusted(p: Floats) -> Floats:
        order = np.argsort(p, kind="stable")
        steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
        return np.minimum(steps, 1.0)[np.argsort(order, kind="stable")]

    return _of_tested(p_values, adjusted)


def benjamini_hochberg(p_values: ArrayLike) -> Floats:
    """Adjusted p-values (q) of Benjamini and Hochberg (1995): min over p_j >= p_i of m p_j / rank(p_j).

    Of the m p-values that are not NaN; NaN stays NaN. Any shape.
    """
    from scipy.stats import false_discovery_control  # slow to import: see docs/performance.md

    return _of_tested(p_values, false_discovery_control)


def _of_tested(p_values: ArrayLike, adjust: Callable[[Floats], Floats]) -> Floats:
    p = np.array(p_values, dtype=np.float64)
    if np.any((p < 0) | (p > 1)):
        raise ValueError("p_values: not all within 0 and 1")
    tested = np.isfinite(p)
    if tested.any():
        p[tested] = adjust(p[tested])
    return p
