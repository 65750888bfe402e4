"""Learning-rate schedules: the rate of every step of a training, known before it starts."""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from toposcale.io import tables
from toposcale.io.errors import UserError
from toposcale.io.log_columns import matched
from toposcale.io.step_names import MOST_STEPS

# How the rate goes on after the warm-up; wsd is warm-up, stable, decay.
SHAPES = ("constant", "linear", "cosine", "wsd")

_DECAYS: dict[str, Callable[[float, float, float], float]] = {
    "linear": lambda peak, final, share: peak + (final - peak) * share,
    "cosine": lambda peak, final, share: final + (peak - final) * 0.5 * (1 + math.cos(math.pi * share)),
    "exponential": lambda peak, final, share: peak * (final / peak) ** share,
    "1-sqrt": lambda peak, final, share: final + (peak - final) * (1 - math.sqrt(share)),
}
DECAY_SHAPES = tuple(_DECAYS)
"""How a wsd schedule falls from its peak to its final rate."""


@dataclass(frozen=True)
class Schedule:
    """The plan of a training: a linear warm-up of `warmup_steps` to `peak`, and then a shape that ends at `steps`.

    constant stays at the peak; linear and cosine fall to `final` from the end of the warm-up on; wsd stays at the peak
    until `decay_start` and then falls as `decay_shape` says. Raises ValueError for numbers that fit in no training.
    """

    shape: str
    peak: float
    steps: int
    warmup_steps: int = 0
    final: float = 0.0
    decay_start: int | None = None
    decay_shape: str = "linear"

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise ValueError(f"shape: {self.shape!r}, but it is one of {', '.join(SHAPES)}")
        if self.decay_shape not in DECAY_SHAPES:
            raise ValueError(f"decay_shape: {self.decay_shape!r}, but it is one of {', '.join(DECAY_SHAPES)}")
        if not (self.peak > 0 and math.isfinite(self.peak)):
            raise ValueError(f"peak: {self.peak}, but it is above 0 and finite")
        if not 0 <= self.final <= self.peak:
            raise ValueError(f"final: {self.final}, but it lies between 0 and the peak, {self.peak}")
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps: {self.warmup_steps}, but it is at least 0")
        if not 1 <= self.steps <= MOST_STEPS:
            raise ValueError(f"steps: {self.steps}, but a training has 1 to {MOST_STEPS:,}")
        if self.shape != "wsd":
            return
        if self.decay_start is None:
            raise ValueError("decay_start: missing, but a wsd schedule has a step at which its decay begins")
        if not self.warmup_steps <= self.decay_start < self.steps:
            raise ValueError(
                f"decay_start: {self.decay_start}, but it lies between the end of the warm-up, {self.warmup_steps}, "
                f"and the end, {self.steps}"
            )
        if self.decay_shape == "exponential" and not self.final:
            raise ValueError("final: 0, but an exponential decay ends above 0")

    def rate(self, step: int) -> float:
        """Rate of the update that follows `step` earlier ones, 0 <= step <= steps.

        peak (step + 1) / warmup_steps during the warm-up. At `steps`, after which nothing is updated, a shape that
        falls has exactly its final rate.
        """
        if step >= self.steps and self.shape != "constant":
            return self.final
        if step < self.warmup_steps:
            return self.peak * ((step + 1) / self.warmup_steps)
        start = self.decay_start if self.shape == "wsd" and self.decay_start is not None else self.warmup_steps
        if self.shape == "constant" or step < start:
            return self.peak
        fall = _DECAYS[self.decay_shape if self.shape == "wsd" else self.shape]
        return fall(self.peak, self.final, (step - start) / (self.steps - start))

    def rates(self) -> np.ndarray:
        """(steps + 1,) the rate of every step from 0 to the end."""
        return np.array([self.rate(step) for step in range(self.steps + 1)])


