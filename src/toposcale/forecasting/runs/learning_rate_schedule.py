"""The learning-rate schedule of a training run, and its provenance."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from toposcale.forecasting.runs.schedules import Schedule, ScheduleTable
from toposcale.forecasting.runs.series import in_order, read_only
from toposcale.io.errors import UserError


class ScheduleProvenance(StrEnum):
    """Source of the learning rates up to the end of a run."""

    GIVEN = "given"
    LOGGED = "logged"
    RECOGNISED = "recognised"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class LearningRateSchedule:
    """Learning rates of a run, as far as they are known.

    Parameters
    ----------
    final_step : int
        Step at which the run ends.
    rates : ndarray of shape (n_known,)
        Rate of every step from 0 on; of all `final_step` + 1 where the schedule is known to the end.
    provenance : ScheduleProvenance
        Source of the rates up to the end.
    unknown_because : str
        Reason why they are not known to the end.
    stated_warmup : int or None
        Steps of warm-up that the user stated, for a run whose rates are not known.
    warmup_logged : bool
        Whether a log or a table of rates shows the warm-up, or its absence.

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.forecasting import LearningRateSchedule
    >>> steps = np.arange(0, 501, 50)
    >>> cosine = 5e-4 * (1 + np.cos(np.pi * steps / 1000))
    >>> schedule = LearningRateSchedule.of_log(1000, steps, cosine)
    >>> schedule.provenance.value, schedule.is_known, round(schedule.rate_at(1000), 9)
    ('recognised', True, 0.0)
    >>> LearningRateSchedule.of_log(1000, steps, np.full(11, 1e-3)).unknown_because
    'the learning rates after step 500 are not known'
    """

    final_step: int
    rates: np.ndarray = field(default_factory=lambda: np.empty(0))
    provenance: ScheduleProvenance = ScheduleProvenance.UNKNOWN
    unknown_because: str = ""
    stated_warmup: int | None = None
    warmup_logged: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "rates", read_only(self.rates))
        if not (self.is_known or self.unknown_because):
            object.__setattr__(self, "unknown_because", "no learning rate is known")

    @classmethod
    def of_log(
        cls,
        final_step: int,
        steps: ArrayLike,
        rates: ArrayLike,
        given: Schedule | ScheduleTable | None = None,
        warmup_steps: float | None = None,
    ) -> Self:
        """Return the schedule of a log: the given one, else that of its rows, else a line or cosine through them.

        steps, rates: rows of a log or a table (n_rows,), also of steps to come; NaN is unknown. given: schedule that the
        user states; UserError: the log contradicts it. warmup_steps: of a linear warm-up before the first row.
        """
        row_steps, row_rates = in_order((steps, rates))
        usable = np.isfinite(row_rates) & (row_steps >= 0)
        row_steps, row_rates = row_steps[usable], row_rates[usable]
        known_rates, provenance, unknown_because = np.empty(0), ScheduleProvenance.UNKNOWN, ""
        if given is not None:
            known_rates, provenance = given.rates(), ScheduleProvenance.GIVEN
            _refuse_contradiction(given, known_rates, row_steps, row_rates)
        elif not (unknown_because := _unknown_because(row_steps, row_rates, warmup_steps)):
            known_rates = _interpolated_rates(row_steps, row_rates, warmup_steps)
            # A log ends up to one interval between rows before its training does.
            if final_step - row_steps[-1] <= np.median(np.diff(row_steps)):
                provenance = ScheduleProvenance.LOGGED
            elif (ahead := extrapolated_rates(row_steps, row_rates, final_step)) is not None:
                known_rates, provenance = np.concatenate([known_rates, ahead[1:]]), ScheduleProvenance.RECOGNISED
            else:
                unknown_because = f"the learning rates after step {int(row_steps[-1]):,} are not known"
        if not unknown_because:  # the last rate stays to the end
            known_rates = known_rates[np.minimum(np.arange(final_step + 1), len(known_rates) - 1)]
        warmup_logged = isinstance(given, ScheduleTable) or len(row_steps) > 0
        stated_warmup = None if warmup_steps is None else int(warmup_steps)
        return cls(final_step, known_rates, provenance, unknown_because, stated_warmup, warmup_logged)

    @property
    def warmup_assumed(self) -> bool:
        """Return whether no rate was logged and no warm-up stated, so that none is assumed."""
        return not (self.warmup_logged or self.stated_warmup is not None or (len(self.rates) and np.argmax(self.rates)))

    @property
    def is_known(self) -> bool:
        """Return whether the rate is known to the end."""
        return len(self.rates) >= max(self.final_step, 1)

    @property
    def peak_rate(self) -> float:
        """Highest learning rate; NaN where none is known."""
        return float(self.rates.max()) if len(self.rates) else np.nan

    @property
    def warmup_steps(self) -> int:
        """Step at which the rate first comes near its peak; without rates, the stated warm-up."""
        return first_peak(self.rates) if len(self.rates) else self.stated_warmup or 0

    @property
    def every_rate(self) -> np.ndarray:
        """Rate of every step, (final_step + 1,); of an unknown schedule a constant rate after the warm-up."""
        if self.is_known:
            return self.rates_to(self.final_step)
        return np.minimum(np.arange(1, self.final_step + 2) / max(self.warmup_steps, 1), 1.0)

    def rates_to(self, step: int) -> np.ndarray:
        """Return the rates (step + 1,): the last known one is carried forward, and unknown ones are constant."""
        rates = self.rates if len(self.rates) else np.ones(1)
        return np.concatenate([rates, np.full(max(step + 1 - len(rates), 0), rates[-1])])[: step + 1]

    def rate_at(self, step: int) -> float:
        """Return the rate of a step; NaN where none is known."""
        return float(self.rates_to(step)[step]) if len(self.rates) else np.nan

    def decays_after(self, step: int) -> bool:
        """Return whether the rate is known to be lower at the end than at a step."""
        return self.is_known and bool(self.rates[-1] < 0.99 * self.rates[min(step, len(self.rates) - 1)])

    @property
    def half_decayed_at(self) -> int:
        """First step after which the rate stays below the middle of the peak and its end; 0 where the rate is unknown."""
        if not self.is_known:
            return 0
        above = np.flatnonzero(self.rates > (self.peak_rate + self.rates[-1]) / 2)
        return int(above[-1]) + 1 if len(above) else 0

    def has_shape_of(self, other: Self) -> bool:
        """Return whether both are known and differ by at most a tenth of the peak, whatever their lengths."""
        return self.is_known and other.is_known and shape_distance(self.every_rate, other.every_rate) <= 0.1


NEAR_PEAK = 0.95
"""Share of the highest rate from which a warm-up may end."""

STILL_RISES = 1e-6
"""Smallest rise per step beyond jitter, as a share of the highest rate."""


def first_peak(rates: np.ndarray) -> int:
    """Return the index at which rates (n,) first stop rising near their maximum; restarts and jitter do not count."""
    near = int(np.argmax(rates >= NEAR_PEAK * rates.max()))
    rises = np.diff(rates[near:]) > STILL_RISES * rates.max()
    return near + (len(rises) if rises.all() else int(np.argmin(rises)))


def rescaled(rates: np.ndarray, steps: int) -> np.ndarray:
    """Return the rates (steps + 1,) of the same shape over another number of steps."""
    return np.interp(np.linspace(0, len(rates) - 1, steps + 1), np.arange(len(rates)), rates)


def shape_distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference of two schedules in units of the peak, over shares of their lengths."""
    shares = np.linspace(0, 1, 101)
    a, b = (np.interp(shares, np.linspace(0, 1, len(rates)), rates / rates.max()) for rates in (one, other))
    return float(np.max(np.abs(a - b)))


