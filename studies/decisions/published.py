"""Decisions of published training runs: what was done, what else could have been done, and the losses of both.

A decision is a base run at a point, and larger sizes of its family that spend, from scratch, the compute that it had left.
Two things make their losses known: a run at a constant rate that is cut at a step is the run of so many steps; and of runs
that decay, pairs of lengths were trained that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies.decisions import PUBLISHED_RUNS
from toposcale.datasets import load_published_runs
from toposcale.forecasting.decision.candidates import CONTINUE, Candidate, CandidateKind
from toposcale.forecasting.runs.published_run import CONSTANT, GIVEN, ROUNDED, PublishedRun
from toposcale.forecasting.runs.training_run import TrainingRun

LARGER = 1.5
"""A start is at least so many times as large as the base run."""

SHARES = (0.2, 0.3, 0.5)
TOKENS = (20e9, 50e9, 100e9, 200e9, 350e9)
STEPS = {"multi-power-law": (12_000, 24_000, 36_000, 48_000, 72_000), "lr-scheduling": (10_000, 20_000)}
"""Lengths at which a constant run is cut: tokens; steps of a source whose runs are shorter than that."""

EARLIEST, LATEST = 0.15, 0.75
"""A pair of runs that decay is a decision where its point lies between these shares."""

FEWEST_ROWS = 5
"""Rows of the base run before a point, as the program asks for."""

JUDGED_ONLY = ("cs336-zli12", "engram-wsl", "gpt3-digitised", "svg-chirantan")
"""Sources that came after the prior had been learnt. They judge, and teach nothing: the digitised curves leave a ramp of
the batch out, and their log alpha is 1.4 above that of the others."""

ALONE, WITH_SMALLER, SEVERAL = "alone", "with smaller sizes", "several"


def read(folder: Path = PUBLISHED_RUNS) -> Sequence[PublishedRun]:
    """The runs that the law was made with in view, or every run of another folder."""
    return load_published_runs(tags="seen") if folder == PUBLISHED_RUNS else load_published_runs(folder=folder)


def is_learnt_from(run: PublishedRun) -> bool:
    """Whether the prior is learnt from it: pretraining of a language model of a usual shape, on few epochs."""
    return not run.kind and run.is_usual and run.source not in JUDGED_ONLY


class Start(NamedTuple):
    """A larger size that could be started: the run that spends what is left, and the loss at its end."""

    run: PublishedRun
    history: TrainingRun
    loss: float

    @property
    def candidate(self) -> Candidate:
        """The start as the advice sees it: only its size and its plan are known."""
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
        """The base run, its length and the step where it stands."""
        return f"{self.base.model} {self.whole.final_step} {self.now.progress.step}"

    @property
    def continuing(self) -> Candidate:
        """To go on as planned."""
        left = self.now.final_step - self.now.progress.step
        return Candidate(CandidateKind.CONTINUE, CONTINUE, self.now.target(), left, self.now.flop_of_steps(left))

    @property
    def is_usual(self) -> bool:
        """Whether the base run and every start have the shape of a usual transformer."""
        return self.base.is_usual and all(start.run.is_usual for start in self.starts)


def decision_points(runs: Sequence[PublishedRun]) -> Iterator[DecisionPoint]:
    """Every point of every base run, with all the starts whose loss is known."""
    runs = best_of_sweeps(runs)
    for family in dict.fromkeys(run.family for run in runs):
        for shape in dict.fromkeys(run.shape for run in runs if run.family == family):
            own = [run for run in runs if (run.family, run.shape) == (family, shape)]
            yield from _of_constant(own) if shape == CONSTANT else _of_decaying(own)


MOST_RUNS, MOST_POINTS, FEWEST_POINTS = 40, 60, 5
"""Runs of a family whose ends are forecast, and decision points of a family and shape that are judged, for time: neighbours
differ little. A group of one or two points has no mean."""


def judged_runs(runs: Sequence[PublishedRun]) -> list[PublishedRun]:
    """The runs that decay whose ends are forecast: of each family at most `MOST_RUNS`."""
    return _thinned([run for run in runs if run.shape != CONSTANT], lambda run: run.family, MOST_RUNS)


def judged_points(runs: Sequence[PublishedRun]) -> list[DecisionPoint]:
    """The decision points that are judged: of each family, schedule and usual or odd shapes at most `MOST_POINTS`; none
    where there are fewer than `FEWEST_POINTS`."""

    def key(point: DecisionPoint) -> tuple[str, str, bool]:
        return point.base.family, point.base.shape, point.is_usual

    return _thinned(list(decision_points(runs)), key, MOST_POINTS, FEWEST_POINTS)


def _thinned(items: Sequence[Any], key: Callable[[Any], Any], most: int, fewest: int = 1) -> list[Any]:
    """Of the items of each key at most so many, evenly spaced; none of fewer than `fewest`."""
    parts: dict[Any, list[Any]] = {}
    for item in items:
        parts.setdefault(key(item), []).append(item)
    return [item for part in parts.values() if len(part) >= fewest for item in spread_out(part, most)]


def spread_out(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many of the items, evenly spaced."""
    places = np.unique(np.linspace(0, len(items) - 1, min(len(items), most)).round().astype(int))
    return [items[place] for place in places]


