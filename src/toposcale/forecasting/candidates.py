"""What can be done with the compute that is left of a training run: finish it, extend it, or start another size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.history import History
from toposcale.forecasting.joint import Target, target_of

FEWEST_STEPS, MOST_STEPS = 50, 2_000_000
"""Steps outside which a fresh start is no training."""

MULTIPLES = (2.0, 4.0)
FINISH, EXTEND = "finish", "extend"


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


def flop(n_parameters: Any, tokens: Any) -> Any:
    """Training compute C = 6 N D (Kaplan et al. 2020, arXiv 2001.08361), in FLOP; of numbers or arrays."""
    return 6.0 * n_parameters * tokens


def compute_of(history: History, step: np.ndarray | float) -> np.ndarray:
    """Training compute after `step` steps, FLOP."""
    return np.asarray(
        flop(history.n_parameters, history.tokens_per_step * np.asarray(step, dtype=np.float64))
    )


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
        if 1.05 * ahead < bought <= MOST_STEPS:
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
        steps = int(remaining / flop(size, tokens))
        if not FEWEST_STEPS <= steps <= MOST_STEPS:
            continue
        shape = like if like.plan_known and not len(like.loss_curve[0]) else history
        rates = stretched(whole_plan(shape), steps)
        found.append(
            Candidate(f"start {name}", Target(size, rates, steps, tokens), steps, flop(size, tokens * steps))
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
    return Target(history.n_parameters, rates, now + steps, history.tokens_per_step, history.model)


def whole_plan(history: History) -> np.ndarray:
    if history.plan_known:
        return history.rates_to(history.final_step)
    warmup = max(history.warmup_steps, 1)
    return np.minimum(np.arange(1, history.final_step + 2) / warmup, 1.0)
