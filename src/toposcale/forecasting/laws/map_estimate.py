"""MAP estimate by nonlinear least squares."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.optimize import least_squares

MOST_EVALUATIONS, TOLERANCE = 400, 1e-6
"""With a tolerance of 1e-8 forecasts move by at most 0.0002 nats."""


def mode(terms: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], start: np.ndarray) -> np.ndarray:
    """Return the parameters (k,) of the least sum of squared residuals, by Levenberg and Marquardt's method.

    terms: parameters (k,) -> residuals (n,) and their Jacobian (n, k), both finite everywhere, n at least k.
    """

    @lru_cache(maxsize=1)
    def at(key: bytes) -> tuple[np.ndarray, np.ndarray]:
        return terms(np.frombuffer(key))  # residuals and slopes of one point are asked for one after the other

    limits = dict.fromkeys(("ftol", "xtol", "gtol"), TOLERANCE) | {"max_nfev": MOST_EVALUATIONS}
    solution = least_squares(lambda x: at(x.tobytes())[0], start, lambda x: at(x.tobytes())[1], method="lm", **limits)
    return np.asarray(solution.x)
