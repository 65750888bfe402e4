"""Differences of the losses of two training runs, now and at the end, and the speed-up of the better one.

A difference is B minus A; a negative one means that B is better.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.prediction import CONFIDENCE, NORMAL
from toposcale.forecasting.laws.residuals import student_t, variance_inflation
from toposcale.forecasting.runs.curves import Curve, is_spike
from toposcale.forecasting.runs.facts import Provenance
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import NoForecast, UserError
from toposcale.io.files import finite_or_none

# Standard deviation of a loss between seeds. A seed shifts a curve along the logarithm of the tokens D, by
# SEED_SHIFT (D / SEED_TOKENS)^-SEED_EXPONENT, and adds SEED_FLOOR times the loss. Estimated from replicates: 1,744 runs of
# 3K to 301K parameters, and published pairs of 124M and 162M (studies/decisions/README.md).
SEED_FLOOR = 0.0004
"""Standard deviation between seeds as a share of the loss, which no number of tokens reduces."""

SEED_SHIFT = 0.19
"""Standard deviation of the shift in log tokens after `SEED_TOKENS`."""

SEED_TOKENS = 2.5e6
"""Tokens at which the shift is `SEED_SHIFT`."""

SEED_EXPONENT = 0.58
"""Power of the tokens by which the shift falls."""

SHARED = 0.5
"""Correlation of the forecast errors of two runs of one recipe, each forecast from its own curve. It is 0 between recipes,
whose decays gain differently."""

BATCH_TOLERANCE = 0.1
"""Relative difference of the tokens per step within one recipe."""

MATERIAL_DIFFERENCE = 0.05
"""Difference of ends whose probability of being found is told, nats."""

WINDOW = 0.2
"""Last share of the common training, over which two curves are compared."""

MIN_FOR_SCATTER = 6
"""Fewest rows of a window from whose scatter the noise is estimated."""

NOISE_ROWS = 9
"""Last rows from which the noise is estimated where a window has fewer; half of all rows if these are more."""


class Axis(StrEnum):
    """Quantity at equal values of which two runs are compared."""

    STEPS = "steps"
    TOKENS = "tokens"
    COMPUTE = "compute"
    END = "end"


_UNITS = {Axis.STEPS: "step {:,.0f}", Axis.TOKENS: "{:.4g} tokens", Axis.COMPUTE: "{:.4g} FLOP"}


@dataclass(frozen=True)
class Difference:
    """Difference of the losses of two runs, B minus A, with its 95% interval.

    Parameters
    ----------
    axis : Axis
        Quantity that is equal.
    position : float
        Value of the quantity: steps, tokens or FLOP; NaN at the ends of the schedules.
    first_step, second_step : float
        Steps of A and of B there.
    value, deviation : float
        Difference and its standard deviation, nats per token; the latter is NaN if the noise is unknown.
    reason : str, default=""
        Reason why the difference is unknown.
    comparisons : int, default=1
        Comparisons whose intervals hold together (Bonferroni).
    """

    axis: Axis
    position: float = np.nan
    first_step: float = np.nan
    second_step: float = np.nan
    value: float = np.nan
    deviation: float = np.nan
    reason: str = ""
    comparisons: int = 1

    @property
    def low(self) -> float:
        """Lower end of the interval, nats per token."""
        return self.value - self._half_width

    @property
    def high(self) -> float:
        """Upper end of the interval, nats per token."""
        return self.value + self._half_width

    @property
    def _half_width(self) -> float:
        return float(ndtri(1 - (1 - CONFIDENCE) / 2 / self.comparisons) * self.deviation)

    @property
    def is_significant(self) -> bool:
        """Return whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    @property
    def power(self) -> float:
        """Probability that a true difference of `MATERIAL_DIFFERENCE` would be significant."""
        if not self.deviation > 0:
            return np.nan
        critical = self._half_width / self.deviation
        return float(ndtr(MATERIAL_DIFFERENCE / self.deviation - critical))

    @property
    def label(self) -> str:
        """Condition that both runs share, such as "step 4,000", "2e9 tokens" or "the ends"."""
        return "the ends" if self.axis == Axis.END else _UNITS[self.axis].format(self.position)

    def as_dict(self) -> dict[str, Any]:
        """Return the keys and values of the JSON output."""
        values = {name: value for name, value in vars(self).items() if name not in ("deviation", "comparisons")}
        return as_json(values | {"low": self.low, "high": self.high})


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


