"""The joint law: what two laws of a family say, each believed as far as it told what was seen.

Published families agree on how a loss falls with the training time; families to come need not. So beside the law that was
learnt from them stands a slow one: a step counts as its learning rate, and the loss falls more slowly with it. Each counts
by its evidence (Hoeting et al. 1999, Bayesian model averaging); where the two disagree, the interval is wider.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np

from toposcale.io.errors import NoForecast
from toposcale.laws.family_law import FamilyLaw, Target, target_of
from toposcale.laws.prediction import Prediction
from toposcale.laws.priors import PUBLISHED, Prior, decades_away
from toposcale.runs.training_run import TrainingRun

MOST_SIZES, MOST_OF_A_SIZE = 8, 2
"""Other sizes that are read, the nearest ones, and runs of each size, the longest ones."""

SLOW_SHARE = 0.2
"""What the slow law counts before anything is seen."""

END_SCATTER = 0.015
"""Nats by which an end lies off all that its own curve says. With it the 95% intervals hold 93% of the ends of 240 random
laws on which nothing was chosen."""

FAR = 0.05
"""Nats for each decade by which a size lies outside those that were published: what is known of the law is known there."""


class Joint:
    """The law of a family: `fit` reads what is known of its runs, `predict` tells any size under any schedule."""

    def __init__(self, prior: Prior = PUBLISHED) -> None:
        self.prior = prior
        self.stretch = 1.0
        """By what its standard deviations are multiplied: more than 1 where its forecasts proved too sure."""

    def fit(self, trainings: Sequence[TrainingRun], of: TrainingRun | None = None) -> Self:
        """Fit to the losses of `of` (by default the largest and longest run) and of those of `trainings` that tell most.

        Finished runs whose learning rates are not known are left out where those of another run are. `runs`: those that
        were read; `laws`: the learnt law and the slow one; `weights`: what each counts; `misfit_now`: the standard
        deviation of the misfit of the curves at the last loss, nats. NoForecast: no loss.
        """
        usable = [run for run in trainings if run.has_begun]
        # What a finished run lost under rates that nobody knows says nothing of another schedule.
        if any(run.rates_known for run in (usable if of is None else [of, *usable])):
            usable = [run for run in usable if run.rates_known or not run.is_finished]
        about = of or max(usable, key=lambda run: (run.n_parameters, run.final_step, run.model), default=None)
        if about is None or not about.has_begun:
            raise NoForecast("it has no loss after the warm-up")
        self.runs = [about, *_chosen(about, usable)]
        shares = {self.prior: 1 - SLOW_SHARE, self.prior.slow: SLOW_SHARE}
        self.laws = [FamilyLaw(prior, self.runs) for prior, share in shares.items() if share]
        evidence = np.array([law.evidence for law in self.laws])
        weights = np.exp(evidence - evidence.max()) * [share for share in shares.values() if share]
        self.weights = weights / weights.sum()
        self.misfit_now = float(self.weights @ [law.misfit_now for law in self.laws])
        return self

    @property
    def n_sizes(self) -> int:
        """Sizes whose losses were read."""
        return len({run.n_parameters for run in self.runs})

    def predict(self, targets: Sequence[Target]) -> tuple[np.ndarray, np.ndarray]:
        """Losses (targets,) and their covariance (targets, targets): errors that candidates share cancel between them."""
        by_law = [law.predict(targets) for law in self.laws]
        losses = np.asarray(self.weights @ np.array([values for values, _ in by_law]))
        spread = np.diag([END_SCATTER**2 + (FAR * decades_away(target.n_parameters)) ** 2 for target in targets])
        for weight, (values, covariance) in zip(self.weights, by_law, strict=True):
            spread = spread + weight * (covariance + np.outer(values - losses, values - losses))
        return losses, spread * self.stretch**2

    def forecast(self, training: TrainingRun, step: int | None = None) -> Prediction:
        """The loss at the end, or at a step, of a run under its plan."""
        values, covariance = self.predict([target_of(training, step)])
        return Prediction.of(float(values[0]), float(np.sqrt(covariance[0, 0])))


def _chosen(about: TrainingRun, known: Sequence[TrainingRun]) -> list[TrainingRun]:
    """Of each of the sizes nearest to that of `about` the longest runs."""
    by_size: dict[int, list[TrainingRun]] = {}
    for run in sorted(known, key=lambda run: (-run.last_step * run.tokens_per_step, run.model)):
        if run.model != about.model:
            by_size.setdefault(run.n_parameters, []).append(run)
    nearest = sorted(by_size, key=lambda size: (abs(np.log(size / about.n_parameters)), size))
    return [run for size in nearest[: MOST_SIZES + 1] for run in by_size[size][:MOST_OF_A_SIZE]]
