"""Corrections of p-values for the number of tests; NaN stands for a test that was not made."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from toposcale.statistics.coefficients import Floats


def holm(p_values: ArrayLike) -> Floats:
    """Adjust p-values for the family-wise error rate by the method of Holm [1]_.

    Parameters
    ----------
    p_values : array_like
        p-values in [0, 1], of any shape; NaN for a test that was not made.

    Returns
    -------
    ndarray of float64
        max over p_j <= p_i of (m - rank(p_j) + 1) p_j, at most 1, for the m that are not NaN; NaN stays NaN.

    Raises
    ------
    ValueError
        If a value lies outside [0, 1].

    References
    ----------
    .. [1] Holm, "A simple sequentially rejective multiple test procedure", 1979.

    Examples
    --------
    >>> from toposcale.statistics import holm
    >>> holm([0.01, 0.04, 0.03, float("nan")])
    array([0.03, 0.06, 0.06,  nan])
    """

    def adjusted(p: Floats) -> Floats:
        order = np.argsort(p, kind="stable")
        steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
        return np.minimum(steps, 1.0)[np.argsort(order, kind="stable")]

    return _adjust_finite(p_values, adjusted)


def benjamini_hochberg(p_values: ArrayLike) -> Floats:
    """Adjust p-values for the false discovery rate by the method of Benjamini and Hochberg [1]_.

    Parameters
    ----------
    p_values : array_like
        p-values in [0, 1], of any shape; NaN for a test that was not made.

    Returns
    -------
    ndarray of float64
        q-values: min over p_j >= p_i of m p_j / rank(p_j), for the m that are not NaN; NaN stays NaN.

    Raises
    ------
    ValueError
        If a value lies outside [0, 1].

    References
    ----------
    .. [1] Benjamini and Hochberg, "Controlling the false discovery rate", 1995.

    Examples
    --------
    >>> from toposcale.statistics import benjamini_hochberg
    >>> benjamini_hochberg([0.01, 0.04, 0.03])
    array([0.03, 0.04, 0.04])
    """
    from scipy.stats import false_discovery_control  # slow to import: see docs/performance.md

    return _adjust_finite(p_values, false_discovery_control)


def _adjust_finite(p_values: ArrayLike, adjust: Callable[[Floats], Floats]) -> Floats:
    p = np.array(p_values, dtype=np.float64)
    if np.any((p < 0) | (p > 1)):
        raise ValueError("p_values: not all within 0 and 1")
    is_tested = np.isfinite(p)
    if is_tested.any():
        p[is_tested] = adjust(p[is_tested])
    return p
