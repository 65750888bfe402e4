"""The published scaling law as the law of a run that has not started: it reads no curve and knows no schedule."""

from collections.abc import Sequence

import numpy as np

from toposcale.laws.chinchilla import published_surface
from toposcale.laws.joint import Joint
from toposcale.runs.training_run import Target, TrainingRun

LEVEL_SCATTER, RUN_SCATTER = 0.34, 0.106
"""Standard deviations around the published surface, nats: the one that the runs of a family share (text, tokenizer), and
the one of each run. The 95% intervals cover 21 of 22 published families, and 95% of the differences between 845 published
pairs of ends."""


class PublishedLaw(Joint):
    """Joint law without a run: Hoffmann et al. 2022 (arXiv 2203.15556) with the scatter of published runs around it."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[TrainingRun] = []
        self.discrepancy_now = 0.0

    def predict(self, targets: Sequence[Target]) -> tuple[np.ndarray, np.ndarray]:
        """Return the losses (n_targets,), nats per token, and their covariance (n_targets, n_targets)."""
        losses = [published_surface(end.n_parameters, end.step * end.tokens_per_step) for end in targets]
        return np.array(losses), np.diag(np.full(len(losses), RUN_SCATTER**2)) + LEVEL_SCATTER**2

    def compare(self, targets: Sequence[Target], _reference: int) -> tuple[np.ndarray, np.ndarray]:
        """Return `predict`: what all targets share cancels in their differences."""
        return self.predict(targets)