LARGEST_DIFFERENCE = 0.05
"""Share of the peak by which a logged rate may differ from the schedule in the warm-up, which starts in many ways, and
where rates are printed roundly."""

MIN_DIFFERENCE = 1e-5
"""Share of the peak by which a logged rate may differ anywhere: the rounding of 32-bit rates."""


def _refuse_contradiction(
    schedule: Schedule | ScheduleTable, scheduled: np.ndarray, steps: np.ndarray, rates: np.ndarray
) -> None:
    """Raise UserError where the log continues after the schedule, or differs from it by more than its printed digits.

    A log may count its steps from 0 or 1, a Trainer logs the rate of the step before, and a warm-up begins at 0 or at its
    first step: the rates of two steps before and one after are as good. Edges are not compared.
    """
    if len(steps) and steps.max() > 1.01 * (len(scheduled) - 1):
        raise UserError(
            f"schedule: it ends at step {len(scheduled) - 1:,}, but the log goes to step {int(steps.max()):,}; give the "
            "schedule of the whole training"
        )
    inside = (steps >= 1) & (steps < len(scheduled) - 1)
    row_steps, peak = steps[inside].astype(int), scheduled.max()
    padded = np.concatenate([[0.0], scheduled])  # before the first step of a warm-up from 0
    nearest = np.stack([padded[row_steps + lead] for lead in (-1, 0, 1, 2)])
    distance = np.maximum(rates[inside] - nearest.max(axis=0), nearest.min(axis=0) - rates[inside])
    tolerance = MIN_DIFFERENCE * peak + rounding(rates)[inside]
    if isinstance(schedule, ScheduleTable):
        tolerance = tolerance + _interpolation_error(schedule, row_steps)
    tolerance = np.where(row_steps < np.argmax(scheduled), np.inf, tolerance)
    too_far = distance - np.minimum(tolerance, LARGEST_DIFFERENCE * peak)
    if len(row_steps) and too_far.max() > 0:
        step = row_steps[worst := int(np.argmax(too_far))]
        raise UserError(
            f"schedule: it gives a learning rate of {scheduled[step]:.6g} at step {step:,}, but the log has "
            f"{rates[inside][worst]:.6g}; give the schedule that was run (its peak, warm-up, last step and minimum rate), "
            "or a file with its rates"
        )


