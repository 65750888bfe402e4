"""Comparison of two training runs: the difference of their losses now and at the end, and the speed-up.

A difference is B minus A; a negative one means that B is better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from toposcale.io.errors import NoForecast, UserError
from toposcale.io.files import finite_or_none
from toposcale.laws.checked_law import checked_law
from toposcale.laws.prediction import NORMAL, variance_inflation
from toposcale.runs.checks import refuse_curve
from toposcale.runs.outliers import is_spike
from toposcale.runs.series import noise_of
from toposcale.runs.training_run import Curve, TrainingRun

SEED_FLOOR, SEED_SHIFT, SEED_TOKENS, SEED_EXPONENT = 0.0004, 0.19, 2.5e6, 0.5
"""Standard deviation of a loss between seeds. A seed shifts a curve along the logarithm of the tokens D, by
`SEED_SHIFT` (D / `SEED_TOKENS`)^-`SEED_EXPONENT`, and adds `SEED_FLOOR` times the loss. Estimated from replicates:
1,744 runs of 3K to 301K parameters, and published pairs of 124M and 162M (docs/compare.md)."""

SHARED = 0.5
"""Correlation of the forecast errors of two runs of one family, each forecast from its own curve."""

WINDOW = 0.2
"""Last share of the common training, over which two curves are compared."""

FEWEST_FOR_SCATTER = 6
"""Fewest rows of a window from whose scatter the noise is estimated."""

RATE_DIFFERS = 0.1
"""Difference of the learning rates, as a share of the peak, above which the losses now are not comparable."""


class Axis(StrEnum):
    """Quantity at equal values of which two runs are compared."""

    STEPS = "steps"
    TOKENS = "tokens"
    COMPUTE = "compute"
    END = "end"


@dataclass(frozen=True)
class Difference:
    """Difference of the losses of two runs, B minus A, with its 95% interval.

    Parameters
    ----------
    axis : Axis
        Quantity that is equal.
    position : float
        Value of the quantity: steps, tokens or FLOP; NaN at the ends of the schedules.
    value, low, high : float
        Nats per token; `low` and `high` are NaN if the noise is unknown.
    reason : str, default=""
        Reason why the difference is unknown.
    """

    axis: Axis
    position: float = np.nan
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    reason: str = ""

    @classmethod
    def of(cls, axis: Axis, position: float, value: float, deviation: float) -> "Difference":
        """Return a difference with the interval of this standard deviation."""
        return cls(axis, position, value, value - NORMAL * deviation, value + NORMAL * deviation)

    @property
    def is_significant(self) -> bool:
        """Return whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


class SpeedUp(NamedTuple):
    """Share of the common training after which the better run had reached the present loss of the worse one.

    Parameters
    ----------
    is_of_second : bool
        Whether B is the better run.
    unit : Axis
        Tokens, or steps if the tokens per step are unknown.
    share, low, high : float
        Share with its 95% interval; `high` is infinite if the better run may not have reached the loss.
    """

    is_of_second: bool
    unit: Axis
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class RunComparison(Mapping[str, Any]):
    """Two training runs side by side; as a mapping it has the keys of the JSON output.

    Parameters
    ----------
    first, second : TrainingRun
        A and B.
    now : tuple of Difference
        Differences at equal steps, tokens and compute, as far as they are known.
    end : Difference
        Difference at the ends of both schedules.
    speed_up : SpeedUp or None
        None if the better run did not reach the last loss of the other.
    note : str
        Why the losses now are not comparable; "" if they are.
    """

    first: TrainingRun
    second: TrainingRun
    now: tuple[Difference, ...]
    end: Difference
    speed_up: SpeedUp | None
    note: str = ""

    def __str__(self) -> str:
        return "\n".join(sentences(self))

    def __repr__(self) -> str:
        return f"RunComparison({self.first.model!r}, {self.second.model!r}: {sentences(self)[-1]})"

    @cached_property
    def _values(self) -> dict[str, Any]:
        """Keys and values of the JSON output."""
        rows = [_as_json(vars(row)) for row in (*self.now, self.end)]
        speed_up = _as_json(self.speed_up._asdict()) if self.speed_up else None
        return {
            "version": 1,
            "a": self.first.model,
            "b": self.second.model,
            "differences": rows,
            "speed_up": speed_up,
            "note": self.note,
            "sentences": sentences(self),
        }

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: finite_or_none(value) for key, value in values.items()}


