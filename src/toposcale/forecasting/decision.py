"""Finish, or stop and start another size: what can be done with the compute that is left, and the loss at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.history import History
from toposcale.forecasting.intervals import NORMAL
from toposcale.forecasting.joint import Joint, Target, target_of

SURE = 0.8
"""Probability to be the best below which nothing is decided."""

FEWEST_STEPS, MOST_STEPS = 50, 2_000_000
"""Steps outside which a fresh start is no training."""

DRAWS = 4096
MULTIPLES = (2.0, 4.0)
FINISH, EXTEND = "finish", "extend"
UNDECIDED = "undecided"


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
    """A candidate with its forecast: the loss at its end, its interval, and what speaks for it."""

    candidate: Candidate
    loss: float
    low: float
    high: float
    probability: float  # to be the best of all
    at_stake: float  # expected loss given up against the best


def compute_of(history: History, step: np.ndarray | float) -> np.ndarray:
    """Training compute C = 6 N D in FLOP after `step` steps."""
    return 6.0 * history.n_parameters * history.tokens_per_step * np.asarray(step, dtype=np.float64)


def rest_of(history: History) -> float:
    """Compute from now to the planned end, FLOP."""
    return float(compute_of(history, max(history.final_step - history.last_step, 0)))


def stretched(rates: np.ndarray, steps: int) -> np.ndarray:
    """(steps + 1,) the same course of the learning rate over another number of steps."""
    return np.interp(np.linspace(0, len(rates) - 1, steps + 1), np.arange(len(rates)), rates)


def candidates(
    history: History,
    others: Sequence[History],
    remaining: float | None = None,
    multiples: Sequence[float] = MULTIPLES,
) -> list[Candidate]:
    """What can be done with `remaining` FLOP (the run's own rest, where None) at the moment where `history` stands.

    finish: the plan to its end, or, where the compute does not suffice, the rest of the plan pressed into what there is.
    extend: the rest of the plan stretched to use all of it. start NAME: every other size of `others`, and multiples of
    this one, from scratch, under its own plan, or that of `history`, stretched to the steps that the compute buys.
    """
    remaining = rest_of(history) if remaining is None else remaining
    now, per_step = history.last_step, float(compute_of(history, 1))
    ahead, bought = history.final_step - now, int(remaining / per_step * (1 + 1e-9))
    if bought < 1:
        return []
    found = []
    if ahead > 0:
        within = min(ahead, bought)
        found.append(Candidate(FINISH, _continued(history, within), within, within * per_step))
        if bought > 1.05 * ahead:
            found.append(Candidate(EXTEND, _continued(history, bought), bought, bought * per_step))
    sizes = sorted({other.n_parameters for other in others} - {history.n_parameters})
    named = [
        _size_named(history, [other for other in others if other.n_parameters == size]) for size in sizes
    ]
    for multiple in multiples:
        size = multiple * history.n_parameters
        if all(abs(known / size - 1) > 0.05 for _, known, _ in named) and multiple != 1:
            named.append((f"{multiple:g} x {history.model}", size, history))
    for name, size, like in named:
        tokens = like.tokens_per_step if np.isfinite(like.tokens_per_step) else history.tokens_per_step
        steps = int(remaining / (6.0 * size * tokens))
        if not FEWEST_STEPS <= steps <= MOST_STEPS:
            continue
        shape = like if like.plan_known and not len(like.loss_curve[0]) else history
        rates = stretched(_whole_plan(shape), steps)
        found.append(
            Candidate(f"start {name}", Target(size, rates, steps, tokens), steps, 6.0 * size * tokens * steps)
        )
    return found


def _size_named(history: History, runs: Sequence[History]) -> tuple[str, float, History]:
    """A size by the name of the run that stands for it: one that has not started, or one under the same schedule."""
    size = float(runs[0].n_parameters)
    chosen = [run for run in runs if not len(run.loss_curve[0])] or [
        run for run in runs if same_course(run, history)
    ]
    if len(runs) == 1 or len(chosen) == 1:
        chosen = chosen or list(runs)
        return chosen[0].model, size, chosen[0]
    return f"{size:.3g} parameters", size, (chosen or list(runs))[0]


def same_course(one: History, other: History) -> bool:
    """Whether two plans are the same within a tenth of the peak, whatever their lengths."""
    if not (one.plan_known and other.plan_known):
        return False
    return course_gap(one.rates_to(one.final_step), other.rates_to(other.final_step)) <= 0.1


def course_gap(one: np.ndarray, other: np.ndarray) -> float:
    """Largest difference of two courses of the rate, in units of the peak, over shares of their lengths."""
    at = np.linspace(0, 1, 101)
    a, b = (np.interp(at, np.linspace(0, 1, len(rates)), rates / rates.max()) for rates in (one, other))
    return float(np.max(np.abs(a - b)))


def _continued(history: History, steps: int) -> Target:
    """What was trained so far, and the rest of the plan over `steps` steps from now."""
    now = history.last_step
    if now + steps == history.final_step:
        return target_of(history)
    plan = history.rates_to(history.final_step)
    rates = np.concatenate([plan[:now], stretched(plan[now:], steps)])
    return Target(history.n_parameters, rates, now + steps, history.tokens_per_step)


def _whole_plan(history: History) -> np.ndarray:
    if history.plan_known:
        return history.rates_to(history.final_step)
    warmup = max(history.warmup_steps, 1)
    return np.minimum(np.arange(1, history.final_step + 2) / warmup, 1.0)


def weigh(joint: Joint, found: Sequence[Candidate], seed: int = 0) -> list[Option]:
    """The forecasts of all candidates from one law, best first: what they share does not blur their comparison."""
    if not found:
        return []
    losses, covariance = joint.predict([candidate.target for candidate in found])
    root = np.linalg.cholesky(covariance + np.diag(np.full(len(losses), 1e-12)))
    noise = np.random.default_rng(seed).standard_normal((DRAWS, len(losses)))
    draws = losses + np.einsum("dj,ij->di", noise, root)
    best = np.bincount(np.argmin(draws, axis=1), minlength=len(losses)) / DRAWS
    stake = np.mean(draws - draws.min(axis=1, keepdims=True), axis=0)
    factors = np.exp(np.minimum(NORMAL * np.sqrt(np.diag(covariance)) / np.maximum(losses, 1e-3), 50))
    options = [
        Option(
            candidate, float(loss), float(loss / factor), float(loss * factor), float(share), float(at_stake)
        )
        for candidate, loss, factor, share, at_stake in zip(found, losses, factors, best, stake, strict=True)
    ]
    return sorted(options, key=lambda option: (option.at_stake, option.candidate.name))


def steps_to(joint: Joint, history: History, loss: float) -> tuple[float, float, float]:
    """Steps at which a run under its plan reaches a loss: forecast, earliest and latest; infinite: not before its end."""
    steps = np.unique(np.rint(np.linspace(history.last_step, history.final_step, 97)[1:]).astype(int))
    values, covariance = joint.predict([target_of(history, int(step)) for step in steps])
    spread = NORMAL * np.sqrt(np.diag(covariance))
    reached = [np.flatnonzero(curve <= loss) for curve in (values, values - spread, values + spread)]
    middle, early, late = (float(steps[at[0]]) if len(at) else np.inf for at in reached)
    return middle, early, late


def best_size(joint: Joint, history: History, remaining: float) -> tuple[float, float, float]:
    """Size of the lowest forecast for a fresh start with `remaining` FLOP, and the sizes within 0.01 nats of it."""
    sizes = history.n_parameters * np.geomspace(1 / 16, 64, 61)
    steps = (remaining / (6.0 * sizes * history.tokens_per_step)).astype(int)
    usable = (steps >= FEWEST_STEPS) & (steps <= MOST_STEPS)
    sizes, steps = sizes[usable], steps[usable]
    if not len(sizes):
        return np.nan, np.nan, np.nan
    plan = stretched(_whole_plan(history), 2000)
    targets = [
        Target(size, stretched(plan, int(count)), int(count), history.tokens_per_step)
        for size, count in zip(sizes, steps, strict=True)
    ]
    losses = np.concatenate([joint.predict([target])[0] for target in targets])
    near = sizes[losses <= losses.min() + 0.01]
    return float(sizes[int(np.argmin(losses))]), float(near[0]), float(near[-1])


def recommendation(options: Sequence[Option]) -> str:
    """The name of the first of `options`, which are sorted best first; `UNDECIDED` if its probability is below `SURE`."""
    return options[0].candidate.name if options[0].probability >= SURE else UNDECIDED