def rounding(values: np.ndarray) -> np.ndarray:
    """Return the rounding error of printed numbers: half of the last digit that the longest of them has.

    Numbers may be printed with a number of decimals or of digits: what allows more counts. A single number, as of a
    constant rate, is exact.
    """
    different = np.unique(values[values > 0])
    if len(different) < 2:
        return np.zeros(len(values))
    sample = different[np.linspace(0, len(different) - 1, min(len(different), 500)).round().astype(int)]
    texts = [np.format_float_scientific(value, trim="-").split("e") for value in sample]
    digits = max(len(mantissa.replace(".", "")) for mantissa, _ in texts)
    decimals = max(len(mantissa.replace(".", "")) - 1 - int(exponent) for mantissa, exponent in texts)
    magnitude = np.floor(np.log10(np.maximum(values, 1e-300)))
    return 0.5 * np.maximum(10.0**-decimals, 10.0 ** (magnitude - digits + 1))


def _interpolation_error(schedule: ScheduleTable, steps: np.ndarray) -> np.ndarray:
    """Return bounds on the error of the lines between the rows of a schedule, at some steps.

    Half of how far a row lies off the line between its neighbours, which for a smooth schedule is twice too much, and the
    rounding of the rows.
    """
    row_steps, row_rates = np.array(schedule.at, dtype=np.float64), np.array(schedule.values)
    bend = np.zeros(len(row_steps))
    if len(row_steps) > 2:
        share = (row_steps[1:-1] - row_steps[:-2]) / (row_steps[2:] - row_steps[:-2])
        bend[1:-1] = np.abs(row_rates[1:-1] - (1 - share) * row_rates[:-2] - share * row_rates[2:])
    right = np.clip(np.searchsorted(row_steps, steps), 1, len(row_steps) - 1)
    return 0.5 * np.maximum(bend[right - 1], bend[right]) + rounding(row_rates)[right]


def _unknown_because(steps: np.ndarray, rates: np.ndarray, warmup_steps: float | None) -> str:
    """Return the reason why the rates up to the last row of a log are unknown; "" where they are known."""
    if len(steps) < 2:
        return "no learning rates are logged"
    if np.any(rates < 0) or rates.max() <= 0:
        return "a logged learning rate is negative, or all of them are 0"
    if steps[0] > int(warmup_steps or 0) + np.median(np.diff(steps)) + 1:
        return (
            f"the learning rates before step {int(steps[0]):,} are not known: give the schedule, or warmup_steps if the "
            "warm-up ends there"
        )
    return ""


def _interpolated_rates(steps: np.ndarray, rates: np.ndarray, warmup_steps: float | None) -> np.ndarray:
    """Return the rate of every step up to the last logged one, linear between rows and in a stated warm-up before them."""
    rate_by_step = np.interp(np.arange(int(steps[-1]) + 1), steps, rates)
    if warmup := int(warmup_steps or 0):
        # The peak is the rate at the end of the warm-up, or, where that was not logged, the first one that was.
        end = min(warmup, int(steps[-1]))
        warmup_rows = min(end, int(steps[0]))
        rate_by_step[:warmup_rows] = rate_by_step[end] * np.arange(1, warmup_rows + 1) / warmup
    return rate_by_step


LARGEST_RESIDUAL = 1e-4
"""Largest residual of a recognised shape, as a share of the highest rate."""

MIN_ROWS = 4
"""Fewest rows past the highest rate: a line has two unknowns, a cosine three."""


LAGS = (0, 1)
"""Steps by which programs log a rate late: transformers' Trainer logs that of the step before."""


class Recognised(NamedTuple):
    """Shape of a schedule that was fitted to a log, steps (n,) -> learning rates (n,), and its largest residual."""

    residual: float
    shape: Callable[[np.ndarray], np.ndarray]


Shape = Callable[[np.ndarray], np.ndarray]
"""Steps (n,) -> a function of them (n,)."""


