"""The functional scaling law of Li et al. 2025 (arXiv 2509.19189), for runs of one size."""

import numpy as np

from toposcale.forecasting.laws.schedule_law import RateChanges, ScheduleLaw


class FunctionalScalingLaw(ScheduleLaw):
    """Functional scaling law of one size: L = L0 + A T^-s + B times a convolution of the rate with a forgetting kernel.

    T is the intrinsic time, the sum of the rates. The noise of the rate eta(z) at intrinsic time z is forgotten as
    (1 + (T - z) / unit)^-(2 - 1 / beta); for a rate of pieces its integral is a sum over their changes.

    Parameters
    ----------
    unit : float, default=200
        Intrinsic time in which noise begins to be forgotten, in steps at the peak rate.
    beta : float, default=2
        Capacity exponent, above 1.

    References
    ----------
    Li et al. 2025, arXiv 2509.19189.
    """

    def __init__(self, unit: float = 200.0, beta: float = 2.0) -> None:
        self.unit, self.beta = unit, beta

    def term(self, rates: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return the convolution less that of a constant rate, in units of a full decay that has taken effect."""
        total, changes = np.cumsum(rates), RateChanges.of(rates)
        elapsed = np.maximum(total[steps][:, None] - total[changes.steps - 1][None, :], 0.0)
        forgotten = 1 - (1 + elapsed / self.unit) ** -(1 - 1 / self.beta)
        return np.asarray(np.einsum("ij,j->i", forgotten, changes.sizes))
