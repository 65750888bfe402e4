"""Decisions of published training runs: what was done, what else could have been done, and the losses of both.

A folder of tables holds the runs. `runs.csv`: run, source, family, size, n_parameters, tokens_per_step, shape,
warmup_steps, decay_start, final_rate, steps, and optimizer and peak_rate where they are known. `curves.csv.gz`: run,
step, loss. `schedules.csv.gz`: run, step and rate as a share of the peak, the breakpoints of a schedule of the shape
`given`. `runs.csv` may also tell the objective, where it is another than the next token, epochs, and unique_tokens, those
of a text that is repeated.

A decision is a base run at a point, and larger sizes of its family that spend, from scratch, the compute that it had left.
Two things make their losses known: a run at a constant rate that is cut at a step is the run of so many steps; and of runs
that decay, pairs of lengths were trained that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from toposcale.forecasting.decision.candidates import CONTINUE, Candidate, CandidateKind
from toposcale.forecasting.runs.facts import RunFacts
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule, ScheduleProvenance
from toposcale.forecasting.runs.schedules import Schedule
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

ROUNDED = 1.005
"""A run counts as long enough where it ends within half a per cent of a length."""

NEXT_TOKEN, MOST_EPOCHS = "next token", 4
"""Runs of another objective, or of more epochs, are no pretraining as the prior means it."""

JUDGED_ONLY = ("cs336-zli12", "engram-wsl", "gpt3-digitised", "svg-chirantan")
"""Sources that came after the prior had been learnt. They judge, and teach nothing: the digitised curves leave a ramp of
the batch out, and their log alpha is 1.4 above that of the others."""

CONSTANT, GIVEN = "constant", "given"
ALONE, WITH_SMALLER, SEVERAL = "alone", "with smaller sizes", "several"


@dataclass(frozen=True)
class Run:
    """A published training run; `history` is finished."""

    source: str
    family: str
    size: str
    shape: str
    warmup_steps: int
    history: TrainingRun
    objective: str = NEXT_TOKEN

    @property
    def n_parameters(self) -> float:
        """Trained parameters, with embeddings."""
        return self.history.n_parameters

    @property
    def tokens(self) -> float:
        """Tokens that the whole run read."""
        return self.history.tokens_per_step * self.history.final_step

    @property
    def kind(self) -> str:
        """Its objective, and whether its text is repeated often, where either is unusual; else ""."""
        if self.objective != NEXT_TOKEN:
            return self.objective
        epochs = self.tokens / self.history.facts.unique_tokens
        return f"over {MOST_EPOCHS} epochs" if epochs > MOST_EPOCHS * ROUNDED else ""

    @property
    def is_learnt_from(self) -> bool:
        """Whether the prior is learnt from it: pretraining of a language model of a usual shape, on few epochs."""
        return not self.kind and self.is_usual and self.source not in JUDGED_ONLY

    @cached_property
    def is_usual(self) -> bool:
        """Whether the shape, where it is told as WIDTHxDEPTH, is that of a usual transformer."""
        width, _, depth = self.size.partition("x")
        return not depth.isdigit() or 10 <= int(width) / int(depth) <= 100

    def loss_at(self, step: float) -> float:
        """The loss at a step, between two rows by the logarithm of the step."""
        steps, losses = self.history.steps, self.history.losses
        return float(np.interp(np.log(step), np.log(steps), losses))

    def cut(self, step: float) -> TrainingRun:
        """The run of `step` steps that a run at a constant rate is up to there."""
        length, seen = max(round(step), 1), self.history.steps <= step
        steps, losses = self.history.steps[seen], self.history.losses[seen]
        return replace(
            self.history,
            steps=steps,
            losses=losses,
            checkpoint_steps=steps,
            checkpoint_losses=losses,
            gradient_norms=np.empty(0),
            schedule=LearningRateSchedule(
                length, _rates(CONSTANT, length, self.warmup_steps), ScheduleProvenance.GIVEN
            ),
        )


def read(folder: Path) -> list[Run]:
    """Every run of a folder."""
    table = pd.read_csv(folder / "runs.csv")
    curves = dict(list(pd.read_csv(folder / "curves.csv.gz").sort_values(["run", "step"]).groupby("run")))
    breakpoints = _breakpoints(folder)
    runs = []
    for row in table.to_dict("records"):
        steps, losses = (curves[row["run"]][name].to_numpy(np.float64) for name in ("step", "loss"))
        decay_share = row["decay_start"] / row["steps"]
        rates = (
            np.interp(np.arange(row["steps"] + 1), *breakpoints[row["run"]])
            if row["shape"] == GIVEN
            else _rates(row["shape"], row["steps"], row["warmup_steps"], decay_share, row["final_rate"])
        )
        peak = row.get("peak_rate", np.nan)
        facts = RunFacts(
            row["run"],
            row["n_parameters"],
            float(row["tokens_per_step"]),
            row["family"],
            optimizer=row.get("optimizer", ""),
            unique_tokens=row.get("unique_tokens", np.nan),
        )
        rates = rates * (peak if np.isfinite(peak) else 1.0)
        history = TrainingRun(
            facts,
            LearningRateSchedule(row["steps"], rates, ScheduleProvenance.GIVEN),
            steps=steps,
            losses=losses,
            checkpoint_steps=steps,
            checkpoint_losses=losses,
        )
        identity = {name: row[name] for name in ("source", "family", "size", "shape", "warmup_steps")}
        runs.append(Run(**identity, history=history, objective=row.get("objective", NEXT_TOKEN)))
    return runs


def _breakpoints(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Steps and rates between which the rate of a `GIVEN` schedule is linear, by run; none without their table."""
    path = folder / "schedules.csv.gz"
    if not path.exists():
        return {}
    table = pd.read_csv(path).sort_values(["run", "step"])
    return {
        str(run): (rows["step"].to_numpy(np.float64), rows["rate"].to_numpy(np.float64))
        for run, rows in table.groupby("run")
    }


