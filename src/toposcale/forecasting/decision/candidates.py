"""Candidates for the remaining compute of a training run, and the decision: the one of the least expected regret."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.amounts import number
from toposcale.forecasting.laws.law import JointForecast, Law
from toposcale.forecasting.laws.prediction import NORMAL, Prediction
from toposcale.forecasting.runs.facts import StepCost
from toposcale.forecasting.runs.learning_rate_schedule import rescaled
from toposcale.forecasting.runs.training_run import Target, TrainingRun
from toposcale.io.errors import NoForecast
from toposcale.io.files import finite_or_none

SHORTEST_START = 50
"""Steps below which a run from scratch is not a training."""

LONGEST_START = 2_000_000
"""Steps above which a run from scratch is not a training."""

MULTIPLES = 2.0, 4.0
"""Multiples of the number of parameters that are candidates, where no sizes are named."""

BEFORE_START = 0.25, 0.5
"""Further multiples of a run that has not started."""

CONTINUE = "continue"
"""Name of the candidate that follows the schedule."""

EXTEND = "extend"
"""Name of the candidate that uses all of the compute under a longer schedule."""

DRAWS = 16384
"""Draws of the loss of each candidate: the standard error of a probability of 0.9 is 0.0023."""

BUDGET_USED_UP = "the compute that is left does not pay for one step"


class CandidateKind(StrEnum):
    """Kind of a candidate: continue or extend the schedule, decay to its end, or train another size from scratch."""

    CONTINUE = CONTINUE
    EXTEND = EXTEND
    DECAY = "decay"
    SCALE_UP = "scale_up"


@dataclass(frozen=True)
class Request:
    """Request for advice: the compute to come, the candidate sizes and a target loss.

    Parameters
    ----------
    remaining : float, optional
        Compute that will still be spent, FLOP; by default what the schedule needs.
    multiples : sequence of float, default=(2, 4)
        Multiples of the number of parameters that are candidates.
    target_loss : float, optional
        Loss in nats per token; the advice tells when it is reached.

    Raises
    ------
    UserError
        If one of them is not a finite number above 0; the compute may be 0.
    """

    remaining: float | None = None
    multiples: Sequence[float] = MULTIPLES
    target_loss: float | None = None

    def __post_init__(self) -> None:
        multiples = tuple(number(str(multiple), "multiples", None) for multiple in np.atleast_1d(self.multiples))
        object.__setattr__(self, "multiples", multiples)
        object.__setattr__(self, "remaining", number(self.remaining, "remaining", 0))
        object.__setattr__(self, "target_loss", number(self.target_loss, "target_loss", None))


USUAL = Request()
"""The request where nothing is stated."""


class Candidate(NamedTuple):
    """Candidate for the remaining compute.

    Parameters
    ----------
    kind : CandidateKind
        Continue, extend, decay or scale up.
    name : str
        Name in texts, such as "scale up to 100M"; of a decay its shape.
    target : Target
        The loss at its end.
    steps : int
        Steps to come.
    compute : float
        Compute to come, FLOP.
    decay_start : int, default=0
        Step at which a decay begins.
    """

    kind: CandidateKind
    name: str
    target: Target
    steps: int
    compute: float
    decay_start: int = 0

    @property
    def from_scratch(self) -> bool:
        """Return whether it trains another model from scratch."""
        return self.kind is CandidateKind.SCALE_UP


class DroppedCandidate(NamedTuple):
    """Name of a candidate that is not weighed, and the reason why, a clause."""

    name: str
    reason: str


class _Size(NamedTuple):
    """A size that could be trained from scratch; template: the run whose schedule and tokens per step it takes over."""

    label: str
    n_parameters: float
    template: TrainingRun


def candidates(run: TrainingRun, others: Sequence[TrainingRun], request: Request = USUAL) -> list[Candidate]:
    """Return the candidates of a run as it stands now; none where the compute does not pay for one step.

    Continue: the schedule to its end; where the compute does not suffice, the rest of it compressed. Extend: the rest of
    the schedule rescaled to use all of the compute. Scale up: every other size of `others`, and multiples of this one, from
    scratch, under its own schedule, or that of `run`, rescaled to the steps that the compute pays for.
    """
    return [candidate for candidate in all_candidates(run, others, request) if isinstance(candidate, Candidate)]


def all_candidates(
    run: TrainingRun, others: Sequence[TrainingRun], request: Request
) -> Iterator[Candidate | DroppedCandidate]:
    """Yield every candidate, dropped ones too; nothing where the compute does not pay for one step."""
    remaining = run.flop_left if request.remaining is None else request.remaining
    per_step = run.flop_of_steps(1)
    ahead, affordable = run.final_step - run.progress.step, int(remaining / per_step * (1 + 1e-9))
    if affordable < 1:
        return
    if ahead <= 0:  # a finished run stands for itself: to leave it costs nothing
        yield Candidate(CandidateKind.CONTINUE, CONTINUE, run.target(), 0, 0.0)
    else:
        steps = min(ahead, affordable)
        yield Candidate(CandidateKind.CONTINUE, CONTINUE, _with_rest_over(run, steps), steps, steps * per_step)
        if affordable > LONGEST_START:
            yield _dropped_for_its_steps(EXTEND, affordable)
        elif 1.05 * ahead < affordable:
            target = _with_rest_over(run, affordable)
            yield Candidate(CandidateKind.EXTEND, EXTEND, target, affordable, affordable * per_step)
    for size in _sizes_to_start(run, others, request.multiples):
        template = size.template
        tokens = template.tokens_per_step if np.isfinite(template.tokens_per_step) else run.tokens_per_step
        name = _name_of_start(run, size.label, size.n_parameters)
        cost = StepCost(size.n_parameters, tokens)
        steps = int(cost.steps_of_flop(remaining))
        if SHORTEST_START <= steps <= LONGEST_START:
            schedule = (template if template.schedule.is_known and template.loss_curve.is_empty else run).schedule
            rates = rescaled(schedule.every_rate, steps)
            target = Target(size.n_parameters, rates, steps, tokens, aspect_ratio=template.facts.aspect_ratio)
            yield Candidate(CandidateKind.SCALE_UP, name, target, steps, cost.flop(steps))
        else:
            yield _dropped_for_its_steps(name, steps)
    for other in others:
        if other.n_parameters == run.n_parameters and other.loss_curve.is_empty:
            yield DroppedCandidate(_name_of_start(run, other.model, other.n_parameters), "it has the size of this run")


def _dropped_for_its_steps(name: str, steps: int) -> DroppedCandidate:
    """Return the dropped candidate for a run of too few or too many steps."""
    limit = f"at least {SHORTEST_START}" if steps < SHORTEST_START else f"at most {LONGEST_START:,}"
    count = f"{steps:,}" if steps < 1e9 else f"{steps:.2g}"
    return DroppedCandidate(name, f"the compute pays for {count} steps, and a training has {limit}")


def _name_of_start(run: TrainingRun, label: str, n_parameters: float) -> str:
    """Return the name of a candidate that trains another size from scratch."""
    return f"{'scale up to' if n_parameters > run.n_parameters else 'start'} {label}"


def _sizes_to_start(run: TrainingRun, others: Sequence[TrainingRun], multiples: Sequence[float]) -> list[_Size]:
    """Return every size that could be trained from scratch."""
    sizes = []
    for n_parameters in sorted({other.n_parameters for other in others} - {run.n_parameters}):
        same_size = [other for other in others if other.n_parameters == n_parameters]
        # Under the name of its run: one that has not started, or one with the shape of the schedule of `run`.
        runs = [other for other in same_size if other.loss_curve.is_empty]
        runs = runs or [other for other in same_size if other.schedule.has_shape_of(run.schedule)] or same_size
        label = runs[0].model if len(runs) == 1 else f"{n_parameters:.3g} parameters"
        sizes.append(_Size(label, n_parameters, runs[0]))
    for multiple in multiples:
        n_parameters = multiple * run.n_parameters
        if multiple != 1 and all(abs(size.n_parameters / n_parameters - 1) > 0.05 for size in sizes):
            sizes.append(_Size(f"{multiple:g} x {run.model}", n_parameters, run))
    return sizes


def _with_rest_over(run: TrainingRun, steps: int) -> Target:
    """Return the run so far, and the rest of its schedule over `steps` steps from now."""
    now = run.progress.step
    if now + steps == run.final_step:
        return run.target()
    scheduled = run.schedule.rates_to(run.final_step)
    rates = np.concatenate([scheduled[:now], rescaled(scheduled[now:], steps)])
    return run.target()._replace(learning_rates=rates, step=now + steps)


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