def best_of_sweeps(runs: Sequence[PublishedRun]) -> list[PublishedRun]:
    """Of runs that differ by their peak rate alone the one that ends lowest: the others are no plan of anybody."""
    best: dict[tuple[object, ...], PublishedRun] = {}
    for run in runs:
        plan = (run.final_step, run.tokens_per_step) if run.shape == GIVEN else (run.model,)
        key = (run.family, run.size, run.shape, *plan)
        if key not in best or run.losses[-1] < best[key].losses[-1]:
            best[key] = run
    return list(best.values())


def _of_constant(runs: Sequence[PublishedRun]) -> Iterator[DecisionPoint]:
    longest: dict[float, PublishedRun] = {}
    for run in sorted(runs, key=lambda run: (run.tokens, run.model)):
        longest[run.n_parameters] = run
    for base in longest.values():
        for length in _lengths(base):
            if length > base.steps[-1] * ROUNDED:
                continue
            whole = base.cut(length)
            read = whole.final_step * whole.tokens_per_step
            smaller = tuple(
                other.cut(min(read / other.tokens_per_step, other.steps[-1]))
                for other in longest.values()
                if other.n_parameters < base.n_parameters and other.is_usual
            )
            for share in SHARES:
                left = (1 - share) * length * base.n_parameters * base.tokens_per_step
                starts = []
                for other in longest.values():
                    bought = left / (other.n_parameters * other.tokens_per_step)
                    rows = other.steps <= bought
                    if other.n_parameters >= LARGER * base.n_parameters and rows.sum() >= 2 and not rows.all():
                        starts.append(Start(other, other.cut(bought), other.loss_at(bought)))
                now = whole.first(share)
                if starts and len(now.steps) >= FEWEST_ROWS:
                    loss = base.loss_at(min(length, base.steps[-1]))
                    yield DecisionPoint(base, whole, now, loss, tuple(starts), smaller)


def _lengths(base: PublishedRun) -> list[float]:
    """Steps at which a constant base run is cut."""
    return list(STEPS.get(base.source, [tokens / base.tokens_per_step for tokens in TOKENS]))


def _of_decaying(runs: Sequence[PublishedRun]) -> Iterator[DecisionPoint]:
    for base in runs:
        compute = base.n_parameters * base.tokens
        smaller = tuple(
            other
            for other in runs
            if other.n_parameters < base.n_parameters and other.tokens <= base.tokens * ROUNDED and other.is_usual
        )
        for other in runs:
            share = 1 - other.n_parameters * other.tokens / compute
            if other.n_parameters < LARGER * base.n_parameters or not EARLIEST <= share <= LATEST:
                continue
            now = base.first(share)
            if len(now.steps) >= FEWEST_ROWS:
                start = Start(other, other, float(other.losses[-1]))
                yield DecisionPoint(base, base, now, float(base.losses[-1]), (start,), smaller)
