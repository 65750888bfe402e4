"""`toposcale check`: how the advice would read a file: its columns, rows, units and facts, and what is left out."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

import toposcale
from toposcale.forecasting import results
from toposcale.forecasting.decision.picture import new_figure
from toposcale.forecasting.decision.reasons import SMOOTHED, looks_smoothed, smoothing_assumption, unit_remarks
from toposcale.forecasting.decision.run_options import add_option, curve_file
from toposcale.forecasting.laws.joint import refuse_run
from toposcale.forecasting.logs.loss_curves import LossCurve
from toposcale.forecasting.runs.checks import refuse_curve
from toposcale.forecasting.runs.facts import FACTS, CountParameters, FactKind, RunFacts, StatedFacts, refuse_unknown
from toposcale.forecasting.runs.metrics import metric_name
from toposcale.forecasting.runs.run_input import NEEDED, CurveInput, RunInput, without_none
from toposcale.forecasting.runs.training_run import MINIMUM_POINTS, TrainingRun
from toposcale.io.errors import NoForecast, UserError, listed
from toposcale.io.files import finite_or_none

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_OF_LOG = [name for name, fact in FACTS.items() if fact.kind is FactKind.LOG]


@dataclass(frozen=True, repr=False)
class CurveCheck(results.Result):
    """Reading of a loss curve; iterated over, its lines, and the refusal at the end where the advice refuses it.

    Parameters
    ----------
    name : str
        Name of the run.
    curve : LossCurve
        The columns that are read, by quantity.
    lines : tuple of str
        Lines for the format, for each column, for the facts of the run, and for notes.
    refusal : UserError or None
        Why the losses are not those of a training.
    """

    name: str
    curve: LossCurve
    lines: tuple[str, ...]
    refusal: UserError | None = None

    def __iter__(self) -> Iterator[str]:
        yield from self.lines
        if self.refusal:
            raise self.refusal

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each column that is read: its quantity, its name, and its first and last value."""
        import pandas as pd

        rows = []
        for quantity, values in self.curve.columns.items():
            finite = values[np.isfinite(values)]
            ends = (finite[0], finite[-1]) if len(finite) else (np.nan, np.nan)
            rows.append((quantity, self.curve.names.get(quantity, quantity), len(finite), *map(float, ends)))
        return pd.DataFrame(rows, columns=["quantity", "column", "values", "first", "last"])

    def to_dict(self) -> dict[str, Any]:
        """Return the columns, what is not read, the lines, and the reason of a refusal or None."""
        columns = self.to_frame().to_dict("records")
        return {
            "name": self.name,
            "format": self.curve.form,
            "columns": [{str(key): finite_or_none(value) for key, value in row.items()} for row in columns],
            "not_read": list(self.curve.unread),
            "lines": list(self.lines),
            "refused_because": str(self.refusal) if self.refusal else None,
        }

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def _summary(self) -> str:
        return self.lines[0]

    def _draw(self, ax: "Axes | None") -> "Axes":
        """Draw the losses over the steps."""
        axes = ax if ax is not None else new_figure(7.2).subplots()
        for quantity, values in self.curve.columns.items():
            if quantity.endswith("loss"):
                axes.plot(self.curve.columns["step"], values, label=self.curve.names.get(quantity, quantity))
        axes.set(xlabel="step", ylabel="loss")
        axes.legend(frameon=False, fontsize=8)
        return axes


