"""Bayesian average of two laws of a family, weighted by their marginal likelihood.

Published families agree on how the loss falls with the intrinsic training time; other families need not. The law is thus
averaged with a second model (`Prior.second_model`), and where the two disagree, the interval is wider.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np
from scipy.special import softmax

from toposcale.forecasting.laws import priors
from toposcale.forecasting.laws.family_law import FamilyLaw
from toposcale.forecasting.laws.law import JointForecast, Law
from toposcale.forecasting.laws.prediction import NORMAL
from toposcale.forecasting.laws.priors import PUBLISHED, Prior, decades_away
from toposcale.forecasting.laws.published_law import published_losses, refuse_level, refuse_young
from toposcale.forecasting.runs import checks
from toposcale.forecasting.runs.facts import is_usual_aspect_ratio
from toposcale.forecasting.runs.training_run import MINIMUM_POINTS, Target, TrainingRun
from toposcale.io.errors import NoForecast

MAX_SIZES, MAX_OF_A_SIZE = 8, 2
"""Other sizes that are read, the nearest ones, and other runs of each size, the longest ones."""

MIN_SIZE_RATIO = 1.5
"""Ratio from which on another size is read. Nearer ones differ by their shape as much as by their size: with one of them
known, 76% of the ends of the Gemstones were inside."""


MIN_SIZES_WITH_OUTLIER = 3
"""Sizes from which on it shows that one is far from the scaling law of the others."""


class Joint(Law):
    """Joint law of a family of training runs: a Bayesian average of two laws, for any size under any schedule.

    Parameters
    ----------
    prior : Prior
        Prior of the constants, learnt from published families.
    check : bool, default=True
        Whether `fit` refuses a curve that cannot be forecast or does not follow the law, and widens the intervals where its
        first half forecasts the present badly.

    Attributes
    ----------
    runs_ : list of TrainingRun
        Runs that were read; the first is the one that is decided on.
    laws_ : list of FamilyLaw
        The fitted models: two, and with two other sizes two more, in which the run is far from the scaling law of these.
    weights_ : ndarray of shape (n_models,)
        Posterior weights of the models.
    discrepancy_ : float
        Standard deviation of the model discrepancy at the last loss, nats.
    inflation_, calibration_ : float
        Factors on the standard deviations of forecasts: 1 unless the check found them too small; `CALIBRATION` where the
        optimizer is stated or another size is finished.

    References
    ----------
    Hoeting et al. 1999 (Bayesian model averaging); Luo et al. 2025, arXiv 2503.12811 (multi-power law).

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.forecasting import Joint, LearningRateSchedule, RunFacts, TrainingRun
    >>> steps = np.arange(100, 2001, 100)
    >>> run = TrainingRun(
    ...     RunFacts("25M", 25_000_000, 500_000.0),
    ...     LearningRateSchedule(4000, np.full(4001, 1e-3)),
    ...     steps=steps,
    ...     losses=2.5 + 20 * steps**-0.5,
    ... )
    >>> law = Joint().fit(run)
    >>> [end] = law.predict([run.target()])
    >>> end.low < end.value < end.high < run.loss_curve.level
    True
    >>> law.predict_jointly([run.target(3000), run.target()]).covariance.shape
    (2, 2)
    """

    runs_: list[TrainingRun]

    def __init__(self, prior: Prior = PUBLISHED, *, check: bool = True) -> None:
        self.prior, self.check = prior, check

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Fit both models to a run and to its family; NoForecast: it has no loss after the warm-up, or a check fails.

        Of the others those of its own size are read, and two of each of the eight nearest sizes that differ from it by a
        factor of at least 1.5. Finished ones whose learning rates are not known are left out where those of another are.
        """
        if not self.check:
            return self._fit(run, others)
        checks.refuse_curve(run)
        refuse_run(run)
        self._fit(run, others)
        try:
            self.inflation_ = self._inflation(run, others)
        except NoForecast as error:
            if run.schedule.is_known:
                raise
            unknown = f"its learning-rate schedule, which is unknown: {run.schedule.unknown_because}"
            raise NoForecast(f"{error}; the reason may be {unknown}") from error
        end = self.forecast(run)
        checks.refuse_forecast(run, end.value)
        if not end.is_plausible(run.loss_curve.level):
            raise NoForecast(f"the forecast of its end, {end.value:.4g}, is not plausible")
        return self

    def _fit(self, run: TrainingRun, others: Sequence[TrainingRun]) -> Self:
        """Fit both models without a check."""
        if run.loss_curve.is_empty:
            raise NoForecast("it has no loss after the warm-up")
        self.runs_ = [run, *_nearest_runs(run, _readable([run, *others]))]
        finished_sizes = {other.n_parameters for other in self.runs_ if other.is_finished} - {run.n_parameters}
        calibrated = (finished_sizes or run.facts.optimizer) and not run.is_finished
        self.inflation_, self.calibration_ = 1.0, priors.CALIBRATION if calibrated else 1.0
        scatters = {1.0: 1.0}
        if self.n_sizes >= MIN_SIZES_WITH_OUTLIER and is_usual_aspect_ratio(run.facts.aspect_ratio):
            scatters = {1.0: 1 - priors.OUTLYING_WEIGHT, priors.OUTLYING_SCATTER: priors.OUTLYING_WEIGHT}
        models = {self.prior: 1 - priors.SECOND_WEIGHT, self.prior.second_model: priors.SECOND_WEIGHT}
        self.laws_ = [FamilyLaw(prior, self.runs_, scatter) for scatter in scatters for prior in models]
        log_weights = np.log(np.outer([*scatters.values()], [*models.values()]).ravel())
        self.weights_ = softmax([law.evidence for law in self.laws_] + log_weights)
        self.discrepancy_ = float(self.weights_ @ [law.last_discrepancy_sd for law in self.laws_])
        return self

    def _inflation(self, run: TrainingRun, others: Sequence[TrainingRun]) -> float:
        """Return the factor on the standard deviations with which the interval of the present loss covers it.

        The present loss is forecast from the first half of the observed steps. The factor is at least 1, of a curve with a
        shift of level at least `SHIFT_INFLATION`, and that with too few points to check. NoForecast: the curve does not
        follow the law.
        """
        least = priors.SHIFT_INFLATION if run.rests_on_shift else 1.0
        if not checks.is_checkable(run):
            return priors.EARLY_INFLATION if checks.in_early_steps(run) else least
        steps, losses = run.loss_curve
        law = Joint(self.prior, check=False).fit(checks.first_half(run), others)
        present = law.forecast(run, round(steps[-1]))
        z = float(abs(np.log(losses[-1] / present.value)) / (np.log(present.high / present.value) / NORMAL))
        if z > priors.MAX_CHECK_ERROR:
            raise NoForecast(
                "this curve does not follow the law so far: from its first half the law forecasts the present "
                f"{z:.1f} standard deviations off"
            )
        return max(least, z / NORMAL)

    def predict_jointly(self, targets: Sequence[Target]) -> JointForecast:
        """Return the average of both models; its covariance has the spread between them."""
        by_law = [law.predict(targets) for law in self.laws_]
        losses = np.asarray(self.weights_ @ np.array([values for values, _ in by_law]))
        names = np.array([target.model for target in targets])
        is_same = (names[:, None] == names) & (names != "")
        spread = priors.END_SD**2 * np.where(np.eye(len(names), dtype=bool), 1.0, priors.SAME_RUN_CORR * is_same)
        spread += np.diag([(priors.SD_PER_DECADE * decades_away(target.n_parameters)) ** 2 for target in targets])
        for weight, (values, covariance) in zip(self.weights_, by_law, strict=True):
            spread = spread + weight * (covariance + np.outer(values - losses, values - losses))
        return JointForecast(losses, spread * (self.inflation_ * self.calibration_) ** 2)

    def compare(self, targets: Sequence[Target], reference: int) -> JointForecast:
        """Return the forecast with a noisy observation of each difference to the reference: that of the published law.

        Every target has its own observation, so that none changes the forecast of another.
        """
        losses, covariance = self.predict_jointly(targets)
        surface = published_losses(targets)
        scatter = priors.SURFACE_SD * np.array([10 ** (2 * decades_away(end.n_parameters)) for end in targets])
        # The published law knows no schedule: ends of one size after as many tokens are one observation.
        shared = scatter[reference] ** 2 + np.where(surface == surface[:, None], scatter**2, 0.0)
        to_reference = np.eye(len(losses)) - np.eye(len(losses))[reference]
        with_reference = (to_reference @ covariance)[:, reference]
        between = to_reference @ covariance @ to_reference.T
        is_observed = surface != surface[reference]
        gain = np.where(is_observed, np.diag(between) / (np.diag(between) + np.diag(shared)), 0.0)
        kept = 1 - gain
        differences = kept * (losses - losses[reference]) + gain * (surface - surface[reference])
        spread = np.outer(kept, kept) * between + np.outer(gain, gain) * shared
        # What all targets share decides nothing between them: the reference keeps its loss and its variance.
        spread = spread + np.add.outer(kept * with_reference, kept * with_reference) + covariance[reference, reference]
        return JointForecast(losses[reference] + differences, (spread + spread.T) / 2)


