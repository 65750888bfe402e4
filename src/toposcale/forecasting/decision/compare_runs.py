"""`toposcale.compare_runs` and its command, `curves`: differences of losses to those of the first run, and the speed-up.

A difference is B minus A; a negative one means that B is better.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

import toposcale
from toposcale.forecasting import results
from toposcale.forecasting.amounts import number
from toposcale.forecasting.decision import differences, run_options
from toposcale.forecasting.decision.differences import MATERIAL_DIFFERENCE, Axis, Difference, End, SpeedUp
from toposcale.forecasting.decision.picture import draw_comparison
from toposcale.forecasting.decision.reasons import SMOOTHED, forecast_reasons, looks_smoothed
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.results import MappedResult
from toposcale.forecasting.runs.checks import refuse_curve
from toposcale.forecasting.runs.facts import CountParameters, StatedFacts, option
from toposcale.forecasting.runs.run_input import CurveInput, input_of
from toposcale.forecasting.runs.training_run import Curve, TrainingRun
from toposcale.io.errors import NoForecast, UserError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


MIN_POWER = 0.5
"""Least probability of finding a material difference of ends below which a comparison says when to ask again."""

RATE_DIFFERS = 0.1
"""Difference of the learning rates, as a share of the peak, above which the losses now are not comparable."""


@dataclass(frozen=True)
class RunPair:
    """Comparison of a run, B, with the first one, A.

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
            "speed_up": differences.as_json(self.speed_up._asdict()) if self.speed_up else None,
            "note": self.note,
            "confident": self.is_confident,
            "low_confidence_reasons": list(self.reasons),
            "sentences": sentences(self),
        }


@dataclass(frozen=True, repr=False)
class RunComparison(MappedResult):
    """Comparison of training runs with the first of them; as a mapping it has the keys of the JSON output.

    Parameters
    ----------
    runs : tuple of TrainingRun
        The runs; the first one is A.
    ends : tuple of End
        What is known of their final losses.
    pairs : tuple of RunPair
        Each other run with the first one. The intervals of an axis hold for all of them together.
    """

    runs: tuple[TrainingRun, ...]
    ends: tuple[End, ...]
    pairs: tuple[RunPair, ...]

    def __str__(self) -> str:
        blocks = ["\n".join(sentences(pair)) for pair in self.pairs]
        if len(blocks) > 1:
            blocks.append(f"The intervals of the {len(blocks)} comparisons with {self.runs[0].model} hold together.")
        return "\n\n".join(blocks)

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each difference to the first run, A: at equal steps, tokens and compute, and at the ends."""
        import pandas as pd

        a, pairs = self["a"], self["pairs"]
        return pd.DataFrame([{"a": a, "b": pair["b"], **row} for pair in pairs for row in pair["differences"]])

    @cached_property
    def _values(self) -> dict[str, Any]:
        """Keys and values of the JSON output."""
        return {"version": 2, "a": self.runs[0].model, "pairs": [pair.as_dict() for pair in self.pairs]}

    def _draw(self, ax: "Axes | None") -> "Axes":
        """Draw the curves, their forecasts, and the differences to the first run."""
        rows = [(*pair.now, pair.end) for pair in self.pairs]
        return draw_comparison(self.runs, [end.law for end in self.ends], rows, ax)

    @property
    def _summary(self) -> str:
        n_pairs = len(self.pairs)
        return f"{n_pairs} runs compared with {self.runs[0].model}" if n_pairs > 1 else sentences(self.pairs[0])[-1]


def compare_runs(
    *curves: CurveInput | Mapping[str, Any],
    seed_noise: float | None = None,
    count_parameters: CountParameters | None = None,
    **facts: Unpack[StatedFacts],
) -> RunComparison:
    """Compare training runs with the first: which is better now and at the end, and the speed-up.

    Parameters
    ----------
    curves : path, mapping of columns, or mapping with a key `curve`
        Losses of A, B, ... in nats per token, as for `toposcale.advise`, of the same data and tokenizer; a mapping with a
        key `curve` holds its arguments that apply only to this run, for example
        ``{"curve": "b.csv", "n_parameters": 50e6}``.
    seed_noise : float, optional
        Standard deviation of the loss between seeds, nats per token; by default estimated from replicates.
    count_parameters : callable, optional
        As for `toposcale.advise`.
    **facts : StatedFacts
        Facts that all runs share, as for `toposcale.advise`. What needs an unknown one is left out, or said to be unknown.

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
        run_input = input_of({"count_parameters": count_parameters, **facts, **stated}, letter)
        try:
            runs.append(run_input.run_as_read())
        except UserError as error:
            name = f"{run_input.name}: "
            raise UserError(name + f"{error}".removeprefix(name)) from None
    if len({run.model for run in runs}) < len(runs):
        runs = [
            replace(run, facts=replace(run.facts, model=f"{letter} ({run.model})"))
            for letter, run in zip(ascii_uppercase, runs, strict=False)
        ]
    return compare(Joint(), runs, number(seed_noise, "seed_noise", 0))