def compared(first: TrainingRun, second: TrainingRun, seed_noise: float | None = None) -> RunComparison:
    """Compare two runs.

    Parameters
    ----------
    first, second : TrainingRun
        A and B, of the same data and tokenizer.
    seed_noise : float, optional
        Standard deviation of the loss between seeds, nats per token; by default estimated from published replicates.

    Returns
    -------
    RunComparison
        Differences now and at the end, and the speed-up.

    Raises
    ------
    UserError
        If the runs have no loss in common, or one of them diverged.
    """
    for run in (first, second):
        try:
            refuse_curve(run)
        except NoForecast as error:
            raise UserError(f"{run.model}: {error}") from None
        if not np.isfinite(run.last_loss):
            raise UserError(f"{run.model}: it has no loss")
    curves = _comparable(first, second)
    if seed_noise is None:
        seeds = float(np.hypot(seed_deviation(first), seed_deviation(second)))
    else:
        seeds = float(np.sqrt(2) * seed_noise)
    units = {Axis.STEPS: (1.0, 1.0), Axis.TOKENS: (first.tokens_per_step, second.tokens_per_step)}
    units[Axis.COMPUTE] = (first.compute(1), second.compute(1))
    known_units = {axis: unit for axis, unit in units.items() if np.all(np.isfinite(unit)) and min(unit) > 0}
    # An axis is redundant if its units have the ratio of an axis before it.
    ratios = [one / other for one, other in known_units.values()]
    distinct = [axis for i, axis in enumerate(known_units) if not np.isclose(ratios[i], ratios[:i]).any()]
    now = tuple(difference_at(axis, *curves, known_units[axis], seeds) for axis in distinct)
    unit = Axis.TOKENS if Axis.TOKENS in known_units else Axis.STEPS
    speed_up = _speed_up(unit, curves, known_units[unit], difference_at(unit, *curves, known_units[unit], seeds))
    end = difference_of_ends(first, second, curves, seeds)
    return RunComparison(first, second, now, end, speed_up, _rate_note(first, second, now[0]))


def _comparable(first: TrainingRun, second: TrainingRun) -> tuple[Curve, Curve]:
    """Return the curves of a loss that both runs have: the validation loss if possible."""
    for rows_of in (_metric_rows, _logged_rows):
        one, other = rows_of(first), rows_of(second)
        if len(one.steps) and len(other.steps):
            return one, other
    raise UserError(
        f"{first.model} has the {first.metadata.metric}, {second.model} the {second.metadata.metric}: only losses of one "
        "kind can be compared"
    )


def _metric_rows(run: TrainingRun) -> Curve:
    """Return the rows of the validation loss."""
    usable = np.isfinite(run.checkpoint_losses) & (run.checkpoint_steps > 0) & (not run.forecasts_training_loss)
    return Curve(run.checkpoint_steps[usable], run.checkpoint_losses[usable])


def _logged_rows(run: TrainingRun) -> Curve:
    """Return the rows of the training log without spikes."""
    usable = np.isfinite(run.losses) & (run.steps > 0)
    usable[usable] = ~is_spike(run.losses[usable])
    return Curve(run.steps[usable], run.losses[usable])


def seed_deviation(run: TrainingRun) -> float:
    """Return the standard deviation between seeds of the loss of a run, nats; NaN if the tokens per step are unknown."""
    curve = _metric_rows(run)
    steps, losses = curve if len(curve.steps) else run.loss_curve
    if not len(steps):
        return np.nan
    half, now = np.interp(np.log([steps[-1] / 2, steps[-1]]), np.log(steps), losses)
    slope = (half - now) / np.log(2)  # decrease of the loss per unit of log(step)
    shift = SEED_SHIFT * (steps[-1] * run.tokens_per_step / SEED_TOKENS) ** -SEED_EXPONENT
    return float(np.hypot(SEED_FLOOR * now, shift * slope))