@dataclass(frozen=True)
class ScheduleTable:
    """A plan written out: rates at some steps, and between them a straight line; the first row stands at step 0 or 1."""

    at: tuple[int, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        steps, rates = np.array(self.at), np.array(self.values)
        if len(steps) < 2 or steps[0] not in (0, 1) or np.any(np.diff(steps) <= 0):
            raise ValueError("step: ascending from 0 or 1, in two rows at least")
        if steps[-1] > MOST_STEPS:
            raise ValueError(f"step: {steps[-1]:,}, but a training has at most {MOST_STEPS:,} steps")
        if not np.all(np.isfinite(rates)) or rates.min() < 0 or rates.max() <= 0:
            raise ValueError("learning_rate: finite and at least 0 in every row, and not 0 in all")

    @property
    def steps(self) -> int:
        """The step at which the training ends."""
        return self.at[-1]

    def rate(self, step: int) -> float:
        """Rate of the update that follows `step` earlier ones."""
        return float(np.interp(step, self.at, self.values))

    def rates(self) -> np.ndarray:
        """(steps + 1,) the rate of every step from 0 to the end."""
        return np.interp(np.arange(self.steps + 1), self.at, self.values)


def schedule_of(source: Mapping[str, Any] | str | Path) -> Schedule | ScheduleTable:
    """The plan of a configuration: the fields of `Schedule` or `ScheduleTable`, or a table with step and learning_rate.

    UserError: the file or the fields make no plan.
    """
    try:
        if isinstance(source, Mapping):
            if "at" in source:
                return ScheduleTable(tuple(source["at"]), tuple(source["values"]))
            needed = {field.name: field.default is MISSING for field in fields(Schedule)}
            if unknown := [name for name in source if name not in needed]:
                raise ValueError(f"{unknown[0]} means nothing there; a schedule has {', '.join(needed)}")
            if missing := [name for name, must in needed.items() if must and name not in source]:
                raise ValueError(f"{missing[0]} is missing")
            plan = Schedule(**source)
            _refuse_idle(plan)
            return plan
        if not Path(source).exists():
            raise ValueError(f"neither a shape ({', '.join(SHAPES)}) nor a file")
        data, _ = tables.read_any(Path(source))
        column_of, needed_columns = matched(data.schema.names, source), ("step", "learning_rate")
        if missing := [name for name in needed_columns if name not in column_of]:
            raise ValueError(f"no column {missing[0]}; a schedule has step and learning_rate (or lr)")
        steps, rates = (np.array(data[column_of[name]].to_pylist(), dtype=np.float64) for name in needed_columns)
        if np.any(steps % 1):
            raise ValueError("step: whole numbers")
        return ScheduleTable(tuple(steps.astype(int).tolist()), tuple(rates.tolist()))
    except (TypeError, ValueError) as error:
        where = "schedule" if isinstance(source, Mapping) else str(source)
        raise UserError(f"{where}: {error}") from error


def _refuse_idle(plan: Schedule) -> None:
    """ValueError: a number that the shape never reads, or a warm-up that fills the whole plan."""
    if plan.warmup_steps >= plan.steps:
        raise ValueError(f"warmup_steps: {plan.warmup_steps:,}, but the plan ends at step {plan.steps:,}")
    if plan.decay_start is not None and plan.shape != "wsd":
        raise ValueError(f"decay_start: means nothing for {plan.shape}; a wsd schedule has it")
    if plan.final and plan.shape == "constant":
        raise ValueError("final: means nothing for constant, whose rate stays")


def plan_of_training(
    final_step: int,
    steps: np.ndarray,
    rates: np.ndarray,
    schedule: Schedule | ScheduleTable | None = None,
    warmup_steps: float | None = None,
) -> tuple[np.ndarray, str]:
    """(final_step + 1,) the rate of every step, and where it is known from; empty, and why, where it is not known.

    steps, rates: the rows of the log or of a table, those to come among them, NaN for unknown. A schedule comes first;
    without one the rows up to the end; then a line or a cosine on which the logged rates lie. Before the first row a linear
    warm-up of `warmup_steps`, where that is known. UserError: the log contradicts the schedule.
    """
    usable, every_step = np.isfinite(rates), np.arange(final_step + 1)
    steps, rates = np.asarray(steps)[usable], np.asarray(rates, dtype=np.float64)[usable]
    if schedule is not None:
        planned = schedule.rates()
        _compare(schedule, planned, steps, rates)
        return planned[np.minimum(every_step, len(planned) - 1)], "given"
    logged = rates_of_log(steps, rates, warmup_steps)
    if isinstance(logged, str):
        return np.empty(0), logged
    # A log ends up to one interval between rows before its training does.
    if final_step - steps[-1] <= np.median(np.diff(steps)):
        return logged[np.minimum(every_step, len(logged) - 1)], "rows"
    ahead = recognised(steps, rates, final_step)
    if ahead is None:
        return np.empty(0), f"the learning rates after step {int(steps[-1]):,} are not known"
    return np.concatenate([logged, ahead[1:]]), "recognised"


def planned(
    row: Mapping[str, Any], facts: Mapping[str, Any], steps: ArrayLike = (), rates: ArrayLike = ()
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A row of the models table with where its plan is known from, and its rows of the schedules table.

    facts: `schedule`, where it is given, is what `schedule_of` takes, `warmup_steps` the steps of the warm-up. steps,
    rates: those of the training log. UserError: the log contradicts the schedule.
    """
    schedule = schedule_of(facts["schedule"]) if facts.get("schedule") else None
    try:
        every_rate, plan = plan_of_training(
            row["final_step"], np.asarray(steps), np.asarray(rates, float), schedule, facts.get("warmup_steps")
        )
    except UserError as error:
        raise UserError(f"models.{row['model']}.{error}") from None
    if row.get("warmup_steps") is None and isinstance(schedule, ScheduleTable):
        row = {**row, "warmup_steps": int(np.argmax(schedule.rates()))}
    at = breakpoints(every_rate).tolist() if len(every_rate) else []
    rows = [{"model": row["model"], "step": k, "learning_rate": float(every_rate[k])} for k in at]
    return {**row, "plan": plan}, rows


LARGEST_GAP, LEAST_GAP = 0.05, 1e-5
"""By how much of the peak a logged rate may differ from the plan: as much in the warm-up, which starts in many ways, and of
roundly printed rates; and as little as rates of 32 bits do."""


def _compare(schedule: Schedule | ScheduleTable, planned: np.ndarray, steps: np.ndarray, rates: np.ndarray) -> None:
    """UserError where the log goes on after the plan, or does not meet it within the digits that were printed.

    A log may count its steps in its own way: the rate of the step before or after is as good. Edges are not compared.
    """
    if len(steps) and steps.max() > 1.01 * (len(planned) - 1):
        raise UserError(
            f"schedule: it ends at step {len(planned) - 1:,}, but the log goes to step {int(steps.max()):,}; give the "
            "schedule of the whole training"
        )
    inside = (steps >= 1) & (steps < len(planned) - 1)
    at, peak = steps[inside].astype(int), planned.max()
    nearest = np.stack([planned[at - 1], planned[at], planned[at + 1]])
    off = np.maximum(rates[inside] - nearest.max(axis=0), nearest.min(axis=0) - rates[inside])
    allowed = LEAST_GAP * peak + rounding(rates)[inside]
    if isinstance(schedule, ScheduleTable):
        allowed = allowed + _between_rows(schedule, at)
    allowed = np.where(at < np.argmax(planned), np.inf, allowed)
    too_far = off - np.minimum(allowed, LARGEST_GAP * peak)
    if len(at) and too_far.max() > 0:
        worst = int(np.argmax(too_far))
        raise UserError(
            f"schedule: it gives a learning rate of {planned[at[worst]]:.6g} at step {at[worst]:,}, but the log has "
            f"{rates[inside][worst]:.6g}; give the schedule that was run (its peak, warm-up, last step and final rate), or "
            "a file with its rates"
        )


def rounding(values: np.ndarray) -> np.ndarray:
    """By how much numbers may differ from what was printed: half of the last digit, as the longest of them have it.

    Numbers may be printed with so many decimals, or with so many digits: what allows more counts. One number alone, as of
    a constant rate, is exact.
    """
    different = np.unique(values[values > 0])
    if len(different) < 2:
        return np.zeros(len(values))
    some = different[np.linspace(0, len(different) - 1, min(len(different), 500)).round().astype(int)]
    texts = [np.format_float_scientific(value, trim="-").split("e") for value in some]
    digits = max(len(mantissa.replace(".", "")) for mantissa, _ in texts)
    decimals = max(len(mantissa.replace(".", "")) - 1 - int(exponent) for mantissa, exponent in texts)
    magnitude = np.floor(np.log10(np.maximum(values, 1e-300)))
    return 0.5 * np.maximum(10.0**-decimals, 10.0 ** (magnitude - digits + 1))


def _between_rows(schedule: ScheduleTable, at: np.ndarray) -> np.ndarray:
    """How far the rates at some steps may lie off the lines between the rows: half of how far a row lies off the line
    between its neighbours, which of a smooth plan is twice too much; and the rounding of the rows."""
    steps, rates = np.array(schedule.at, dtype=np.float64), np.array(schedule.values)
    bend = np.zeros(len(steps))
    if len(steps) > 2:
        share = (steps[1:-1] - steps[:-2]) / (steps[2:] - steps[:-2])
        bend[1:-1] = np.abs(rates[1:-1] - (1 - share) * rates[:-2] - share * rates[2:])
    following = np.clip(np.searchsorted(steps, at), 1, len(steps) - 1)
    return 0.5 * np.maximum(bend[following - 1], bend[following]) + rounding(rates)[following]


MOST_BREAKPOINTS = 2000


def breakpoints(rates: np.ndarray) -> np.ndarray:
    """Return at most `MOST_BREAKPOINTS` steps: lines between their rates are the schedule, as far as a loss can tell."""
    last = len(rates) - 1
    if last < MOST_BREAKPOINTS:
        return np.arange(last + 1)
    kinks = np.abs(np.diff(rates, 2))
    sharpest = np.argsort(-kinks, kind="stable")[: MOST_BREAKPOINTS // 3]
    sharpest = sharpest[kinks[sharpest] > 1e-9 * rates.max()] + 1
    even = np.linspace(0, last, MOST_BREAKPOINTS // 3).round().astype(int)
    # Both sides of a kink: a rate that jumps stays where it was up to the jump.
    return np.unique(np.concatenate([even, sharpest, np.minimum(sharpest + 1, last)]))


def rates_of_log(steps: np.ndarray, rates: np.ndarray, warmup_steps: float | None = None) -> np.ndarray | str:
    """Rates of every step up to the last logged one; a text says why they are not known.

    Between logged rows the rate is interpolated. Rates before the first row are never filled in backwards: they are a
    linear warm-up of `warmup_steps` where that is known. The log has to begin within an interval between its rows after it.
    """
    usable = np.isfinite(rates) & (steps >= 0)
    steps, rates = (np.asarray(values, dtype=np.float64)[usable] for values in (steps, rates))
    if len(steps) < 2:
        return "no learning rates are logged"
    if np.any(rates < 0) or rates.max() <= 0:
        return "a logged learning rate is negative, or all of them are 0"
    first = int(steps[0])
    warmup = int(warmup_steps or 0)
    if first > warmup + np.median(np.diff(steps)) + 1:
        what = f"the learning rates before step {first:,} are not known"
        return f"{what}: give the schedule, or warmup_steps if the warm-up ends there"
    every = np.interp(np.arange(int(steps[-1]) + 1), steps, rates)
    if warmup:
        # The peak is the rate at the end of the warm-up, or, where that was not logged, the first one that was.
        end = min(warmup, int(steps[-1]))
        before = min(end, first)
        every[:before] = every[end] * np.arange(1, before + 1) / warmup
    return every


def warmup_of(steps: ArrayLike, rates: ArrayLike) -> float | None:
    """Steps of warm-up as a training log tells them: the first step at the highest learning rate (steps, rates (T,)).

    None where a rate is missing, or where a log that begins later has its highest rate in its first row: what was before
    is not known.
    """
    times, logged = np.asarray(steps, dtype=np.float64), np.asarray(rates, dtype=np.float64)
    if len(times) == 0 or not np.isfinite(logged).all():
        return None
    peak = int(np.argmax(logged))
    return float(times[peak]) if peak > 0 or times[0] <= 1 else None


def recognised(steps: np.ndarray, rates: np.ndarray, final_step: int) -> np.ndarray | None:
    """The rates from the last logged step to `final_step`, where the log lies exactly on a line or on a cosine there.

    steps, rates: the logged rows. A line has two unknowns and a cosine three; four rows past the highest rate, and a misfit
    below 1e-4 of it, are asked for. None where the rates so far do not tell, as a constant rate never does.
    """
    if not len(rates) or not rates.max() > 0:
        return None
    falling = slice(len(rates) - int(np.argmax(rates[::-1])) - 1, None)
    past, seen = steps[falling], rates[falling]
    if len(past) < 4 or past[-1] > final_step or seen[-1] > seen[0] * (1 - 1e-3):
        return None
    ahead = np.arange(int(past[-1]), final_step + 1, dtype=np.float64)
    starts = np.unique(np.concatenate([[0.0], np.linspace(0, past[0], 101)]))
    shapes = [_cosine(float(w), final_step) for w in (*starts, *_refined(past, seen, final_step, starts))]
    shapes.insert(0, lambda at: 1 - at / final_step)
    misfit, carried = min((_fitted(past, seen, ahead, shape) for shape in shapes), key=lambda fit: fit[0])
    if misfit > 1e-4 * seen[0] or carried.min() < -1e-4 * seen[0]:
        return None
    return np.maximum(carried, 0.0)


def _cosine(start: float, final_step: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda at: np.cos(np.pi * (at - start) / (final_step - start))


def _refined(past: np.ndarray, seen: np.ndarray, final_step: int, starts: np.ndarray) -> np.ndarray:
    """Whole steps around the start of a cosine that fits best."""
    misfits = [_fitted(past, seen, past, _cosine(float(w), final_step))[0] for w in starts]
    best, gap = starts[int(np.argmin(misfits))], starts[1] - starts[0] if len(starts) > 1 else 1.0
    around = np.arange(max(best - gap, 0), min(best + gap, past[0]) + 1)
    return around[:: max(1, len(around) // 400)]


def _fitted(
    past: np.ndarray, seen: np.ndarray, ahead: np.ndarray, shape: Callable[[np.ndarray], np.ndarray]
) -> tuple[float, np.ndarray]:
    """Largest misfit of offset + scale * shape(step) to the rows seen, and its values ahead."""
    form = shape(past)
    centred = form - form.mean()
    scale = float(np.sum(centred * (seen - seen.mean())) / max(float(np.sum(centred**2)), 1e-300))
    offset = float(seen.mean() - scale * form.mean())
    return float(np.max(np.abs(offset + scale * form - seen))), offset + scale * shape(ahead)