def compare(law: Joint, runs: Sequence[TrainingRun], seed_noise: float | None = None) -> RunComparison:
    """Compare runs of the same data with the first of them; UserError: no loss in common, or one of them diverged.

    law: a copy of it is fitted to each unfinished run. seed_noise: as in `compare_runs`.
    """
    for run in runs:
        try:
            refuse_curve(run)
        except NoForecast as error:
            raise UserError(f"{run.model}: {error}") from None
        if not np.isfinite(run.progress.loss):
            raise UserError(f"{run.model}: it has no loss")
    first, *others = runs
    ends = tuple(differences.end_of(law, run) for run in runs)
    pairs = (
        _compare_pair(first, other, (ends[0], end), seed_noise, len(others))
        for other, end in zip(others, ends[1:], strict=True)
    )
    return RunComparison(tuple(runs), ends, tuple(pairs))


def _compare_pair(
    first: TrainingRun, second: TrainingRun, ends: tuple[End, End], seed_noise: float | None, comparisons: int
) -> RunPair:
    """Compare two runs, with intervals that hold jointly for this number of comparisons."""
    curves = differences.comparable_curves(first, second)
    if seed_noise is None:
        seed_sd = float(np.hypot(differences.seed_deviation(first), differences.seed_deviation(second)))
    else:
        seed_sd = float(np.sqrt(2) * seed_noise)
    units = {Axis.STEPS: (1.0, 1.0), Axis.TOKENS: (first.tokens_per_step, second.tokens_per_step)}
    units[Axis.COMPUTE] = (first.flop_of_steps(1), second.flop_of_steps(1))
    known_units = {axis: unit for axis, unit in units.items() if np.all(np.isfinite(unit)) and min(unit) > 0}
    rows = {
        axis: replace(differences.difference_at(axis, *curves, unit, seed_sd), comparisons=comparisons)
        for axis, unit in known_units.items()
    }
    # An axis is redundant if its units have the ratio of an axis before it.
    ratios = [one / other for one, other in known_units.values()]
    now = tuple(rows[axis] for i, axis in enumerate(rows) if not np.isclose(ratios[i], ratios[:i]).any())
    unit = Axis.TOKENS if Axis.TOKENS in known_units else Axis.STEPS
    speed_up = differences.speed_up_of(unit, curves, known_units[unit], rows[unit])
    end = replace(differences.difference_of_ends((first, second), ends, curves, seed_sd), comparisons=comparisons)
    reasons = () if end.reason else tuple(_reasons((first, second), ends))
    is_forecast = any(end.law is not None for end in ends)
    note = _rate_note(first, second, _before_ends(now, curves, ends))
    return RunPair(first, second, now, end, speed_up, is_forecast, note, reasons)


def _reasons(runs: Sequence[TrainingRun], ends: Sequence[End]) -> Iterator[str]:
    """Yield the reasons for low confidence in a difference of ends."""
    for run, end in zip(runs, ends, strict=True):
        if end.law is not None:
            yield from (f"{run.model}: {reason}" for reason in forecast_reasons(run, end.law))
        elif looks_smoothed(run):
            yield f"{run.model}: {SMOOTHED}"


def _before_ends(now: Sequence[Difference], curves: Sequence[Curve], ends: Sequence[End]) -> Iterator[Difference]:
    """Yield the differences except those at the ends of two finished runs."""
    for row in now:
        at_last = np.allclose([row.first_step, row.second_step], [curve.steps[-1] for curve in curves])
        if not (row.reason or (at_last and all(end.is_measured for end in ends))):
            yield row


def _rate_note(first: TrainingRun, second: TrainingRun, rows: Iterable[Difference]) -> str:
    """Return that learning rates are unknown, or differ as shares of their peaks; "" if they are alike at all rows."""
    runs = first, second
    for row in rows:
        location = _location(row, (first.model, second.model))
        if unknown := [run for run in runs if not run.has_known_rates]:
            because = "; ".join(dict.fromkeys(run.schedule.unknown_because for run in unknown))
            return (
                f"{location} the learning-rate schedule of {' and of '.join(run.model for run in unknown)} is unknown "
                f"({because}), so confidence is low: a lower loss may come from a lower rate, and is not a difference of "
                "the ends"
            )
        steps = int(row.first_step), int(row.second_step)
        shares = [run.schedule.rate_at(step) / run.schedule.peak_rate for run, step in zip(runs, steps, strict=True)]
        if abs(shares[1] - shares[0]) > RATE_DIFFERS:
            lower = int(shares[1] < shares[0])
            return (
                f"{location} the learning rate of {runs[lower].model} is {min(shares):.0%} of its peak, that of "
                f"{runs[1 - lower].model} {max(shares):.0%}: part of the gap is annealing; compare the ends"
            )
    return ""


