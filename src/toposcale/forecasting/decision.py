"""What can be done with the compute that is left of a training, and which of it is expected to lose least.

The candidates are: finish it, extend it, or stop it and start another size. The advice is the candidate of the least
expected regret; what speaks against being sure is in `trust`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.family_law import Target, target_of
from toposcale.forecasting.intervals import NORMAL
from toposcale.forecasting.joint import Joint
from toposcale.forecasting.prediction import NoForecast, Prediction
from toposcale.forecasting.training_run import TrainingRun, flop

SHORTEST_START, LONGEST_START = 50, 2_000_000
"""Steps outside which a fresh start is no training."""

MULTIPLES = (2.0, 4.0)
"""Multiples of the size of a training that could be started, where nobody names sizes."""

FINISH, EXTEND = "finish", "extend"

DRAWS = 4096
"""Draws from the forecasts of all candidates, always the same ones: equal forecasts give equal answers."""

BUDGET_USED_UP = "the compute that is left does not pay for one step"


class Request(NamedTuple):
    """What is asked of a training, with None for unknown.

    remaining: FLOP that will still be spent; by default what the plan needs. sizes: multiples of its size that could
    be started.
    """

    remaining: float | None = None
    sizes: Sequence[float] = MULTIPLES
    target_loss: float | None = None


USUAL = Request()
"""What is asked where nothing else is said."""


class Candidate(NamedTuple):
    """Something to do with the compute that is left."""

    name: str
    target: Target
    steps: int  # to come
    compute: float  # to come, FLOP

    @property
    def is_start(self) -> bool:
        """Whether it is a training from scratch."""
        return self.name.startswith("start ")


class Option(NamedTuple):
    """A candidate with its forecast, and what speaks for it."""

    candidate: Candidate
    loss: Prediction  # at its end
    gain: Prediction  # loss of finishing less its loss
    probability: float  # to be the best of all
    at_stake: float  # expected regret: the loss expected to be given up against the best

    def as_row(self) -> dict[str, str | float]:
        """What the table `candidates` and advice.json hold of every candidate, by name."""
        row: dict[str, str | float] = {
            "candidate": self.candidate.name,
            "n_parameters": round(self.candidate.target.n_parameters),
            "steps": self.candidate.steps,
        }
        for name, prediction in (("loss", self.loss), ("gain", self.gain)):
            row |= {name: prediction.value, f"{name}_low": prediction.low, f"{name}_high": prediction.high}
        return row | {"probability": self.probability, "at_stake": self.at_stake}

    @property
    def cost_if_wrong(self) -> float:
        """The loss expected to be given up where another candidate is the best; 0 where none can be."""
        return self.at_stake / (1 - self.probability) if self.probability < 1 else 0.0


class Decision(NamedTuple):
    """The options in the order of their expected regret, and the probability that any start from scratch is the best."""

    options: tuple[Option, ...]
    stop: float

    @property
    def best(self) -> Option:
        """The advice: the option of the least expected regret."""
        return self.options[0]

    @property
    def is_a_choice(self) -> bool:
        """Whether there is anything to choose between."""
        return len(self.options) > 1

    def option(self, name: str) -> Option | None:
        """The option of this candidate, where there is one."""
        return next((option for option in self.options if option.candidate.name == name), None)


def decide(
    law: Joint,
    training: TrainingRun,
    others: Sequence[TrainingRun],
    request: Request = USUAL,
    ways: Sequence[Candidate] | None = None,
) -> Decision:
    """The decision between all candidates whose forecasts are plausible. NoForecast: why there is none.

    ways: the candidates, where the request does not name them.
    """
    if not np.isfinite(training.tokens_per_step):
        raise NoForecast(f"give tokens_per_step of {training.model}, the tokens of one step")
    if ways is None:
        ways = candidates(training, others, request.remaining, request.sizes)
    if not ways:
        raise NoForecast(BUDGET_USED_UP)
    decision, present = weigh(law, ways), training.present_loss
    plausible = [option.candidate.name for option in decision.options if option.loss.is_plausible(present)]
    if not plausible:
        raise NoForecast("no candidate has a plausible forecast")
    if len(plausible) == len(ways):
        return decision
    return weigh(law, [candidate for candidate in ways if candidate.name in plausible])


def candidates(
    training: TrainingRun,
    others: Sequence[TrainingRun],
    remaining: float | None = None,
    multiples: Sequence[float] = MULTIPLES,
) -> list[Candidate]:
    """What can be done with `remaining` FLOP (what the training's own plan still needs, where None) as it stands now.

    finish: the plan to its end, or, where the compute does not suffice, the rest of the plan pressed into what there is.
    extend: the rest of the plan stretched to use all of it. start NAME: every other size of `others`, and multiples of
    this one, from scratch, under its own plan, or that of `training`, stretched to the steps that the compute buys.
    """
    remaining = training.compute_left if remaining is None else remaining
    per_step = training.compute(1)
    ahead, bought = training.final_step - training.last_step, int(remaining / per_step * (1 + 1e-9))
    if bought < 1:
        return []
    ways = []
    if ahead <= 0:  # a training that is over stands for itself: to leave it costs nothing
        ways.append(Candidate(FINISH, target_of(training), 0, 0.0))
    else:
        within = min(ahead, bought)
        ways.append(Candidate(FINISH, _continued(training, within), within, within * per_step))
        if 1.05 * ahead < bought <= LONGEST_START:
            ways.append(Candidate(EXTEND, _continued(training, bought), bought, bought * per_step))
    for name, size, like in _sizes_to_start(training, others, multiples):
        tokens = like.tokens_per_step if np.isfinite(like.tokens_per_step) else training.tokens_per_step
        steps = int(remaining / flop(size, tokens))
        if not SHORTEST_START <= steps <= LONGEST_START:
            continue
        shape = like if like.plan_known and not like.has_begun else training
        target = Target(size, stretched(shape.whole_plan, steps), steps, tokens)
        ways.append(Candidate(f"start {name}", target, steps, flop(size, tokens * steps)))
    return ways


def _sizes_to_start(
    training: TrainingRun, others: Sequence[TrainingRun], multiples: Sequence[float]
) -> list[tuple[str, float, TrainingRun]]:
    """Every size that could be started: its name, its number of parameters, and the training whose plan it follows."""
    sizes = sorted({other.n_parameters for other in others} - {training.n_parameters})
    starts = [_start_of(training, [other for other in others if other.n_parameters == size]) for size in sizes]
    for multiple in multiples:
        size = multiple * training.n_parameters
        if all(abs(n_parameters / size - 1) > 0.05 for _, n_parameters, _ in starts) and multiple != 1:
            starts.append((f"{multiple:g} x {training.model}", size, training))
    return starts


def _start_of(training: TrainingRun, same_size: Sequence[TrainingRun]) -> tuple[str, float, TrainingRun]:
    """A size by the name of the training that stands for it: one that has not started, or one under the same schedule."""
    size = float(same_size[0].n_parameters)
    alike = [other for other in same_size if not other.has_begun]
    alike = alike or [other for other in same_size if same_course(other, training)] or list(same_size)
    return alike[0].model if len(alike) == 1 else f"{size:.3g} parameters", size, alike[0]


def stretched(rates: np.ndarray, steps: int) -> np.ndarray:
    """(steps + 1,) the same course of the learning rate over another number of steps."""
    return np.interp(np.linspace(0, len(rates) - 1, steps + 1), np.arange(len(rates)), rates)


def same_course(one: TrainingRun, other: TrainingRun) -> bool:
    """Whether two plans are the same within a tenth of the peak, whatever their lengths."""
    return one.plan_known and other.plan_known and course_gap(one.whole_plan, other.whole_plan) <= 0.1


def course_gap(one: np.ndarray, other: np.ndarray) -> float:
    """Largest difference of two courses of the rate, in units of the peak, over shares of their lengths."""
    at = np.linspace(0, 1, 101)
    a, b = (np.interp(at, np.linspace(0, 1, len(rates)), rates / rates.max()) for rates in (one, other))
    return float(np.max(np.abs(a - b)))


def _continued(training: TrainingRun, steps: int) -> Target:
    """What was trained so far, and the rest of the plan over `steps` steps from now."""
    now = training.last_step
    if now + steps == training.final_step:
        return target_of(training)
    plan = training.rates_to(training.final_step)
    rates = np.concatenate([plan[:now], stretched(plan[now:], steps)])
    return Target(training.n_parameters, rates, now + steps, training.tokens_per_step, training.model)


def weigh(joint: Joint, ways: Sequence[Candidate]) -> Decision:
    """The decision between at least one candidate, from one law: what forecasts share does not blur the comparison."""
    losses, covariance = joint.predict([candidate.target for candidate in ways])
    root = np.linalg.cholesky(covariance + np.diag(np.full(len(losses), 1e-12)))
    noise = np.random.default_rng(0).standard_normal((DRAWS, len(losses)))
    draws = losses + np.einsum("dj,ij->di", noise, root)
    best = np.bincount(np.argmin(draws, axis=1), minlength=len(losses)) / DRAWS
    stake = np.mean(draws - draws.min(axis=1, keepdims=True), axis=0)
    names = [candidate.name for candidate in ways]
    finish = names.index(FINISH) if FINISH in names else 0
    variance = np.diag(covariance)
    gain = losses[finish] - losses
    half = NORMAL * np.sqrt(np.maximum(variance[finish] + variance - 2 * covariance[finish], 0.0))
    columns = [column.tolist() for column in (losses, np.sqrt(variance), gain, gain - half, gain + half, best, stake)]
    options = [
        Option(candidate, Prediction.of(loss, deviation), Prediction(won, low, high), probability, at_stake)
        for candidate, loss, deviation, won, low, high, probability, at_stake in zip(ways, *columns, strict=True)
    ]
    options.sort(key=lambda option: (option.at_stake, option.candidate.name))
    stop = sum(option.probability for option in options if option.candidate.is_start)
    return Decision(tuple(options), float(stop))


def steps_to(joint: Joint, training: TrainingRun, loss: float) -> tuple[float, float, float]:
    """Steps at which a plan reaches a loss: forecast, earliest and latest; infinite where it does not before its end."""
    steps = np.unique(np.rint(np.linspace(training.last_step, training.final_step, 97)[1:]).astype(int))
    values, covariance = joint.predict([target_of(training, int(step)) for step in steps])
    spread = NORMAL * np.sqrt(np.diag(covariance))
    reached = [np.flatnonzero(curve <= loss) for curve in (values, values - spread, values + spread)]
    middle, early, late = (float(steps[at[0]]) if len(at) else np.inf for at in reached)
    return middle, early, late


def best_size(joint: Joint, training: TrainingRun, remaining: float) -> tuple[float, float, float]:
    """Size of the lowest forecast for a fresh start with `remaining` FLOP, and the sizes within 0.01 nats of it."""
    sizes = training.n_parameters * np.geomspace(1 / 16, 64, 61)
    steps = (remaining / flop(sizes, training.tokens_per_step)).astype(int)
    usable = (steps >= SHORTEST_START) & (steps <= LONGEST_START)
    sizes, steps = sizes[usable], steps[usable]
    if not len(sizes):
        return np.nan, np.nan, np.nan
    plan = stretched(training.whole_plan, 2000)
    targets = [
        Target(size, stretched(plan, int(count)), int(count), training.tokens_per_step)
        for size, count in zip(sizes, steps, strict=True)
    ]
    losses = np.concatenate([joint.predict([target])[0] for target in targets])
    near = sizes[losses <= losses.min() + 0.01]
    return float(sizes[int(np.argmin(losses))]), float(near[0]), float(near[-1])