def _readable(runs: Sequence[TrainingRun]) -> list[TrainingRun]:
    """Return the runs with a loss whose curves can be fitted together."""
    with_loss = [run for run in runs if not run.loss_curve.is_empty and run.lowest_loss > 0]
    # The end of a finished run whose learning rates are unknown tells nothing about another schedule.
    if any(run.has_known_rates for run in with_loss):
        return [run for run in with_loss if run.has_known_rates or not run.is_finished]
    return with_loss


def largest_run(runs: Sequence[TrainingRun]) -> TrainingRun:
    """Return the largest and longest of the runs that can be fitted together; NoForecast: none has a loss."""
    readable = _readable(runs)
    if not readable:
        raise NoForecast("it has no loss after the warm-up")
    return max(readable, key=lambda run: (run.n_parameters, run.final_step, run.model))


def _nearest_runs(run: TrainingRun, known_runs: Sequence[TrainingRun]) -> list[TrainingRun]:
    """Return the longest runs of the size of `run`, and of each of the nearest sizes that are far enough from it."""
    by_size: dict[float, list[TrainingRun]] = {}
    for other in sorted(known_runs, key=_longest_first):
        ratio = other.n_parameters / run.n_parameters
        if other.model != run.model and (ratio == 1 or max(ratio, 1 / ratio) >= MIN_SIZE_RATIO):
            by_size.setdefault(other.n_parameters, []).append(other)
    nearest = sorted(by_size, key=lambda size: (abs(np.log(size / run.n_parameters)), size))
    n_read = MAX_SIZES + (run.n_parameters in by_size)
    return [other for size in nearest[:n_read] for other in by_size[size][:MAX_OF_A_SIZE]]


def _longest_first(run: TrainingRun) -> tuple[bool, float, str]:
    """Return the sort key of runs by the tokens they have read; those without known tokens come last, by their steps."""
    is_known = bool(np.isfinite(run.tokens_per_step))
    return not is_known, -run.progress.step * (run.tokens_per_step if is_known else 1.0), run.model


def refuse_run(run: TrainingRun) -> None:
    """Raise NoForecast where a sound curve has too few losses, comes too early, or is not that of a pretraining."""
    checks.refuse_objective(run)
    checks.refuse_repetition(run)
    if not (len(run.losses) or len(run.checkpoint_losses)):
        raise NoForecast("it has no losses yet")
    if len(run.loss_curve.steps) < MINIMUM_POINTS:
        raise NoForecast(f"it has fewer than {MINIMUM_POINTS} losses after the warm-up")
    checks.refuse_rising_metric(run)
    checks.refuse_decision_point(run)
    refuse_young(run)
    refuse_level(run)