def difference_at(axis: Axis, first: Curve, second: Curve, unit: tuple[float, float], seeds: float) -> Difference:
    """Return the difference over the last `WINDOW` of the common range; unit: what one step of each run adds to the axis.

    seeds: standard deviation of a difference between seeds. The noise is that of the difference of the curves, so that
    noise which both share (the same batches) cancels.
    """
    positions = first.steps * unit[0], second.steps * unit[1]
    end = min(positions[0][-1], positions[1][-1])
    begin = max((1 - WINDOW) * end, positions[0][0], positions[1][0])
    inside = [(x >= begin * (1 - 1e-9)) & (x <= end * (1 + 1e-9)) for x in positions]
    if not (inside[0].any() or inside[1].any()):
        return Difference(axis, end, reason="the curves have no rows in common")
    # The curve with more rows is interpolated at the rows of the other one.
    fewer = int(not inside[0].any() or (inside[1].any() and inside[1].sum() < inside[0].sum()))
    common = np.log(positions[fewer][inside[fewer]])
    losses = [np.interp(common, np.log(x), curve.losses) for x, curve in zip(positions, (first, second), strict=True)]
    value, error = _at_the_end(losses[1] - losses[0], first, second)
    return Difference.of(axis, float(end), value, float(np.hypot(error, seeds)))


def _at_the_end(rows: np.ndarray, first: Curve, second: Curve) -> tuple[float, float]:
    """Return the last of differences (n,) and its standard error, from a fitted line if there are enough rows."""
    if len(rows) < FEWEST_FOR_SCATTER:
        noise = (noise_of(np.log(curve.losses)) * curve.losses[-1] for curve in (first, second))
        return float(rows[-1]), float(np.hypot(*noise))
    x = np.linspace(-1, 0, len(rows))
    slope, value = np.polyfit(x, rows, 1)
    residuals = rows - value - slope * x
    scatter = float(np.std(residuals, ddof=2)) * np.sqrt(variance_inflation(residuals, 2))
    return float(value), float(2 * scatter / np.sqrt(len(rows)))


def difference_of_ends(first: TrainingRun, second: TrainingRun, curves: Sequence[Curve], seeds: float) -> Difference:
    """Return the difference at the ends of both schedules: measured if both have finished, else forecast."""
    if first.is_finished and second.is_finished:
        losses, noise = zip(*(_last_loss(curve) for curve in curves), strict=True)
        return Difference.of(Axis.END, np.nan, losses[1] - losses[0], float(np.hypot(np.hypot(*noise), seeds)))
    ends = []
    for run in (first, second):
        if run.is_finished:
            ends.append((run.final_loss, 0.0))
            continue
        try:
            if not run.schedule.is_known:
                raise NoForecast("its learning-rate schedule is not known to the end")
            forecast = checked_law(run, ()).forecast(run)
        except NoForecast as error:
            return Difference(Axis.END, reason=f"{run.model}: {error}")
        ends.append((forecast.value, forecast.deviation))
    (loss_a, deviation_a), (loss_b, deviation_b) = ends
    variance = deviation_a**2 + deviation_b**2 - 2 * SHARED * deviation_a * deviation_b
    return Difference.of(Axis.END, np.nan, loss_b - loss_a, float(np.hypot(np.sqrt(variance), seeds)))


