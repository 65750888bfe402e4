"""Candidates for the remaining compute of a training run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.amounts import number
from toposcale.forecasting.runs.facts import StepCost
from toposcale.forecasting.runs.learning_rate_schedule import rescaled
from toposcale.forecasting.runs.training_run import Target, TrainingRun

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
    known_sizes = sorted({other.n_parameters for other in others} - {run.n_parameters})
    sizes = [_size_of(run, [other for other in others if other.n_parameters == size]) for size in known_sizes]
    for multiple in multiples:
        n_parameters = multiple * run.n_parameters
        if multiple != 1 and all(abs(size.n_parameters / n_parameters - 1) > 0.05 for size in sizes):
            sizes.append(_Size(f"{multiple:g} x {run.model}", n_parameters, run))
    return sizes


def _size_of(run: TrainingRun, same_size: Sequence[TrainingRun]) -> _Size:
    """Return a size under the name of its run: one that has not started, or one with the shape of the schedule of `run`."""
    n_parameters = float(same_size[0].n_parameters)
    runs = [other for other in same_size if other.loss_curve.is_empty]
    runs = runs or [other for other in same_size if other.schedule.has_shape_of(run.schedule)] or list(same_size)
    return _Size(runs[0].model if len(runs) == 1 else f"{n_parameters:.3g} parameters", n_parameters, runs[0])


def _with_rest_over(run: TrainingRun, steps: int) -> Target:
    """Return the run so far, and the rest of its schedule over `steps` steps from now."""
    now = run.progress.step
    if now + steps == run.final_step:
        return run.target()
    scheduled = run.schedule.rates_to(run.final_step)
    rates = np.concatenate([scheduled[:now], rescaled(scheduled[now:], steps)])
    return run.target()._replace(learning_rates=rates, step=now + steps)
