"""The decision: the candidate of the least expected regret."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.decision.candidates import (
    CONTINUE,
    LONGEST_START,
    SHORTEST_START,
    Candidate,
    CandidateKind,
    DroppedCandidate,
)
from toposcale.forecasting.laws.law import JointForecast, Law
from toposcale.forecasting.laws.prediction import NORMAL, Prediction
from toposcale.forecasting.runs.facts import StepCost
from toposcale.forecasting.runs.learning_rate_schedule import rescaled
from toposcale.forecasting.runs.training_run import Target, TrainingRun
from toposcale.io.errors import NoForecast
from toposcale.io.files import finite_or_none

DRAWS = 16384
"""Draws of the loss of each candidate: the standard error of a probability of 0.9 is 0.0023."""

BUDGET_USED_UP = "the compute that is left does not pay for one step"


class WeighedCandidate(NamedTuple):
    """A candidate with its forecast.

    Parameters
    ----------
    candidate : Candidate
        The candidate.
    loss : Prediction
        Loss at its end, nats per token.
    gain : Prediction
        Loss of continuing less its loss, nats per token.
    probability : float
        Probability of being the best candidate.
    expected_regret : float
        Mean difference of its loss to that of the best candidate, nats per token.
    """

    candidate: Candidate
    loss: Prediction
    gain: Prediction
    probability: float
    expected_regret: float

    def as_row(self) -> dict[str, str | float]:
        """Return the columns of the table `candidates` and of the JSON, by name."""
        return {
            "candidate": self.candidate.name,
            "kind": self.candidate.kind.value,
            "n_parameters": round(self.candidate.target.n_parameters),
            "steps": self.candidate.steps,
            **self.loss.columns("loss"),
            **self.gain.columns("gain"),
            "probability": self.probability,
            "expected_regret": self.expected_regret,
        }


class Decision(NamedTuple):
    """Decision between candidates.

    Parameters
    ----------
    candidates : tuple of WeighedCandidate
        Candidates in ascending order of their expected regret.
    dropped : tuple of DroppedCandidate
        Candidates that were left out, each with its reason.
    """

    candidates: tuple[WeighedCandidate, ...]
    dropped: tuple[DroppedCandidate, ...] = ()

    @property
    def best(self) -> WeighedCandidate:
        """Candidate of the least expected regret."""
        return self.candidates[0]

    @property
    def scale_up_probability(self) -> float:
        """Probability that a candidate that is trained from scratch is the best."""
        return float(sum(row.probability for row in self.candidates if row.candidate.from_scratch))

    @property
    def is_a_choice(self) -> bool:
        """Return whether there is anything to choose between."""
        return len(self.candidates) > 1


def decide(law: Law, run: TrainingRun, all_candidates: Iterable[Candidate | DroppedCandidate]) -> Decision:
    """Return the decision between all candidates whose forecasts are plausible; NoForecast: there is none."""
    if not np.isfinite(run.tokens_per_step):
        raise NoForecast(f"give tokens_per_step of {run.model}, the tokens of one step")
    all_candidates = [*all_candidates]
    weighed = [candidate for candidate in all_candidates if isinstance(candidate, Candidate)]
    dropped = tuple(candidate for candidate in all_candidates if isinstance(candidate, DroppedCandidate))
    if not weighed:
        raise NoForecast(BUDGET_USED_UP)
    decision, present = weigh(law, weighed), run.loss_curve.level
    if run.loss_curve.is_empty:  # no loss with which a forecast could be compared
        return decision._replace(dropped=dropped)
    implausible = {row.candidate.name: row.loss for row in decision.candidates if not row.loss.is_plausible(present)}
    if len(implausible) == len(weighed):
        raise NoForecast("no candidate has a plausible forecast")
    if implausible:
        decision = weigh(law, [candidate for candidate in weighed if candidate.name not in implausible])
        reason = "its forecast, {:.4g}, is not plausible"
        dropped += tuple(DroppedCandidate(name, reason.format(loss)) for name, loss in implausible.items())
    return decision._replace(dropped=dropped)


def weigh(law: Law, candidates: Sequence[Candidate]) -> Decision:
    """Return the decision between at least one candidate, by draws from their joint forecast.

    Errors that the forecasts share cancel in the comparison.
    """
    names = [candidate.name for candidate in candidates]
    reference = names.index(CONTINUE) if CONTINUE in names else 0
    forecast = losses, covariance = law.compare([candidate.target for candidate in candidates], reference)
    draws = _draws(forecast, candidates)
    probability = np.bincount(np.argmin(draws, axis=1), minlength=len(losses)) / DRAWS
    regret = np.mean(draws - draws.min(axis=1, keepdims=True), axis=0)
    variance = np.diag(covariance)
    gain = losses[reference] - losses
    half_width = NORMAL * np.sqrt(np.maximum(variance[reference] + variance - 2 * covariance[reference], 0.0))
    rows = [
        WeighedCandidate(
            candidate,
            forecast.prediction(i),
            Prediction(float(gain[i]), float(gain[i] - half_width[i]), float(gain[i] + half_width[i])),
            float(probability[i]),
            float(regret[i]),
        )
        for i, candidate in enumerate(candidates)
    ]
    return Decision(tuple(sorted(rows, key=lambda row: (row.expected_regret, row.candidate.name))))


def _draws(forecast: JointForecast, candidates: Sequence[Candidate]) -> np.ndarray:
    """Return draws of the losses (DRAWS, candidates), each candidate from its own stream of random numbers.

    A candidate is drawn given those that are forecast to be better. Hence neither the order of the list nor a worse
    candidate changes the draws of another.
    """
    losses, covariance = forecast
    keys = [_stream(candidate) for candidate in candidates]
    streams = [(*key, keys[:index].count(key)) for index, key in enumerate(keys)]
    order = sorted(range(len(losses)), key=lambda index: (round(float(losses[index]), 9), streams[index]))
    noise = [np.random.default_rng(streams[index]).standard_normal(DRAWS) for index in order]
    root = np.linalg.cholesky(covariance[np.ix_(order, order)] + np.diag(np.full(len(losses), 1e-12)))
    draws = np.empty((DRAWS, len(losses)))
    draws[:, order] = losses[order] + np.einsum("jd,ij->di", noise, root)
    return draws


def _stream(candidate: Candidate) -> tuple[int, ...]:
    """Return the seed of the random numbers of a candidate: what it trains, for how long, and under which rates."""
    target, rates = candidate.target, candidate.target.learning_rates
    mean_rate = round(1e6 * float(rates.mean() / rates.max()))
    kind = list(CandidateKind).index(candidate.kind)
    return kind, round(target.n_parameters), target.step, candidate.decay_start, mean_rate


class TargetLoss(NamedTuple):
    """Step at which a target loss was reached, or is forecast to be; infinite where not before the end of the schedule."""

    reached_at: float | None = None  # None: not yet
    step: float = np.inf
    earliest: float = np.inf
    latest: float = np.inf
    flop: float = np.nan  # compute of the step

    def as_dict(self) -> dict[str, float | None]:
        """Return the keys of the JSON, without the loss itself."""
        if self.reached_at is not None:
            return {"target_reached_at": self.reached_at}
        values = (self.step, self.earliest, self.latest, self.flop)
        keys = ("target_step", "target_step_earliest", "target_step_latest", "target_flop")
        return dict(zip(keys, map(finite_or_none, values), strict=True))


def forecast_target_loss(law: Law, run: TrainingRun, loss: float) -> TargetLoss:
    """Return the step at which a run reached, or is forecast to reach, a loss."""
    if (run.loss_curve.losses <= loss).any():
        return TargetLoss(float(run.loss_curve.steps[np.argmax(run.loss_curve.losses <= loss)]))
    steps = np.unique(np.rint(np.linspace(run.progress.step, run.final_step, 97)[1:]).astype(int))
    values, covariance = law.predict_jointly([run.target(int(step)) for step in steps])
    half_width = NORMAL * np.sqrt(np.diag(covariance))
    crossings = [np.flatnonzero(curve <= loss) for curve in (values, values - half_width, values + half_width)]
    step, earliest, latest = (float(steps[indices[0]]) if len(indices) else np.inf for indices in crossings)
    return TargetLoss(None, step, earliest, latest, run.flop_of_steps(step))


class BestSize(NamedTuple):
    """Number of parameters of the lowest forecast, and the range of those within 0.01 nats of it; NaN without one."""

    n_parameters: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float | None]:
        """Return the keys of the JSON."""
        return dict(zip(("best_size", "best_size_low", "best_size_high"), map(finite_or_none, self), strict=True))


def best_size(law: Law, run: TrainingRun, remaining: float) -> BestSize:
    """Return the size of the lowest forecast from scratch with `remaining` FLOP."""
    sizes = run.n_parameters * np.geomspace(1 / 16, 64, 61)
    steps = StepCost(sizes, run.tokens_per_step).steps_of_flop(remaining).astype(int)
    usable = (steps >= SHORTEST_START) & (steps <= LONGEST_START)
    sizes, steps = sizes[usable], steps[usable]
    if not len(sizes):
        return BestSize(np.nan, np.nan, np.nan)
    shape = rescaled(run.schedule.every_rate, 2000)
    targets = [
        Target(size, rescaled(shape, int(count)), int(count), run.tokens_per_step)
        for size, count in zip(sizes, steps, strict=True)
    ]
    losses = np.concatenate([law.predict_jointly([target]).losses for target in targets])
    near = sizes[losses <= losses.min() + 0.01]
    return BestSize(float(sizes[int(np.argmin(losses))]), float(near[0]), float(near[-1]))