def _rates(shape: str, steps: int, warmup: int, decay_share: float = np.nan, final: float = 1.0) -> np.ndarray:
    """(steps + 1,) learning rates in units of the peak."""
    warmup = min(warmup, steps - 1)
    decay = min(max(round(decay_share * steps), warmup), steps - 1) if shape == "wsd" else None
    return Schedule(shape, 1.0, steps, warmup, 0.0 if shape == CONSTANT else final, decay).rates()


class Start(NamedTuple):
    """A larger size that could be started: the run that spends what is left, and the loss at its end."""

    run: Run
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

    base: Run
    whole: TrainingRun
    now: TrainingRun
    loss: float
    starts: tuple[Start, ...]
    smaller: tuple[TrainingRun, ...]

    @property
    def name(self) -> str:
        """The base run, its length and the step where it stands."""
        return f"{self.base.history.model} {self.whole.final_step} {self.now.progress.step}"

    @property
    def continuing(self) -> Candidate:
        """To go on as planned."""
        left = self.now.final_step - self.now.progress.step
        return Candidate(CandidateKind.CONTINUE, CONTINUE, self.now.target(), left, self.now.flop_of_steps(left))

    @property
    def is_usual(self) -> bool:
        """Whether the base run and every start have the shape of a usual transformer."""
        return self.base.is_usual and all(start.run.is_usual for start in self.starts)


def decision_points(runs: Sequence[Run]) -> Iterator[DecisionPoint]:
    """Every point of every base run, with all the starts whose loss is known."""
    runs = best_of_sweeps(runs)
    for family in dict.fromkeys(run.family for run in runs):
        for shape in dict.fromkeys(run.shape for run in runs if run.family == family):
            own = [run for run in runs if (run.family, run.shape) == (family, shape)]
            yield from _of_constant(own) if shape == CONSTANT else _of_decaying(own)


MOST_RUNS, MOST_POINTS, FEWEST_POINTS = 40, 60, 5
"""Runs of a family whose ends are forecast, and decision points of a family and shape that are judged, for time: neighbours
differ little. A group of one or two points has no mean."""


def judged_runs(runs: Sequence[Run]) -> list[Run]:
    """The runs that decay whose ends are forecast: of each family at most `MOST_RUNS`."""
    return _thinned([run for run in runs if run.shape != CONSTANT], lambda run: run.family, MOST_RUNS)


def judged_points(runs: Sequence[Run]) -> list[DecisionPoint]:
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


def best_of_sweeps(runs: Sequence[Run]) -> list[Run]:
    """Of runs that differ by their peak rate alone the one that ends lowest: the others are no plan of anybody."""
    best: dict[tuple[object, ...], Run] = {}
    for run in runs:
        history = run.history
        plan = (history.final_step, history.tokens_per_step) if run.shape == GIVEN else (history.model,)
        key = (run.family, run.size, run.shape, *plan)
        if key not in best or history.losses[-1] < best[key].history.losses[-1]:
            best[key] = run
    return list(best.values())


def _of_constant(runs: Sequence[Run]) -> Iterator[DecisionPoint]:
    longest: dict[float, Run] = {}
    for run in sorted(runs, key=lambda run: (run.tokens, run.history.model)):
        longest[run.n_parameters] = run
    for base in longest.values():
        for length in _lengths(base):
            if length > base.history.steps[-1] * ROUNDED:
                continue
            whole = base.cut(length)
            read = whole.final_step * whole.tokens_per_step
            smaller = tuple(
                other.cut(min(read / other.history.tokens_per_step, other.history.steps[-1]))
                for other in longest.values()
                if other.n_parameters < base.n_parameters and other.is_usual
            )
            for share in SHARES:
                left = (1 - share) * length * base.n_parameters * base.history.tokens_per_step
                starts = []
                for other in longest.values():
                    bought = left / (other.n_parameters * other.history.tokens_per_step)
                    rows = other.history.steps <= bought
                    if other.n_parameters >= LARGER * base.n_parameters and rows.sum() >= 2 and not rows.all():
                        starts.append(Start(other, other.cut(bought), other.loss_at(bought)))
                now = whole.first(share)
                if starts and len(now.steps) >= FEWEST_ROWS:
                    loss = base.loss_at(min(length, base.history.steps[-1]))
                    yield DecisionPoint(base, whole, now, loss, tuple(starts), smaller)


def _lengths(base: Run) -> list[float]:
    """Steps at which a constant base run is cut."""
    return list(STEPS.get(base.source, [tokens / base.history.tokens_per_step for tokens in TOKENS]))


def _of_decaying(runs: Sequence[Run]) -> Iterator[DecisionPoint]:
    for base in runs:
        compute = base.n_parameters * base.tokens
        smaller = tuple(
            other.history
            for other in runs
            if other.n_parameters < base.n_parameters and other.tokens <= base.tokens * ROUNDED and other.is_usual
        )
        for other in runs:
            share = 1 - other.n_parameters * other.tokens / compute
            if other.n_parameters < LARGER * base.n_parameters or not EARLIEST <= share <= LATEST:
                continue
            now = base.history.first(share)
            if len(now.steps) >= FEWEST_ROWS:
                start = Start(other, other.history, float(other.history.losses[-1]))
                yield DecisionPoint(base, base.history, now, float(base.history.losses[-1]), (start,), smaller)