class End(NamedTuple):
    """Final loss of a run: measured, forecast by a law, or unknown for a reason."""

    law: Joint | None = None
    reason: str = ""

    @property
    def is_measured(self) -> bool:
        """Return whether the run has its final loss."""
        return self.law is None and not self.reason


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON can hold them."""
    return {key: finite_or_none(value) for key, value in values.items()}


def end_of(law: Joint, run: TrainingRun) -> End:
    """Return the end of a run: measured, with the law that forecasts it, or with the reason why it is unknown."""
    if run.facts.provenance("final_step") is Provenance.ASSUMED:
        return End(
            reason=f"{run.model}: its rows end at step {run.progress.step:,}, and its last step is unknown (--steps)"
        )
    if run.is_finished:
        return End()
    try:
        if not run.facts.is_known("n_parameters"):
            raise NoForecast("its number of parameters is unknown (--n-parameters)")
        if not run.schedule.is_known:
            raise NoForecast("its learning-rate schedule is not known to the end")
        return End(copy(law).fit(run))
    except NoForecast as error:
        return End(reason=f"{run.model}: {error}")


def comparable_curves(first: TrainingRun, second: TrainingRun) -> tuple[Curve, Curve]:
    """Return the curves of a loss that both runs have: the validation loss if possible."""
    for rows_of in (_metric_rows, _logged_rows):
        first_curve, second_curve = rows_of(first), rows_of(second)
        if len(first_curve.steps) and len(second_curve.steps):
            return first_curve, second_curve
    raise UserError(
        f"{first.model} has the {first.metric}, {second.model} the {second.metric}: only losses of one "
        "kind can be compared"
    )


def _metric_rows(run: TrainingRun) -> Curve:
    """Return the rows of the validation loss."""
    return run.metric_curve.since(np.inf if run.forecasts_training_loss else 1)


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
    halfway, present = np.interp(np.log([steps[-1] / 2, steps[-1]]), np.log(steps), losses)
    slope = (halfway - present) / np.log(2)  # decrease of the loss per unit of log(step)
    shift = SEED_SHIFT * (run.cost.tokens(steps[-1]) / SEED_TOKENS) ** -SEED_EXPONENT
    return float(np.hypot(SEED_FLOOR * present, shift * slope))


def difference_at(axis: Axis, first: Curve, second: Curve, units: tuple[float, float], seed_sd: float) -> Difference:
    """Return the difference over the last `WINDOW` of the common range; units: what one step of each run adds to the axis.

    seed_sd: standard deviation of a difference between seeds. The noise is that of the difference of the curves, so that
    noise which both share (the same batches) cancels.
    """
    positions = first.steps * units[0], second.steps * units[1]
    end = min(positions[0][-1], positions[1][-1])
    begin = max((1 - WINDOW) * end, positions[0][0], positions[1][0])
    inside = [(x >= begin * (1 - 1e-9)) & (x <= end * (1 + 1e-9)) for x in positions]
    if not (inside[0].any() or inside[1].any()):
        return Difference(axis, end, end / units[0], end / units[1], reason="the curves have no rows in common")
    # The curve with more rows is interpolated at the rows of the other one.
    fewer = int(not inside[0].any() or (inside[1].any() and inside[1].sum() < inside[0].sum()))
    common = np.log(positions[fewer][inside[fewer]])
    losses = [np.interp(common, np.log(x), curve.losses) for x, curve in zip(positions, (first, second), strict=True)]
    value, error = _last_difference(losses[1] - losses[0], first, second)
    return Difference(axis, float(end), end / units[0], end / units[1], value, float(np.hypot(error, seed_sd)))


def _last_difference(rows: np.ndarray, first: Curve, second: Curve) -> tuple[float, float]:
    """Return the last of differences (n,) and its standard error, from a fitted line if there are enough rows."""
    if len(rows) < MIN_FOR_SCATTER:
        return float(rows[-1]), _noise_of_difference(first, second)
    x = np.linspace(-1, 0, len(rows))
    slope, value = np.polyfit(x, rows, 1)
    residuals = rows - value - slope * x
    scatter = float(np.std(residuals, ddof=2)) * np.sqrt(variance_inflation(residuals, 2))
    return float(value), float(2 * scatter / np.sqrt(len(rows)) * student_t(len(rows) - 2) / NORMAL)


def _noise_of_difference(first: Curve, second: Curve) -> float:
    """Return the standard deviation of the noise of a difference of two rows, nats; NaN with too few rows in common.

    From second differences of the difference over log(step), in which noise and bends that both share cancel. Neighbours
    of these share rows, so two count as one degree of freedom.
    """
    fewer, more = sorted((first, second), key=lambda curve: len(curve.steps))
    common = fewer.steps[(fewer.steps >= more.steps[0]) & (fewer.steps <= more.steps[-1])]
    x = np.log(common[-max(len(common) // 2, NOISE_ROWS) :])
    if len(x) < 3:
        return np.nan
    rows = np.subtract(*(np.interp(x, np.log(curve.steps), curve.losses) for curve in (first, second)))
    weight = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    bends = rows[1:-1] - (1 - weight) * rows[:-2] - weight * rows[2:]
    bends /= np.sqrt(1 + weight**2 + (1 - weight) ** 2)
    return float(np.sqrt(np.mean(bends**2)) * student_t(len(bends) / 2) / NORMAL)


def difference_of_ends(
    runs: tuple[TrainingRun, TrainingRun], ends: tuple[End, End], curves: tuple[Curve, Curve], seed_sd: float
) -> Difference:
    """Return the difference at the ends of both schedules: of each run measured if it has finished, else forecast."""
    steps = float(runs[0].final_step), float(runs[1].final_step)
    reasons = [end.reason for end in ends if end.reason]
    if not reasons and any(end.law for end in ends) and len({run.forecasts_training_loss for run in runs}) > 1:
        reasons = ["one end is that of the training loss, the other one of the validation loss"]
    if reasons:
        return Difference(Axis.END, np.nan, *steps, reason="; ".join(reasons))
    losses, deviations = [], []
    noise = _noise_of_difference(*curves) / np.sqrt(2)
    for run, end, curve in zip(runs, ends, curves, strict=True):
        forecast = end.law.forecast(run) if end.law else None
        loss, deviation = (forecast.value, forecast.deviation) if forecast else _last_loss(curve, noise)
        losses.append(loss)
        deviations.append(deviation)
    correlation = SHARED if all(end.law for end in ends) and have_one_recipe(*runs) else 0.0
    variance = np.sum(np.square(deviations)) - 2 * correlation * np.prod(deviations)
    return Difference(Axis.END, np.nan, *steps, losses[1] - losses[0], float(np.hypot(np.sqrt(variance), seed_sd)))


def have_one_recipe(first: TrainingRun, second: TrainingRun) -> bool:
    """Return whether two runs are known to have one optimizer, batch and shape of the learning-rate schedule."""
    return (
        first.facts.is_known("optimizer")
        and not first.facts.recipe_differences(second.facts)
        and bool(np.isclose(first.tokens_per_step, second.tokens_per_step, rtol=BATCH_TOLERANCE))
        and first.schedule.has_shape_of(second.schedule)
    )


def _last_loss(curve: Curve, noise: float) -> tuple[float, float]:
    """Return the last loss, the median of up to 50 last rows, and its standard error; noise: that of a row, nats."""
    count = min(max(len(curve.losses) // 50, 1), 50)
    return float(np.median(curve.losses[-count:])), float(noise * np.sqrt((np.pi / 2 if count > 2 else 1.0) / count))


def speed_up_of(unit: Axis, curves: Sequence[Curve], scales: tuple[float, float], final: Difference) -> SpeedUp | None:
    """Return the share of the common training after which the better run had reached the loss of the worse one."""
    if final.reason:
        return None
    better = int(final.value <= 0)
    positions = [np.log(curve.steps * scale) for curve, scale in zip(curves, scales, strict=True)]
    end = np.log(final.position)
    # Running medians, over shorter windows at the ends.
    losses, half = curves[better].losses, min(len(curves[better].losses) // 100, 25)
    smooth = np.array([np.median(losses[max(row - half, 0) : row + half + 1]) for row in range(len(losses))])
    target = float(np.interp(end, positions[better], smooth)) + abs(final.value)
    lowest = np.minimum.accumulate(smooth)
    half_width = (final.high - final.low) / 2

    def share_at(loss: float) -> float:
        return np.inf if loss < lowest[-1] else float(np.exp(np.interp(-loss, -lowest, positions[better]) - end))

    shares = [share_at(loss) for loss in (target, target + half_width, target - half_width)]
    return SpeedUp(better == 1, unit, *shares) if np.isfinite(shares[0]) else None
