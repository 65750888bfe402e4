"""The published scaling law as the law of a run that has not started: it reads no curve and knows no schedule."""

from collections.abc import Sequence

import numpy as np

from toposcale.laws.chinchilla import published_surface
from toposcale.laws.joint import Joint
from toposcale.runs.training_run import Target, TrainingRun

LEVEL_SCATTER, END_SCATTER = 0.34, 0.106
"""Standard deviations, nats, around the published surface: what the runs of a family share (text, tokenizer), and that of
each end. 21 of 22 published families lie within 1.96 of the first, 95% of the differences of 845 published pairs of ends
within 1.96 of the second."""


class PublishedLaw(Joint):
    """Joint law without a run: Hoffmann et al. 2022 (arXiv 2203.15556) with the scatter of published runs around it."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[TrainingRun] = []
        self.discrepancy_now = 0.0

    def predict(self, targets: Sequence[Target]) -> tuple[np.ndarray, np.ndarray]:
        """Return the losses (n_targets,), nats per token, and their covariance (n_targets, n_targets)."""
        losses = [published_surface(end.n_parameters, end.step * end.tokens_per_step) for end in targets]
        return np.array(losses), np.diag(np.full(len(losses), END_SCATTER**2)) + LEVEL_SCATTER**2

    def compare(self, targets: Sequence[Target], _reference: int) -> tuple[np.ndarray, np.ndarray]:
        """Return `predict`: what all targets share cancels in their differences."""
        return self.predict(targets)
