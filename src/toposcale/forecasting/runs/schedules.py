"""Learning-rate schedules: the rate of every step of a training, known before it starts."""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Self

import numpy as np

from toposcale.io.errors import UserError, did_you_mean

MAX_STEPS = 10_000_000
"""Most steps of a training: the learning rate of every step is held in memory."""

# How the rate goes on after the warm-up; wsd is warm-up, stable, decay.
SHAPES = ("constant", "linear", "cosine", "wsd")

_DECAYS: dict[str, Callable[[float, float, np.ndarray], np.ndarray]] = {
    "linear": lambda peak, final, share: peak + (final - peak) * share,
    "cosine": lambda peak, final, share: final + (peak - final) * 0.5 * (1 + np.cos(np.pi * share)),
    "exponential": lambda peak, final, share: peak * (final / peak) ** share,
    "1-sqrt": lambda peak, final, share: final + (peak - final) * (1 - np.sqrt(share)),
}
DECAY_SHAPES = tuple(_DECAYS)
"""Shapes of the decay of a wsd schedule."""


@dataclass(frozen=True)
class Schedule:
    """Schedule of a shape: a linear warm-up of `warmup_steps` to `peak`, and then a shape that ends at `steps`.

    constant stays at the peak; linear and cosine decay to the minimum rate `final` from the end of the warm-up on; wsd
    stays at the peak until `decay_start` and then decays as `decay_shape` says. Raises ValueError for impossible numbers.
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
            raise ValueError(
                f"shape: {self.shape!r}, but it is one of {', '.join(SHAPES)}{did_you_mean(self.shape, SHAPES)}"
            )
        if self.decay_shape not in DECAY_SHAPES:
            meant = did_you_mean(self.decay_shape, DECAY_SHAPES)
            raise ValueError(f"decay_shape: {self.decay_shape!r}, but it is one of {', '.join(DECAY_SHAPES)}{meant}")
        if not (self.peak > 0 and math.isfinite(self.peak)):
            raise ValueError(f"peak: {self.peak}, but it is above 0 and finite")
        if not 0 <= self.final <= self.peak:
            raise ValueError(
                f"final: {self.final:g}, but it is a learning rate from 0 to the peak, {self.peak:g}, such as "
                f"{self.peak / 10:g} (without a peak it is a ratio to it)"
            )
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps: {self.warmup_steps}, but it is at least 0")
        if not 1 <= self.steps <= MAX_STEPS:
            raise ValueError(f"steps: {self.steps}, but a training has 1 to {MAX_STEPS:,}")
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
        """Return the rate of the update that follows `step` earlier ones, 0 <= step <= steps."""
        return float(self._rates_at(np.array([step]))[0])

    def rates(self) -> np.ndarray:
        """Return the rate of every step from 0 to the end, (steps + 1,)."""
        return self._rates_at(np.arange(self.steps + 1))

    def _rates_at(self, steps: np.ndarray) -> np.ndarray:
        """Return the rates at steps (n,); exactly the minimum at `steps`, after which nothing is updated."""
        rates = np.where(steps < self.warmup_steps, self.peak * ((steps + 1) / max(self.warmup_steps, 1)), self.peak)
        if self.shape != "constant":
            start, name = self.warmup_steps, self.shape
            if name == "wsd" and self.decay_start is not None:
                start, name = self.decay_start, self.decay_shape
            decays = (steps >= start) & (steps < self.steps)
            rates[decays] = _DECAYS[name](self.peak, self.final, (steps[decays] - start) / max(self.steps - start, 1))
            rates[steps >= self.steps] = self.final
        return rates

    def at_peak_of(self, steps: np.ndarray, rates: np.ndarray) -> Self:
        """Return the schedule, which is in units of its peak, with the peak of a log (rows,) that may start mid-run."""
        inside = np.isfinite(rates) & (rates > 0) & (steps <= self.steps)
        if not inside.any():
            return self
        shares, logged = self.rates()[steps[inside].astype(int)], rates[inside]
        at_peak = shares == 1
        peak = logged[at_peak].max() if at_peak.any() else np.median(logged / np.maximum(shares, 1e-3))
        return replace(self, peak=float(peak), final=self.final * float(peak))


@dataclass(frozen=True)
class ScheduleTable:
    """Tabulated schedule: rates at some steps, linear in between; the first row is of step 0 or 1."""

    at: tuple[int, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        steps, rates = np.array(self.at), np.array(self.values)
        if len(rates) != len(steps) or len(steps) < 2 or steps[0] not in (0, 1) or np.any(np.diff(steps) <= 0):
            raise ValueError("step: ascending from 0 or 1, in two rows at least, and a learning_rate in each")
        if steps[-1] > MAX_STEPS:
            raise ValueError(f"step: {steps[-1]:,}, but a training has at most {MAX_STEPS:,} steps")
        if not np.all(np.isfinite(rates)) or rates.min() < 0 or rates.max() <= 0:
            raise ValueError("learning_rate: finite and at least 0 in every row, and not 0 in all")

    @property
    def steps(self) -> int:
        """Step at which the training ends."""
        return self.at[-1]

    def rate(self, step: int) -> float:
        """Return the rate of the update that follows `step` earlier ones."""
        return float(np.interp(step, self.at, self.values))

    def rates(self) -> np.ndarray:
        """Return the rate of every step from 0 to the end, (steps + 1,)."""
        return np.interp(np.arange(self.steps + 1), self.at, self.values)


def schedule_of(source: Mapping[str, Any]) -> Schedule | ScheduleTable:
    """Return the schedule of its fields (`Schedule` or `ScheduleTable`); raise UserError if they make none."""
    try:
        if {"at", "values"} <= source.keys():
            return ScheduleTable(tuple(source["at"]), tuple(source["values"]))
        needed = {field.name: field.default is MISSING for field in fields(Schedule)}
        if unknown := [name for name in source if name not in needed]:
            meant = did_you_mean(unknown[0], needed)
            raise ValueError(f"unknown field {unknown[0]}; a schedule has {', '.join(needed)}{meant}")
        if missing := [name for name, must in needed.items() if must and name not in source]:
            raise ValueError(f"{missing[0]} is missing")
        _refuse_unused(schedule := Schedule(**source))
        return schedule
    except (TypeError, ValueError) as error:
        raise UserError(f"schedule: {error}") from error


def _refuse_unused(schedule: Schedule) -> None:
    """Raise ValueError for a number that the shape never reads, or a warm-up that fills the whole schedule."""
    if schedule.warmup_steps >= schedule.steps:
        raise ValueError(f"warmup_steps: {schedule.warmup_steps:,}, but the schedule ends at step {schedule.steps:,}")
    if schedule.decay_start is not None and schedule.shape != "wsd":
        raise ValueError(f"decay_start: not used by {schedule.shape}; a wsd schedule has it")
    if schedule.final and schedule.shape == "constant":
        raise ValueError("final: not used by constant, whose rate stays")
