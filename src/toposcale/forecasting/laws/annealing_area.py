"""The scaling law with learning-rate annealing of Tissue et al. 2024 (arXiv 2408.11029)."""

import numpy as np

from toposcale.forecasting.laws.schedule_law import RateChanges, ScheduleLaw


class AnnealingArea(ScheduleLaw):
    """Scaling law with learning-rate annealing: L = L0 + A S1^-alpha - C S2.

    S2(s) is the sum over steps i up to s of the momentum m_i = decay m_(i-1) + (eta_(i-1) - eta_i) of the rate's decreases.

    Parameters
    ----------
    decay : float, default=0.999
        Decay of the momentum for each step.

    References
    ----------
    Tissue et al. 2024, arXiv 2408.11029.
    """

    def __init__(self, decay: float = 0.999) -> None:
        self.decay = decay

    def term(self, rates: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return minus S2, in units of a full decay that has taken effect."""
        changes = RateChanges.of(rates)
        elapsed = np.maximum(steps[:, None] - changes.steps[None, :] + 1.0, 0.0)
        return np.asarray(np.einsum("ij,j->i", 1 - self.decay**elapsed, changes.sizes))
