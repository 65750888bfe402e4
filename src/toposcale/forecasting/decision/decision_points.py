"""Decisions of finished training runs whose outcomes are all known: what was done, and what else could have been done.

A decision is a base run at a point, and larger sizes of its family that spend, from scratch, the compute that it had left.
Two things make their losses known: a run at a constant rate that is cut at a step is the run of so many steps; and of runs
that decay, pairs of lengths were trained that fit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.decision.candidates import CONTINUE, Candidate, CandidateKind
from toposcale.forecasting.runs.published_run import CONSTANT, GIVEN, ROUNDED, PublishedRun
from toposcale.forecasting.runs.training_run import TrainingRun

LARGER = 1.5
"""A start is at least so many times as large as the base run."""

SHARES = (0.2, 0.3, 0.5)
"""Shares of a run at which it is forecast and decided on."""

TOKENS = (20e9, 50e9, 100e9, 200e9, 350e9)
"""Lengths at which a constant run is cut, in tokens."""

STEPS = {"multi-power-law": (12_000, 24_000, 36_000, 48_000, 72_000), "lr-scheduling": (10_000, 20_000)}
"""The same in steps, of sources whose runs are shorter than that."""

EARLIEST = 0.15
"""Least share of a run at which a pair of runs that decay is a decision."""

LATEST = 0.75
"""Largest such share."""

MIN_ROWS = 5
"""Rows of the base run before a point, as the program asks for."""


class Start(NamedTuple):
    """A larger size that could be started: the run that spends what is left, and the loss at its end."""

    run: PublishedRun
    history: TrainingRun
    loss: float

    @property
    def candidate(self) -> Candidate:
        """Start as the advice sees it: only its size and its schedule are known."""
        target = self.history.target()._replace(model="")
        name = f"scale up to {self.history.model}"
        return Candidate(CandidateKind.SCALE_UP, name, target, target.step, self.history.flop_of_steps(target.step))


@dataclass(frozen=True)
class DecisionPoint:
    """A base run of `whole` steps that stands at `now`; the loss at its end; what could be started instead."""

    base: PublishedRun
    whole: TrainingRun
    now: TrainingRun
    loss: float
    starts: tuple[Start, ...]
    smaller: tuple[TrainingRun, ...]

    @property
    def name(self) -> str:
        """Base run, its length and the step where it stands."""
        return f"{self.base.model} {self.whole.final_step} {self.now.progress.step}"

    @property
    def continuing(self) -> Candidate:
        """Candidate that goes on as planned."""
        left = self.now.final_step - self.now.progress.step
        return Candidate(CandidateKind.CONTINUE, CONTINUE, self.now.target(), left, self.now.flop_of_steps(left))

    @property
    def is_usual(self) -> bool:
        """Return whether the base run and every start have the shape of a usual transformer."""
        return self.base.is_usual and all(start.run.is_usual for start in self.starts)


def decision_points(runs: Sequence[PublishedRun], at: Sequence[float] = SHARES) -> Iterator[DecisionPoint]:
    """Yield every point of every base run, with all the starts whose loss is known; `at`: shares of constant runs."""
    runs = best_of_sweeps(runs)
    for family in dict.fromkeys(run.family for run in runs):
        for shape in dict.fromkeys(run.shape for run in runs if run.family == family):
            group = [run for run in runs if (run.family, run.shape) == (family, shape)]
            yield from _of_constant(group, at) if shape == CONSTANT else _of_decaying(group)


MAX_RUNS = 40
"""Runs of a family whose ends are forecast, for time: neighbours differ little."""

MAX_POINTS = 60
"""Decision points of a family and shape that are judged, for time."""

MIN_POINTS = 5
"""Points that a group needs: of one or two there is no mean."""


def judged_runs(runs: Sequence[PublishedRun]) -> list[PublishedRun]:
    """Return the runs that decay whose ends are forecast: of each family at most `MAX_RUNS`."""
    return _thinned([run for run in runs if run.shape != CONSTANT], lambda run: run.family, MAX_RUNS)


def judged_points(runs: Sequence[PublishedRun], at: Sequence[float] = SHARES) -> list[DecisionPoint]:
    """Return the decision points that are judged.

    Of each family, schedule and usual or odd shapes at most `MAX_POINTS`; none where there are fewer than `MIN_POINTS`.
    """

    def key(point: DecisionPoint) -> tuple[str, str, bool]:
        return point.base.family, point.base.shape, point.is_usual

    return _thinned(list(decision_points(runs, at)), key, MAX_POINTS, MIN_POINTS)


def _thinned(items: Sequence[Any], key: Callable[[Any], Any], most: int, fewest: int = 1) -> list[Any]:
    """Return of the items of each key at most so many, evenly spaced; none of fewer than `fewest`."""
    parts: dict[Any, list[Any]] = {}
    for item in items:
        parts.setdefault(key(item), []).append(item)
    return [item for part in parts.values() if len(part) >= fewest for item in spread_out(part, most)]


def spread_out(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many of the items, evenly spaced."""
    places = np.unique(np.linspace(0, len(items) - 1, min(len(items), most)).round().astype(int))
    return [items[place] for place in places]