def _last_loss(curve: Curve) -> tuple[float, float]:
    """Return the last loss, the median of up to 50 last rows, and its standard error."""
    noise = noise_of(np.log(curve.losses)) * curve.losses[-1]
    count = min(max(len(curve.losses) // 50, 1), 50)
    return float(np.median(curve.losses[-count:])), float(noise * np.sqrt((np.pi / 2 if count > 2 else 1.0) / count))


def _speed_up(unit: Axis, curves: Sequence[Curve], scales: tuple[float, float], now: Difference) -> SpeedUp | None:
    """Return the share of the common training after which the better run had reached the loss of the worse one."""
    if now.reason:
        return None
    better = int(now.value <= 0)
    positions = [np.log(curve.steps * scale) for curve, scale in zip(curves, scales, strict=True)]
    end = np.log(now.position)
    smooth = _smooth(curves[better])
    target = float(np.interp(end, positions[better], smooth)) + abs(now.value)
    lowest = np.minimum.accumulate(smooth)
    half = (now.high - now.low) / 2

    def share_at(loss: float) -> float:
        return np.inf if loss < lowest[-1] else float(np.exp(np.interp(-loss, -lowest, positions[better]) - end))

    shares = [share_at(loss) for loss in (target, target + half, target - half)]
    return SpeedUp(better == 1, unit, *shares) if np.isfinite(shares[0]) else None


def _smooth(curve: Curve) -> np.ndarray:
    """Return running medians (rows,) of the losses, over shorter windows at the ends."""
    half = min(len(curve.losses) // 100, 25)
    return np.array([np.median(curve.losses[max(row - half, 0) : row + half + 1]) for row in range(len(curve.losses))])


def _rate_note(first: TrainingRun, second: TrainingRun, now: Difference) -> str:
    """Return that the learning rates, as shares of their peaks, differ at equal steps; "" if they do not."""
    if now.reason or not (first.schedule.rates.size and second.schedule.rates.size):
        return ""
    step = int(now.position)
    shares = [run.schedule.rate_at(step) / run.schedule.peak_rate for run in (first, second)]
    if abs(shares[1] - shares[0]) <= RATE_DIFFERS:
        return ""
    lower, names = int(shares[1] < shares[0]), (first.model, second.model)
    return (
        f"at step {step:,} the learning rate of {names[lower]} is {min(shares):.0%} of its peak, that of "
        f"{names[1 - lower]} {max(shares):.0%}: a lower loss under a lower rate is not progress; compare the ends"
    )


_UNITS = {Axis.STEPS: "step {:,.0f}", Axis.TOKENS: "{:.4g} tokens", Axis.COMPUTE: "{:.4g} FLOP"}


def sentences(comparison: RunComparison) -> list[str]:
    """Return the comparison in sentences; the last one is the verdict."""
    names = comparison.first.model, comparison.second.model
    lines = [_sentence(row, names, f"At {_UNITS[row.axis].format(row.position)}") for row in comparison.now]
    if comparison.note:
        lines.append(f"Note: {comparison.note}.")
    if comparison.speed_up:
        lines.append(_speed_up_sentence(comparison.speed_up, names))
    is_measured = comparison.first.is_finished and comparison.second.is_finished
    where = "At the last rows of both" if is_measured else "Forecast of the ends of both schedules"
    return [*lines, _sentence(comparison.end, names, where)]


def _sentence(row: Difference, names: tuple[str, str], where: str) -> str:
    if row.reason:
        return f"{where}: unknown ({row.reason})."
    interval = f"{row.value:+.4f} nats, {row.low:+.4f} to {row.high:+.4f}"
    if row.low != row.low:
        return f"{where}: {names[1]} minus {names[0]} is {row.value:+.4f} nats; the noise between seeds is unknown."
    if not row.is_significant:
        return f"{where}: no difference beyond noise ({names[1]} minus {names[0]}: {interval})."
    return f"{where}: {names[int(row.value < 0)]} is better ({names[1]} minus {names[0]}: {interval})."


def _speed_up_sentence(speed_up: SpeedUp, names: tuple[str, str]) -> str:
    better, worse = names[::-1] if speed_up.is_of_second else names
    high = "not yet" if np.isinf(speed_up.high) else f"{speed_up.high:.2f}"
    interval = "" if np.isnan(speed_up.low) else f" ({speed_up.low:.2f} to {high})"
    return f"{better} reached this loss of {worse} at {speed_up.share:.2f}{interval} of these {speed_up.unit.value}."
