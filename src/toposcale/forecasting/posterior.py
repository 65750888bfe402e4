"""The most plausible parameters of a law: nonlinear least squares of what it leaves and of what was believed beforehand."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.optimize import least_squares

MOST_EVALUATIONS = 400


def mode(terms: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], start: np.ndarray) -> np.ndarray:
    """(k,) parameters with the least sum of squared residuals, by Levenberg and Marquardt's method.

    terms: parameters (k,) -> residuals (n,) and their Jacobian (n, k), both finite everywhere, n at least k.
    """

    @lru_cache(maxsize=1)
    def at(key: bytes) -> tuple[np.ndarray, np.ndarray]:
        return terms(np.frombuffer(key))  # residuals and slopes of one point are asked for one after the other

    solution = least_squares(
        lambda x: at(x.tobytes())[0], start, lambda x: at(x.tobytes())[1], method="lm", max_nfev=MOST_EVALUATIONS
    )
    return np.asarray(solution.x)
