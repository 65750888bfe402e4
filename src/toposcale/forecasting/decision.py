"""The decision between candidates: the one that is expected to lose least against the best one, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.candidates import (
    FEWEST_STEPS,
    FINISH,
    MOST_STEPS,
    Candidate,
    flop,
    stretched,
    whole_plan,
)
from toposcale.forecasting.history import History
from toposcale.forecasting.intervals import NORMAL
from toposcale.forecasting.joint import Joint, Target, target_of
from toposcale.forecasting.prediction import Prediction

SURE = 0.8
"""Probability to be the best below which the advice leans only."""

DRAWS = 4096


class Option(NamedTuple):
    """A candidate with its forecast, and what speaks for it."""

    candidate: Candidate
    loss: Prediction  # at its end
    gain: Prediction  # loss of finishing less its loss
    probability: float  # to be the best of all
    at_stake: float  # expected regret: the loss expected to be given up against the best

    @property
    def is_sure(self) -> bool:
        """Whether it is the best with a probability of at least `SURE`."""
        return self.probability >= SURE

    @property
    def told(self) -> dict[str, str | float]:
        """What the tables and advice.json hold of every candidate, by name."""
        ends = {"loss": self.loss, "gain": self.gain}
        named = {name: forecast.value for name, forecast in ends.items()}
        named |= {f"{name}_low": forecast.low for name, forecast in ends.items()}
        named |= {f"{name}_high": forecast.high for name, forecast in ends.items()}
        return {
            "candidate": self.candidate.name,
            "n_parameters": round(self.candidate.target.n_parameters),
            "steps": self.candidate.steps,
            **named,
            "probability": self.probability,
            "at_stake": self.at_stake,
        }

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


def weigh(joint: Joint, found: Sequence[Candidate], seed: int = 0) -> Decision:
    """The decision between at least one candidate, from one law: what their forecasts share does not blur the
    comparison."""
    losses, covariance = joint.predict([candidate.target for candidate in found])
    root = np.linalg.cholesky(covariance + np.diag(np.full(len(losses), 1e-12)))
    noise = np.random.default_rng(seed).standard_normal((DRAWS, len(losses)))
    draws = losses + np.einsum("dj,ij->di", noise, root)
    best = np.bincount(np.argmin(draws, axis=1), minlength=len(losses)) / DRAWS
    stake = np.mean(draws - draws.min(axis=1, keepdims=True), axis=0)
    names = [candidate.name for candidate in found]
    finish = names.index(FINISH) if FINISH in names else 0
    options = [
        Option(
            candidate,
            Prediction.of(float(losses[place]), float(np.sqrt(covariance[place, place]))),
            _difference(losses, covariance, finish, place),
            float(best[place]),
            float(stake[place]),
        )
        for place, candidate in enumerate(found)
    ]
    options.sort(key=lambda option: (option.at_stake, option.candidate.name))
    stop = sum(option.probability for option in options if option.candidate.is_start)
    return Decision(tuple(options), float(stop))


def _difference(losses: np.ndarray, covariance: np.ndarray, one: int, other: int) -> Prediction:
    """The first loss less the second, with its 95% interval."""
    value = float(losses[one] - losses[other])
    variance = covariance[one, one] + covariance[other, other] - 2 * covariance[one, other]
    half = NORMAL * float(np.sqrt(max(variance, 0.0)))
    return Prediction(value, value - half, value + half)


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
    steps = (remaining / flop(sizes, history.tokens_per_step)).astype(int)
    usable = (steps >= FEWEST_STEPS) & (steps <= MOST_STEPS)
    sizes, steps = sizes[usable], steps[usable]
    if not len(sizes):
        return np.nan, np.nan, np.nan
    plan = stretched(whole_plan(history), 2000)
    targets = [
        Target(size, stretched(plan, int(count)), int(count), history.tokens_per_step)
        for size, count in zip(sizes, steps, strict=True)
    ]
    losses = np.concatenate([joint.predict([target])[0] for target in targets])
    near = sizes[losses <= losses.min() + 0.01]
    return float(sizes[int(np.argmin(losses))]), float(near[0]), float(near[-1])