def extrapolated_rates(steps: np.ndarray, rates: np.ndarray, final_step: int) -> np.ndarray | None:
    """Return the rates from the last logged step to `final_step`, if the log lies on a line or a cosine that ends there.

    steps, rates (rows,). None where the rates so far do not determine them, as a constant rate never does.
    """
    highest = len(rates) - int(np.argmax(rates[::-1])) - 1
    ahead = _extrapolated(steps[highest:], rates[highest:], final_step)
    # The highest logged rate may still be one of the warm-up.
    return ahead if ahead is not None else _extrapolated(steps[highest + 1 :], rates[highest + 1 :], final_step)


def _extrapolated(past: np.ndarray, logged: np.ndarray, final_step: int) -> np.ndarray | None:
    """Return `extrapolated_rates` of rows (rows,) from the highest rate on."""
    if len(past) < MIN_ROWS or past[-1] > final_step or logged[-1] > logged[0] * (1 - 1e-3):
        return None

    def cosine(start: float, lag: int = 0) -> Recognised:
        """Fit a cosine that begins at a step and ends at `final_step`; lag: steps by which it is logged late."""
        return _fit_shape(past - lag, logged, lambda step: np.cos(np.pi * (step - start) / (final_step - start)))

    def line(lag: int) -> Recognised:
        """Fit a line that ends at `final_step`."""
        return _fit_shape(past - lag, logged, lambda step: 1 - step / final_step)

    starts = np.unique(np.concatenate([[0.0], np.linspace(0, past[0], 101)]))
    cosines = [cosine(start) for start in starts.tolist()]
    best = starts[np.argmin([fit.residual for fit in cosines])]
    spacing = starts[1] - starts[0] if len(starts) > 1 else 1.0
    near_best = np.arange(max(np.floor(best - spacing) - 1, 0), min(np.ceil(best + spacing) + 1, past[0]) + 1)
    near_best = near_best[:: max(1, len(near_best) // 400)]
    cosines += [cosine(start, lag) for start in near_best.tolist() for lag in LAGS]
    recognised = min([*map(line, LAGS), *cosines], key=lambda fit: fit.residual)
    extrapolated = recognised.shape(np.arange(int(past[-1]), final_step + 1, dtype=np.float64))
    rounding_error = LARGEST_RESIDUAL * logged[0]
    if recognised.residual > rounding_error or extrapolated.min() < -rounding_error:
        return None
    # A line ends a step early or late where the log does.
    last_change = abs(float(extrapolated[-1] - extrapolated[-2])) if len(extrapolated) > 1 else 0.0
    return np.where(extrapolated <= rounding_error + last_change, 0.0, extrapolated)


def _fit_shape(past: np.ndarray, logged: np.ndarray, shape: Shape) -> Recognised:
    """Fit offset + scale * shape(step)."""
    form = shape(past)
    centred = form - form.mean()
    scale = float(np.sum(centred * (logged - logged.mean())) / max(float(np.sum(centred**2)), 1e-300))
    offset = float(logged.mean() - scale * form.mean())
    residual = float(np.max(np.abs(offset + scale * form - logged)))
    return Recognised(residual, lambda step: offset + scale * shape(step))


def longest_warmup(steps: ArrayLike, rates: ArrayLike, peak: float = np.nan) -> int | None:
    """Return a step by which the warm-up was over; None if the rates do not show it.

    steps, rates (rows,); rows without a rate say nothing. peak: the highest rate of the schedule, if it is known. It is the
    first row near that peak, or the first that does not rise: where the rate falls from row to row, the warm-up may have
    ended between them.
    """
    times, logged = np.asarray(steps, dtype=np.float64), np.asarray(rates, dtype=np.float64)
    usable = np.isfinite(logged)
    if not usable.any() or logged[usable].max() <= 0:
        return None
    times, logged = times[usable], logged[usable]
    first = first_peak(logged)
    if peak >= logged.max() and logged[first] >= NEAR_PEAK * peak:
        return int(times[first])
    if first + 1 == len(logged):
        return None
    return int(times[first] if logged[first + 1] == logged[first] else times[first + 1])


MAX_BREAKPOINTS = 2000


def breakpoints(rates: np.ndarray) -> np.ndarray:
    """Return ascending steps, at most `MAX_BREAKPOINTS`, between which linear interpolation reproduces the rates."""
    last = len(rates) - 1
    if last < MAX_BREAKPOINTS:
        return np.arange(last + 1)
    kinks = np.abs(np.diff(rates, 2))
    sharpest = np.argsort(-kinks, kind="stable")[: MAX_BREAKPOINTS // 3]
    sharpest = sharpest[kinks[sharpest] > 1e-9 * rates.max()] + 1
    even = np.linspace(0, last, MAX_BREAKPOINTS // 3).round().astype(int)
    # Both sides of a kink: a rate that jumps stays where it was up to the jump.
    return np.unique(np.concatenate([even, sharpest, np.minimum(sharpest + 1, last)]))