def sentences(pair: RunPair) -> list[str]:
    """Return the comparison of a pair in sentences; the last one is on the ends."""
    names = pair.first.model, pair.second.model
    lines = [f"A{_location(row, names)[1:]}: {_difference(row, names, 'has the lower loss')}." for row in pair.now]
    if speed_up := pair.speed_up:
        better, worse = names[::-1] if speed_up.is_of_second else names
        high = "not yet" if np.isinf(speed_up.high) else f"{speed_up.high:.2f}"
        interval = "" if np.isnan(speed_up.low) else f" ({speed_up.low:.2f} to {high})"
        share = f"{speed_up.share:.2f}{interval} of these {speed_up.unit.value}"
        lines.append(f"{better} reached this loss of {worse} at {share}.")
    if pair.note:
        lines.append(f"Note: {pair.note}.")
    location = f"{'Forecast of' if pair.end_is_forecast else 'At'} {_location(pair.end, names)}"
    if pair.end.reason:
        return [*lines, f"At the ends: {_difference(pair.end, names, '')}."]
    confidence = f"; not confident: {'; '.join(pair.reasons)}" if pair.reasons else ""
    if pair.is_confident:
        confidence = "; confident"
    if pair.end_is_forecast and not pair.end.is_significant and np.isfinite(pair.end.power):
        confidence = f"; {_power_sentence(pair)}{confidence}"
    return [*lines, f"{location}: {_difference(pair.end, names, 'is better')}{confidence}."]


def _power_sentence(pair: RunPair) -> str:
    """Return how likely a material difference of the ends would be found, and from when on it can be."""
    power = f"{pair.end.power:.0%}" if pair.end.power >= 0.01 else "less than 1%"
    text = f"a difference of {MATERIAL_DIFFERENCE:g} nats would be found in {power} of such comparisons"
    waiting = [
        f"step {run.schedule.half_decayed_at:,} of {run.model}"
        for run in (pair.first, pair.second)
        if not run.is_finished and run.progress.step < run.schedule.half_decayed_at
    ]
    if pair.end.power >= MIN_POWER or not waiting:
        return text
    return f"{text}; it cannot be told before the decay: ask again from {' and '.join(waiting)} on"


def _location(row: Difference, names: tuple[str, str]) -> str:
    """Return where a difference was taken: the quantity that is equal, and the step of each run."""
    steps = [f"{step:,.0f}" for step in (row.first_step, row.second_step)]
    text = f"step {steps[0]}" if steps[0] == steps[1] else f"step {steps[0]} of {names[0]}, {steps[1]} of {names[1]}"
    location = row.label if row.axis == Axis.STEPS else f"{row.label} ({text})"
    return location if row.axis == Axis.END else f"at {location}"


def _difference(row: Difference, names: tuple[str, str], verb: str) -> str:
    """Return a difference as a clause."""
    if row.reason:
        return f"unknown ({row.reason})"
    interval = f"{names[1]} minus {names[0]}: {row.value:+.4f} nats"
    if np.isnan(row.deviation):
        return f"{interval}; the noise within the curves or between seeds is unknown"
    interval += f", {row.low:+.4f} to {row.high:+.4f}"
    if not row.is_significant:
        return f"no difference beyond noise ({interval})"
    return f"{names[int(row.value < 0)]} {verb} ({interval})"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    text = "losses of A, B, ..., as for advise; each is compared with A"
    parser.add_argument("curves", nargs="+", metavar="CURVE", help=text)
    run_options.add_run_options(parser, several=True)
    text = "standard deviation of the loss between seeds, nats; by default estimated from published replicates"
    run_options.add_option(parser, "seed_noise", metavar="NATS", help=text)
    results.add_form_options(parser, plot="write a picture")


def run(options: argparse.Namespace) -> None:
    """Print the comparison."""
    count = len(options.curves)
    if count < 2:
        raise UserError("curves: give two or more; advise forecasts one")
    if count > len(ascii_uppercase):
        raise UserError(f"curves: give at most {len(ascii_uppercase)}, one for each letter; here are {count}")
    stated = {name: values for name in run_options.OPTIONS if (values := getattr(options, name))}
    if wrong := [name for name, values in stated.items() if len(values) not in (1, count)]:
        raise UserError(f"{option(wrong[0])}: one value, or one for each of the {count} curves (- for none)")
    runs: list[dict[str, Any]] = []
    for index, curve in enumerate(options.curves):
        values = {name: of_runs[index % len(of_runs)] for name, of_runs in stated.items()}
        run_values = {name: value for name, value in values.items() if value != "-"}
        try:
            runs.append({"curve": curve, **run_options.arguments(run_values)})
        except UserError as error:
            raise UserError(f"{curve}: {error}") from None
    with ExitStack() as files:
        for run_arguments in runs:
            run_arguments["curve"] = files.enter_context(run_options.curve_file(run_arguments["curve"]))
        comparison = toposcale.compare_runs(*runs, seed_noise=options.seed_noise)
    results.show(comparison, options)
