"""Bayesian average of two laws of a family, weighted by their marginal likelihood.

Published families agree on how a loss falls with the training time; families to come need not. So beside the law that was
learnt from them stands a second model (`Prior.second`), and where the two disagree, the interval is wider.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np

from toposcale.forecasting.laws.chinchilla import published_surface
from toposcale.forecasting.laws.family_law import FamilyLaw
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.laws.priors import PUBLISHED, Prior, decades_away
from toposcale.forecasting.runs.training_run import Target, TrainingRun
from toposcale.io.errors import NoForecast

MOST_SIZES, MOST_OF_A_SIZE = 8, 2
"""Other sizes that are read, the nearest ones, and other runs of each size, the longest ones."""

SECOND_WEIGHT = 0.2
"""Prior weight of the second model."""

END_SCATTER = 0.015
"""Standard deviation of an end around all that its own curve says, nats. The empirical coverage of the 95% intervals is
then 89% for 240 random laws on which nothing was chosen."""

OF_ONE_RUN = 0.982
"""Correlation of this scatter between ends of one run under several schedules: their differences scatter by 0.003 nats."""

SURFACE_SCATTER, ANY_LEVEL = 0.085, 10.0
"""Standard deviations of an end around the published surface, alone and as its family shares it, nats: of published
decisions 631 of 631 confident answers are right, and 69% of the clear ones are confident. It grows a hundredfold a decade
outside the published sizes."""

CALIBRATION = 0.9
"""Factor on the standard deviations for a run under way whose optimizer is stated, or of whose family another size is
finished. The mean interval score of the published runs is lowest at 0.6, but already at 0.8 the empirical coverage of one
group of decisions is 83%."""

FORECAST_POINTS = 48
"""Most points of a forecast curve."""

FAR = 0.05
"""Standard deviation added for each decade by which a size lies outside the published ones, nats."""


class Joint:
    """Joint law of a family of training runs: a Bayesian average of two laws, for any size under any schedule.

    Parameters
    ----------
    prior : Prior
        Prior of the constants, learnt from published families.

    Attributes
    ----------
    runs : list of TrainingRun
        Runs that were read, after `fit`; the first is the one that is decided on.
    laws : list of FamilyLaw
        The two fitted models.
    weights : ndarray of shape (2,)
        Posterior weights of the models.
    discrepancy_now : float
        Standard deviation of the model discrepancy at the last loss, nats.
    inflation, calibration : float
        Factors on the standard deviations of forecasts: 1 unless a check found them too small; `CALIBRATION` where the
        optimizer is stated or another size is finished.

    References
    ----------
    Hoeting et al. 1999 (Bayesian model averaging); Luo et al. 2025, arXiv 2503.12811 (multi-power law).

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.forecasting import Joint, LearningRateSchedule, RunMetadata, TrainingRun
    >>> steps = np.arange(100, 2001, 100)
    >>> run = TrainingRun(
    ...     RunMetadata("25M", 25_000_000, 500_000.0),
    ...     LearningRateSchedule(4000, np.full(4001, 1e-3)),
    ...     steps=steps,
    ...     losses=2.5 + 20 * steps**-0.5,
    ... )
    >>> law = Joint().fit([run])
    >>> end = law.forecast(run)
    >>> end.low < end.value < end.high < run.present_loss
    True
    >>> losses, covariance = law.predict([run.target(3000), run.target()])
    >>> losses.shape, covariance.shape
    ((2,), (2, 2))
    """

    def __init__(self, prior: Prior = PUBLISHED) -> None:
        self.prior = prior
        self.inflation = self.calibration = 1.0

    def fit(self, trainings: Sequence[TrainingRun], of: TrainingRun | None = None) -> Self:
        """Fit both models to a run and to its family.

        Finished runs whose learning rates are not known are left out where those of another run are.

        Parameters
        ----------
        trainings : sequence of TrainingRun
            Runs of the family; those of its own size and of the eight nearest other ones are read, two of each size.
        of : TrainingRun, optional
            The run that is decided on; by default the largest and longest one.

        Returns
        -------
        Joint
            Itself.

        Raises
        ------
        NoForecast
            If the run has no loss after the warm-up.
        """
        usable = [run for run in trainings if run.has_begun]
        # What a finished run lost under rates that nobody knows says nothing of another schedule.
        if any(run.rates_known for run in (usable if of is None else [of, *usable])):
            usable = [run for run in usable if run.rates_known or not run.is_finished]
        about = of or max(usable, key=lambda run: (run.n_parameters, run.final_step, run.model), default=None)
        if about is None or not about.has_begun:
            raise NoForecast("it has no loss after the warm-up")
        self.runs = [about, *_chosen(about, usable)]
        finished_sizes = {run.n_parameters for run in self.runs if run.is_finished} - {about.n_parameters}
        if (finished_sizes or about.metadata.optimizer) and not about.is_finished:
            self.calibration = CALIBRATION
        prior_weights = {self.prior: 1 - SECOND_WEIGHT, self.prior.second: SECOND_WEIGHT}
        self.laws = [FamilyLaw(prior, self.runs) for prior, weight in prior_weights.items() if weight]
        evidence = np.array([law.evidence for law in self.laws])
        weights = np.exp(evidence - evidence.max()) * [weight for weight in prior_weights.values() if weight]
        self.weights = weights / weights.sum()
        self.discrepancy_now = float(self.weights @ [law.discrepancy_now for law in self.laws])
        return self

    @property
    def n_sizes(self) -> int:
        """Number of sizes whose losses were read."""
        return len({run.n_parameters for run in self.runs})

    def predict(self, targets: Sequence[Target]) -> tuple[np.ndarray, np.ndarray]:
        """Predict losses jointly, so that errors that targets share cancel in their differences.

        Parameters
        ----------
        targets : sequence of Target
            Size, schedule and step of each loss.

        Returns
        -------
        losses : ndarray of shape (n_targets,)
            Nats per token.
        covariance : ndarray of shape (n_targets, n_targets)
            Nats squared.
        """
        by_law = [law.predict(targets) for law in self.laws]
        losses = np.asarray(self.weights @ np.array([values for values, _ in by_law]))
        names = np.array([target.model for target in targets])
        is_same = (names[:, None] == names) & (names != "")
        spread = END_SCATTER**2 * np.where(np.eye(len(names), dtype=bool), 1.0, OF_ONE_RUN * is_same)
        spread += np.diag([(FAR * decades_away(target.n_parameters)) ** 2 for target in targets])
        for weight, (values, covariance) in zip(self.weights, by_law, strict=True):
            spread = spread + weight * (covariance + np.outer(values - losses, values - losses))
        return losses, spread * (self.inflation * self.calibration) ** 2

    def compare(self, targets: Sequence[Target], reference: int) -> tuple[np.ndarray, np.ndarray]:
        """Predict losses for a comparison: the published scaling law is one more, noisy observation of their differences.

        Parameters
        ----------
        targets : sequence of Target
            Size, schedule and step of each loss.
        reference : int
            Index of the target whose own forecast stays as it is.

        Returns
        -------
        losses : ndarray of shape (n_targets,)
            Nats per token.
        covariance : ndarray of shape (n_targets, n_targets)
            Nats squared.
        """
        losses, covariance = self.predict(targets)
        surface = published_losses(targets)
        scatter = SURFACE_SCATTER * np.array([10 ** (2 * decades_away(end.n_parameters)) for end in targets])
        # The surface knows no schedule, so ends of one size after as many tokens are one observation.
        _, seen = np.unique(surface, return_index=True)
        noise = np.diag(scatter[seen] ** 2) + ANY_LEVEL**2
        weights = np.linalg.solve(covariance[np.ix_(seen, seen)] + noise, covariance[seen]).T
        updated, posterior = losses + weights @ (surface - losses)[seen], covariance - weights @ covariance[seen]
        # What all targets share decides nothing between them.
        updated += losses[reference] - updated[reference]
        posterior += covariance[reference, reference] - posterior[reference, reference]
        return updated, (posterior + posterior.T) / 2

    def forecast(self, training: TrainingRun, step: int | None = None) -> Prediction:
        """Forecast the loss of a run at the end of its schedule, or at a step.

        Parameters
        ----------
        training : TrainingRun
            A run of the family, which may not have started.
        step : int, optional
            By default the last one.

        Returns
        -------
        Prediction
            Loss in nats per token with its 95% interval.

        Raises
        ------
        NoForecast
            If the law gives no positive loss.
        """
        values, covariance = self.predict([training.target(step)])
        return Prediction.of(float(values[0]), float(np.sqrt(covariance[0, 0])))

    def forecast_curve(self, training: TrainingRun) -> list[tuple[int, Prediction]]:
        """Forecast the losses of a run from its next step to the end of its schedule.

        Parameters
        ----------
        training : TrainingRun
            A run of the family, which may not have started.

        Returns
        -------
        list of (int, Prediction)
            Up to `FORECAST_POINTS` steps, geometrically spaced, and their forecasts.
        """
        steps = np.geomspace(training.last_step + 1, training.final_step, FORECAST_POINTS)
        return [(int(step), self.forecast(training, int(step))) for step in np.unique(np.rint(steps))]


def _chosen(about: TrainingRun, known: Sequence[TrainingRun]) -> list[TrainingRun]:
    """Return the longest runs of the size of `about` and of each of the other sizes nearest to it."""
    by_size: dict[int, list[TrainingRun]] = {}
    for run in sorted(known, key=lambda run: (-run.last_step * run.tokens_per_step, run.model)):
        if run.model != about.model:
            by_size.setdefault(run.n_parameters, []).append(run)
    nearest = sorted(by_size, key=lambda size: (abs(np.log(size / about.n_parameters)), size))
    n_read = MOST_SIZES + (about.n_parameters in by_size)
    return [run for size in nearest[:n_read] for run in by_size[size][:MOST_OF_A_SIZE]]


def published_losses(targets: Sequence[Target]) -> np.ndarray:
    """Return the losses of the published surface, nats per token."""
    return np.array([published_surface(end.n_parameters, end.step * end.tokens_per_step) for end in targets])