def check_curve(
    curve: CurveInput, name: str, *, count_parameters: CountParameters | None = None, **facts: Unpack[StatedFacts]
) -> CurveCheck:
    """Report how a loss curve is read, without advice, and refuse it where the advice does.

    Parameters
    ----------
    curve : path, or mapping of str to array-like
        Losses, as `advise` takes them.
    name : str
        Name of the run in texts.
    count_parameters : callable, optional
        As for `advise`.
    **facts : StatedFacts
        Facts of the run, as for `advise`, such as `loss_column`.

    Returns
    -------
    CurveCheck
        Lines, when iterated over, for the format, for each column, for the facts of the run, and for notes.

    Raises
    ------
    UserError
        If the curve cannot be read or, after the last line, if its losses are not those of a training (`refusal`).

    Examples
    --------
    >>> for line in check_curve({"step": [50, 100], "loss": [8.6, 7.2], "time": [1.5, 2.5]}, "run"):
    ...     print(line)
    run: columns, 2 steps from 50 to 100
      training loss   loss: 2 values, 8.6 at first, 7.2 at last, taken as nats per token
      not read        time
      unknown         parameters, tokens per step, last step
      no advice       it has fewer than 5 losses after the warm-up
    """
    refuse_unknown("check_curve", facts, tuple(FACTS))
    run_input = RunInput(curve, name, without_none(facts), count_parameters)
    if run_input.curve is None:
        raise UserError("curve: None is not a loss curve to check")
    run = run_input.run_as_read()
    refusal = None
    try:
        refuse_curve(run)
    except NoForecast as error:
        refusal = UserError(f"{run.model}: {error}")
    lines = _lines(run_input, name, None if refusal else run)
    return CurveCheck(name, run_input.losses, tuple(lines), refusal)


def _lines(run_input: RunInput, name: str, run: TrainingRun | None) -> Iterator[str]:
    """Yield the lines on a curve, and those on its run unless that is refused."""
    losses = run_input.losses
    yield from _columns(losses, name)
    yield from _facts(run_input.known_facts)
    yield from (f"  note: {text}" for text in (*losses.notes, *losses.low_confidence_reasons))
    if run is None:
        return
    try:
        refuse_run(run)
    except NoForecast as error:
        yield f"  {'no advice':<15} {error}"
    yield from (f"  note: {remark}: is it the loss of a language model?" for remark in unit_remarks(run))
    if looks_smoothed(run):
        yield f"  note: {SMOOTHED}"
    elif len(run.loss_curve.steps) >= MINIMUM_POINTS and (assumption := smoothing_assumption(run)):
        yield f"  {'assumed':<15} {assumption}"


def _columns(curve: LossCurve, name: str) -> Iterator[str]:
    """Yield the format of a curve, its columns, and those that are not read."""
    steps = curve.columns["step"]
    column = f" (column {step_name})" if (step_name := curve.names.get("step", "step")) != "step" else ""
    yield f"{name}: {curve.form}, {len(steps):,} steps{column} from {steps.min():,.0f} to {steps.max():,.0f}"
    quantities = {"loss": "training loss", "gradient_norm": "gradient norm", "learning_rate": "learning rate"}
    for quantity, values in curve.columns.items():
        finite = values[np.isfinite(values)]
        if quantity == "step" or np.isnan(values).all():
            continue
        broken = f", {np.isinf(values).sum():,} not a number" if np.isinf(values).any() else ""
        ends = f", {finite[0]:.4g} at first, {finite[-1]:.4g} at last" if len(finite) else ""
        unit = ", taken as nats per token" if quantity.endswith("loss") else ""
        text = f"{curve.names.get(quantity, quantity)}: {len(finite):,} values{ends}{broken}{unit}"
        yield f"  {quantities.get(quantity) or metric_name(quantity):<15} {text}"
    if curve.unread:
        yield f"  {'not read':<15} {listed(curve.unread, 20)}"


def _facts(facts: RunFacts) -> Iterator[str]:
    """Yield the facts that a forecast needs, those known with their source."""
    names = {name: FACTS["steps" if name == "final_step" else name].label for name in NEEDED}
    if stated := {text: name for name, text in names.items() if facts.is_known(name)}:
        texts = (f"{text} {getattr(facts, name):,.0f} (from {facts.provenance(name)})" for text, name in stated.items())
        yield f"  {'known':<15} {', '.join(texts)}"
    if unknown := [text for text in names.values() if text not in stated]:
        yield f"  {'unknown':<15} {', '.join(unknown)}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("curve", metavar="CURVE", help="losses as advise takes them")
    for name in _OF_LOG:
        add_option(parser, name, help=FACTS[name].help)
    results.add_form_options(parser)


def run(options: argparse.Namespace) -> None:
    """Print how the file is read."""
    facts: Any = {name: getattr(options, name) for name in _OF_LOG}
    with curve_file(options.curve) as curve:
        check = toposcale.check_curve(curve, "standard input" if curve != options.curve else curve, **facts)
    results.show(check, options)
    if check.refusal:
        raise check.refusal
