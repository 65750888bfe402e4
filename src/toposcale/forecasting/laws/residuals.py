"""Errors of a fit by its residuals: the quantile of Student's t, and the inflation of a variance."""

import numpy as np
from scipy.special import stdtrit

from toposcale.forecasting.laws.prediction import CONFIDENCE


def student_t(degrees_of_freedom: float) -> float:
    """Return the two-sided 95% quantile of Student's t; infinite without a degree of freedom."""
    return float(stdtrit(degrees_of_freedom, 0.5 + CONFIDENCE / 2)) if degrees_of_freedom > 0 else np.inf


def variance_inflation(residuals: np.ndarray, parameters: int) -> float:
    """Return (1 + r) / (1 - r), the points per independent point of an AR(1) series; r is kept between 0 and 0.9.

    r is the lag-1 autocorrelation of the residuals of a fit, freed of its bias of about -(parameters + 3 r) / n.
    """
    points, power = len(residuals), float(np.sum(residuals**2))
    if points <= parameters or points <= 3 or power <= 0:
        return 1.0
    lag = float(np.sum(residuals[1:] * residuals[:-1])) / power
    lag = float(np.clip((lag + parameters / points) / (1 - 3 / points), 0.0, 0.9))
    return (1 + lag) / (1 - lag)