def best_of_sweeps(runs: Sequence[PublishedRun]) -> list[PublishedRun]:
    """Return, of runs that differ in their peak rate only, the one that ends lowest: nobody would plan the others."""
    best: dict[tuple[object, ...], PublishedRun] = {}
    for run in runs:
        plan = (run.final_step, run.tokens_per_step) if run.shape == GIVEN else (run.model,)
        key = (run.family, run.size, run.shape, *plan)
        if key not in best or run.losses[-1] < best[key].losses[-1]:
            best[key] = run
    return list(best.values())


def _of_constant(runs: Sequence[PublishedRun], at: Sequence[float]) -> Iterator[DecisionPoint]:
    longest: dict[float, PublishedRun] = {}
    for run in sorted(runs, key=lambda run: (run.tokens, run.model)):
        longest[run.n_parameters] = run
    for base in longest.values():
        for length in STEPS.get(base.source) or [base.cost.steps_of_tokens(tokens) for tokens in TOKENS]:
            if length > base.steps[-1] * ROUNDED:
                continue
            whole = base.cut(length)
            tokens = whole.cost.tokens(whole.final_step)
            smaller = tuple(
                other.cut(min(other.cost.steps_of_tokens(tokens), other.steps[-1]))
                for other in longest.values()
                if other.n_parameters < base.n_parameters and other.is_usual
            )
            for share in at:
                left = base.cost.flop((1 - share) * length)
                starts = []
                for other in longest.values():
                    bought = other.cost.steps_of_flop(left)
                    rows = other.steps <= bought
                    if other.n_parameters >= LARGER * base.n_parameters and rows.sum() >= 2 and not rows.all():
                        starts.append(Start(other, other.cut(bought), other.loss_at(bought)))
                now = whole.first(share)
                if starts and len(now.steps) >= MIN_ROWS:
                    loss = base.loss_at(min(length, base.steps[-1]))
                    yield DecisionPoint(base, whole, now, loss, tuple(starts), smaller)


def _of_decaying(runs: Sequence[PublishedRun]) -> Iterator[DecisionPoint]:
    for base in runs:
        compute = base.flop_of_steps(base.final_step)
        smaller = tuple(
            other
            for other in runs
            if other.n_parameters < base.n_parameters and other.tokens <= base.tokens * ROUNDED and other.is_usual
        )
        for other in runs:
            share = 1 - other.flop_of_steps(other.final_step) / compute
            if other.n_parameters < LARGER * base.n_parameters or not EARLIEST <= share <= LATEST:
                continue
            now = base.first(share)
            if len(now.steps) >= MIN_ROWS:
                start = Start(other, other, float(other.losses[-1]))
                yield DecisionPoint(base, base, now, float(base.losses[-1]), (start,), smaller)
