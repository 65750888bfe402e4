"""Comparison of training runs with the first of them: differences of the losses now and at the end, and the speed-up.

A difference is B minus A; a negative one means that B is better.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from toposcale.forecasting.decision.curve_check import run_as_read
from toposcale.forecasting.decision.picture import Interval, draw_comparison
from toposcale.forecasting.decision.reasons import SMOOTHED, forecast_reasons
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.prediction import CONFIDENCE, variance_inflation
from toposcale.forecasting.pictures import Drawn
from toposcale.forecasting.runs.arguments import RUN_ARGUMENTS, CurveInput, RunInput, number
from toposcale.forecasting.runs.checks import has_known_rates, looks_smoothed, refuse_curve
from toposcale.forecasting.runs.compute import flop_of_steps
from toposcale.forecasting.runs.facts import Provenance
from toposcale.forecasting.runs.from_curve import read_curve
from toposcale.forecasting.runs.outliers import is_spike
from toposcale.forecasting.runs.series import FEWEST_FOR_NOISE, noise_of
from toposcale.forecasting.runs.training_run import Curve, TrainingRun
from toposcale.io.errors import NoForecast, UserError
from toposcale.io.files import finite_or_none

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEED_FLOOR, SEED_SHIFT, SEED_TOKENS, SEED_EXPONENT = 0.0004, 0.19, 2.5e6, 0.58
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
    def label(self) -> str:
        """Condition that both runs share, such as "step 4,000", "2e9 tokens" or "the ends"."""
        return "the ends" if self.axis == Axis.END else _UNITS[self.axis].format(self.position)

    def as_dict(self) -> dict[str, Any]:
        """Return the keys and values of the JSON output."""
        values = {name: value for name, value in vars(self).items() if name not in ("deviation", "comparisons")}
        return _as_json(values | {"low": self.low, "high": self.high})


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


@dataclass(frozen=True)
class RunPair:
    """A run beside the first one.

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
    end_is_forecast : bool
        Whether the end of a run is forecast.
    note : str
        Why the losses now say little of the ends: learning rates that differ or are unknown; "" if they are comparable.
    reasons : tuple of str
        Reasons for low confidence in the difference of the ends.
    """

    first: TrainingRun
    second: TrainingRun
    now: tuple[Difference, ...]
    end: Difference
    speed_up: SpeedUp | None
    end_is_forecast: bool
    note: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def is_confident(self) -> bool:
        """Return whether one run is better at the end, and there is no reason for low confidence."""
        return self.end.is_significant and not self.reasons

    def as_dict(self) -> dict[str, Any]:
        """Return the keys and values of the JSON output."""
        return {
            "b": self.second.model,
            "differences": [row.as_dict() for row in (*self.now, self.end)],
            "end_is_forecast": self.end_is_forecast,
            "speed_up": _as_json(self.speed_up._asdict()) if self.speed_up else None,
            "note": self.note,
            "confident": self.is_confident,
            "low_confidence_reasons": list(self.reasons),
            "sentences": sentences(self),
        }


@dataclass(frozen=True)
class RunComparison(Drawn, Mapping[str, Any]):
    """Training runs beside the first of them; as a mapping it has the keys of the JSON output.

    Parameters
    ----------
    runs : tuple of TrainingRun
        The runs; the first one is A.
    ends : tuple of End
        What is known of their final losses.
    pairs : tuple of RunPair
        Each other run beside the first one. The intervals of an axis hold for all of them together.
    """

    runs: tuple[TrainingRun, ...]
    ends: tuple[End, ...]
    pairs: tuple[RunPair, ...]

    def __str__(self) -> str:
        blocks = ["\n".join(sentences(pair)) for pair in self.pairs]
        if len(blocks) > 1:
            blocks.append(f"The intervals of the {len(blocks)} comparisons with {self.runs[0].model} hold together.")
        return "\n\n".join(blocks)

    def __repr__(self) -> str:
        names = ", ".join(repr(run.model) for run in self.runs)
        return f"RunComparison({names}: {' '.join(self._verdicts)})"

    @cached_property
    def _values(self) -> dict[str, Any]:
        """Keys and values of the JSON output."""
        return {"version": 2, "a": self.runs[0].model, "pairs": [pair.as_dict() for pair in self.pairs]}

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _figure(self) -> "Figure":
        """Draw the curves, their forecasts, and the differences to the first run."""
        rows = [
            Interval(row.label, run, row.value, row.low, row.high)
            for run, pair in enumerate(self.pairs, 1)
            for row in (*pair.now, pair.end)
            if not row.reason
        ]
        others = len(self.pairs)
        text = f"{others} runs beside {self.runs[0].model}" if others > 1 else self._verdicts[0]
        return draw_comparison(self.runs, [end.law for end in self.ends], rows, text)

    @property
    def _verdicts(self) -> list[str]:
        return [sentences(pair)[-1] for pair in self.pairs]


def _as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: finite_or_none(value) for key, value in values.items()}


def compare_runs(
    *curves: CurveInput | Mapping[str, Any], seed_noise: float | None = None, **facts: Any
) -> RunComparison:
    """Compare training runs with the first: which is better now and at the end, and the speed-up.

    Parameters
    ----------
    curves : path, mapping of columns, or mapping with a key `curve`
        Losses of A, B, ... in nats per token, as for `toposcale.advise`, of the same data and tokenizer; a mapping with a
        key `curve` holds its arguments that apply to this run alone, for example
        ``{"curve": "b.csv", "n_parameters": 50e6}``.
    seed_noise : float, optional
        Standard deviation of the loss between seeds, nats per token; by default estimated from replicates.
    **facts
        Arguments that all runs share, as for `toposcale.advise`: n_parameters, tokens_per_step, schedule, steps,
        warmup_steps, loss_column, step_column, run. What needs an unknown one is left out, or said to be unknown.

    Returns
    -------
    RunComparison
        Differences to A at equal steps, tokens and compute and at the ends of the schedules, and the speed-up, for each
        other run; printed, one sentence each.

    Raises
    ------
    UserError
        One line on what is wrong with a curve.
    TypeError
        With fewer than two curves.

    Examples
    --------
    >>> import numpy as np, toposcale
    >>> steps = np.arange(100, 10_001, 100)
    >>> a = {"step": steps, "loss": 2.0 + 40 * steps**-0.5}
    >>> b = {"step": steps, "loss": 2.0 + 36 * steps**-0.5}
    >>> print(toposcale.compare_runs(a, b, tokens_per_step=500_000, steps=10_000))
    At step 10,000: B has the lower loss (B minus A: -0.0399 nats, ...
    B reached this loss of A at 0.81 (0.79 to 0.82) of these tokens.
    At the ends (step 10,000): B is better (B minus A: -0.0401 nats, ...); confident.
    """
    if not 2 <= len(curves) <= len(ascii_uppercase):
        raise TypeError(f"compare_runs: from 2 to {len(ascii_uppercase)} curves, got {len(curves)}")
    runs = []
    for letter, curve in zip(ascii_uppercase, curves, strict=False):
        stated: Mapping[str, Any] = curve if isinstance(curve, Mapping) and "curve" in curve else {"curve": curve}
        path = stated["curve"]
        fields = {"name": Path(path).name if isinstance(path, str | Path) else letter, **facts, **stated}
        if unknown := sorted(set(fields) - set(RUN_ARGUMENTS)):
            raise UserError(
                f"{fields['name']}: unknown field {', '.join(unknown)}; a run has {', '.join(sorted(RUN_ARGUMENTS))}"
            )
        try:
            given = RunInput.of(**fields)
            runs.append(run_as_read(given, read_curve(given)))
        except UserError as error:
            name = f"{fields['name']}: "
            raise UserError(name + f"{error}".removeprefix(name)) from None
    if len({run.model for run in runs}) < len(runs):
        runs = [
            replace(run, facts=replace(run.facts, model=f"{letter} ({run.model})"))
            for letter, run in zip(ascii_uppercase, runs, strict=False)
        ]
    return compare(Joint(), runs, number(seed_noise, "seed_noise", 0))


def compare(law: Joint, runs: Sequence[TrainingRun], seed_noise: float | None = None) -> RunComparison:
    """Compare runs with the first of them.

    Parameters
    ----------
    law : Joint
        Law that forecasts the ends; a copy of it is fitted to each unfinished run.
    runs : sequence of TrainingRun
        At least two, of the same data and tokenizer.
    seed_noise : float, optional
        Standard deviation of the loss between seeds, nats per token; by default estimated from published replicates.

    Returns
    -------
    RunComparison
        Differences now and at the end, and the speed-up, for each run after the first.

    Raises
    ------
    UserError
        If runs have no loss in common, or one of them diverged.
    """
    for run in runs:
        try:
            refuse_curve(run)
        except NoForecast as error:
            raise UserError(f"{run.model}: {error}") from None
        if not np.isfinite(run.progress.loss):
            raise UserError(f"{run.model}: it has no loss")
    first, *others = runs
    ends = tuple(end_of(law, run) for run in runs)
    pairs = (
        _pair(first, other, (ends[0], end), seed_noise, len(others))
        for other, end in zip(others, ends[1:], strict=True)
    )
    return RunComparison(tuple(runs), ends, tuple(pairs))


def end_of(law: Joint, run: TrainingRun) -> End:
    """Return what is known of the final loss of a run."""
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


def _pair(
    first: TrainingRun, second: TrainingRun, ends: tuple[End, End], seed_noise: float | None, comparisons: int
) -> RunPair:
    """Compare two runs, with intervals that hold for so many comparisons together."""
    curves = _comparable(first, second)
    if seed_noise is None:
        seeds = float(np.hypot(seed_deviation(first), seed_deviation(second)))
    else:
        seeds = float(np.sqrt(2) * seed_noise)
    units = {Axis.STEPS: (1.0, 1.0), Axis.TOKENS: (first.tokens_per_step, second.tokens_per_step)}
    units[Axis.COMPUTE] = (flop_of_steps(first, 1), flop_of_steps(second, 1))
    known_units = {axis: unit for axis, unit in units.items() if np.all(np.isfinite(unit)) and min(unit) > 0}
    rows = {
        axis: replace(difference_at(axis, *curves, unit, seeds), comparisons=comparisons)
        for axis, unit in known_units.items()
    }
    # An axis is redundant if its units have the ratio of an axis before it.
    ratios = [one / other for one, other in known_units.values()]
    now = tuple(rows[axis] for i, axis in enumerate(rows) if not np.isclose(ratios[i], ratios[:i]).any())
    unit = Axis.TOKENS if Axis.TOKENS in known_units else Axis.STEPS
    speed_up = _speed_up(unit, curves, known_units[unit], rows[unit])
    end = replace(difference_of_ends((first, second), ends, curves, seeds), comparisons=comparisons)
    reasons = () if end.reason else tuple(_reasons((first, second), ends))
    is_forecast = any(end.law is not None for end in ends)
    note = _rate_note(first, second, _before_the_ends(now, curves, ends))
    return RunPair(first, second, now, end, speed_up, is_forecast, note, reasons)


def _reasons(runs: Sequence[TrainingRun], ends: Sequence[End]) -> Iterator[str]:
    """Yield the reasons for low confidence in a difference of ends."""
    for run, end in zip(runs, ends, strict=True):
        if end.law is not None:
            yield from (f"{run.model}: {reason}" for reason in forecast_reasons(run, end.law))
        elif looks_smoothed(run):
            yield f"{run.model}: {SMOOTHED}"


def _comparable(first: TrainingRun, second: TrainingRun) -> tuple[Curve, Curve]:
    """Return the curves of a loss that both runs have: the validation loss if possible."""
    for rows_of in (_metric_rows, _logged_rows):
        one, other = rows_of(first), rows_of(second)
        if len(one.steps) and len(other.steps):
            return one, other
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
        return Difference(axis, end, end / unit[0], end / unit[1], reason="the curves have no rows in common")
    # The curve with more rows is interpolated at the rows of the other one.
    fewer = int(not inside[0].any() or (inside[1].any() and inside[1].sum() < inside[0].sum()))
    common = np.log(positions[fewer][inside[fewer]])
    losses = [np.interp(common, np.log(x), curve.losses) for x, curve in zip(positions, (first, second), strict=True)]
    value, error = _at_the_end(losses[1] - losses[0], first, second)
    return Difference(axis, float(end), end / unit[0], end / unit[1], value, float(np.hypot(error, seeds)))


def _at_the_end(rows: np.ndarray, first: Curve, second: Curve) -> tuple[float, float]:
    """Return the last of differences (n,) and its standard error, from a fitted line if there are enough rows."""
    if len(rows) < FEWEST_FOR_SCATTER:
        return float(rows[-1]), _noise_of_difference(first, second)
    x = np.linspace(-1, 0, len(rows))
    slope, value = np.polyfit(x, rows, 1)
    residuals = rows - value - slope * x
    scatter = float(np.std(residuals, ddof=2)) * np.sqrt(variance_inflation(residuals, 2))
    return float(value), float(2 * scatter / np.sqrt(len(rows)))


def _noise_of_difference(first: Curve, second: Curve) -> float:
    """Return the standard deviation of the noise of a difference of two rows, nats.

    That of both curves, or that of their difference, in which noise and bends that both share cancel: the smaller one,
    since a bend adds to either.
    """
    fewer, more = sorted((first, second), key=lambda curve: len(curve.steps))
    common = fewer.steps[(fewer.steps >= more.steps[0]) & (fewer.steps <= more.steps[-1])]
    logs = [np.interp(np.log(common), np.log(curve.steps), np.log(curve.losses)) for curve in (first, second)]
    relative = float(np.linalg.norm([noise_of(np.log(curve.losses)) for curve in (first, second)]))
    if len(common) >= FEWEST_FOR_NOISE:
        relative = min(relative, noise_of(logs[1] - logs[0]))
    return relative * float(np.mean([curve.losses[-1] for curve in (first, second)]))


def difference_of_ends(
    runs: tuple[TrainingRun, TrainingRun], ends: tuple[End, End], curves: tuple[Curve, Curve], seeds: float
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
    correlation = SHARED if all(end.law for end in ends) else 0.0
    variance = np.sum(np.square(deviations)) - 2 * correlation * np.prod(deviations)
    return Difference(Axis.END, np.nan, *steps, losses[1] - losses[0], float(np.hypot(np.sqrt(variance), seeds)))


def _last_loss(curve: Curve, noise: float) -> tuple[float, float]:
    """Return the last loss, the median of up to 50 last rows, and its standard error; noise: that of a row, nats."""
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


def _before_the_ends(now: Sequence[Difference], curves: Sequence[Curve], ends: Sequence[End]) -> Iterator[Difference]:
    """Yield the differences that are not those of two measured ends."""
    for row in now:
        at_last = np.allclose([row.first_step, row.second_step], [curve.steps[-1] for curve in curves])
        if not (row.reason or (at_last and all(end.is_measured for end in ends))):
            yield row


def _rate_note(first: TrainingRun, second: TrainingRun, rows: Iterable[Difference]) -> str:
    """Return that learning rates are unknown, or differ as shares of their peaks; "" if they are alike at all rows."""
    runs = first, second
    for row in rows:
        where = _where(row, (first.model, second.model))
        if unknown := [run.model for run in runs if not has_known_rates(run)]:
            return (
                f"{where} the learning rate of {' and of '.join(unknown)} is unknown, so confidence is low: a lower loss "
                "may come from a lower rate, and is not a difference of the ends"
            )
        steps = int(row.first_step), int(row.second_step)
        shares = [run.schedule.rate_at(step) / run.schedule.peak_rate for run, step in zip(runs, steps, strict=True)]
        if abs(shares[1] - shares[0]) > RATE_DIFFERS:
            lower = int(shares[1] < shares[0])
            return (
                f"{where} the learning rate of {runs[lower].model} is {min(shares):.0%} of its peak, that of "
                f"{runs[1 - lower].model} {max(shares):.0%}: a lower loss under a lower rate is not progress; compare the "
                "ends"
            )
    return ""


def sentences(pair: RunPair) -> list[str]:
    """Return the comparison of a pair in sentences; the last one is on the ends."""
    names = pair.first.model, pair.second.model
    lines = [f"A{_where(row, names)[1:]}: {_difference(row, names, 'has the lower loss')}." for row in pair.now]
    if pair.speed_up:
        lines.append(_speed_up_sentence(pair.speed_up, names))
    if pair.note:
        lines.append(f"Note: {pair.note}.")
    where = f"{'Forecast of' if pair.end_is_forecast else 'At'} {_where(pair.end, names)}"
    if pair.end.reason:
        return [*lines, f"At the ends: {_difference(pair.end, names, '')}."]
    confidence = f"; not confident: {'; '.join(pair.reasons)}" if pair.reasons else ""
    if pair.is_confident:
        confidence = "; confident"
    return [*lines, f"{where}: {_difference(pair.end, names, 'is better')}{confidence}."]


def _where(row: Difference, names: tuple[str, str]) -> str:
    """Return the place of a difference: the quantity that is equal, and the step of each run."""
    steps = [f"{step:,.0f}" for step in (row.first_step, row.second_step)]
    both = f"step {steps[0]}" if steps[0] == steps[1] else f"step {steps[0]} of {names[0]}, {steps[1]} of {names[1]}"
    place = row.label if row.axis == Axis.STEPS else f"{row.label} ({both})"
    return place if row.axis == Axis.END else f"at {place}"


def _difference(row: Difference, names: tuple[str, str], verb: str) -> str:
    """Return a difference as a clause."""
    if row.reason:
        return f"unknown ({row.reason})"
    interval = f"{names[1]} minus {names[0]}: {row.value:+.4f} nats"
    if np.isnan(row.deviation):
        return f"{interval}; the noise between seeds is unknown"
    interval += f", {row.low:+.4f} to {row.high:+.4f}"
    if not row.is_significant:
        return f"no difference beyond noise ({interval})"
    return f"{names[int(row.value < 0)]} {verb} ({interval})"


def _speed_up_sentence(speed_up: SpeedUp, names: tuple[str, str]) -> str:
    better, worse = names[::-1] if speed_up.is_of_second else names
    high = "not yet" if np.isinf(speed_up.high) else f"{speed_up.high:.2f}"
    interval = "" if np.isnan(speed_up.low) else f" ({speed_up.low:.2f} to {high})"
    return f"{better} reached this loss of {worse} at {speed_up.share:.2f}{interval} of these {speed_up.unit.value}."
