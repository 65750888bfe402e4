"""`toposcale.advise` and its command: from a loss curve to the advice, without a workflow, a configuration or PyTorch."""

import argparse
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

import toposcale
from toposcale.forecasting import results
from toposcale.forecasting.amounts import amount, number, number_of, parameters
from toposcale.forecasting.decision import run_options
from toposcale.forecasting.decision.advice import Advice, advise_before_start, advise_on
from toposcale.forecasting.decision.candidates import BEFORE_START, MULTIPLES, Request
from toposcale.forecasting.runs.checks import refuse_curve
from toposcale.forecasting.runs.facts import (
    FACTS,
    UNKNOWN,
    CountParameters,
    FactKind,
    Provenance,
    StatedFacts,
    option,
    refuse_unknown,
)
from toposcale.forecasting.runs.run_input import CurveInput, RunInput, input_of, states_file, without_none
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import NoForecast, UserError, printable

_OTHER_ARGUMENTS = ("curve", "sizes", "known", "remaining", "target_loss", "name", "count_parameters")
_COLUMNS = ("loss_column", "step_column")
_OF_SCHEDULE = [name for name, fact in FACTS.items() if fact.kind is FactKind.SCHEDULE]

RUN_FILE = "progress.json"
"""The file of a run of the workflow that says what is known of each model and which files show its progress."""


def advise(
    curve: CurveInput | None = None,
    *,
    sizes: Sequence[float] = (),
    known: Sequence[Mapping[str, Any]] = (),
    remaining: float | None = None,
    target_loss: float | None = None,
    name: str = "this run",
    count_parameters: CountParameters | None = None,
    **facts: Unpack[StatedFacts],
) -> Advice:
    """Forecast the final loss of a training run, and advise to continue it or to train another size.

    Without a curve the run has not started, and the answer is that of the published scaling law.

    Numbers may also be texts: "25M", "25,000,000".

    Parameters
    ----------
    curve : path, or mapping of str to array-like, optional
        Losses in nats per token: a file or folder as trackers write it (CSV, Parquet, JSON, trainer_state.json or the
        folder of a Trainer, TensorBoard), or columns by name such as a data frame: step, loss, and where known
        learning_rate and validation_loss, each of shape (n_rows,). Also a list of such rows, a pandas.Series of losses
        whose index is the step, or an array of shape (n_rows, 2) of steps and losses.
    sizes : sequence of float, optional
        Numbers of parameters that could be trained from scratch; by default twice and four times `n_parameters`, and of a
        run that has not started half and a quarter, too.
    known : sequence of mapping, optional
        Other runs of the family: each a mapping of its curve, its facts and maybe its name. What is not stated is as in
        this run, unless the logged learning rates contradict it.
    remaining : float, optional
        Compute that will still be spent, FLOP; by default what the schedule needs.
    target_loss : float, optional
        Loss in nats per token; the advice tells when it is reached.
    name : str, optional
        Name of the run in texts.
    count_parameters : callable, optional
        Function of the path of a checkpoint that returns the numbers of its parameters with and without embeddings, for the
        one that a Trainer left with its log. `toposcale.advise` has one; `toposcale.forecasting.advise` reads no weights.
    **facts : StatedFacts
        Facts of the run (`toposcale.forecasting.StatedFacts`): n_parameters, tokens_per_step, schedule, steps,
        warmup_steps, unique_tokens, epochs, optimizer, weight_average, weight_decay, aspect_ratio and objective, and of its
        log loss_column, step_column, pattern and run. ``schedule`` is the name of a shape, a mapping of the fields shape
        (constant, linear, cosine, wsd), warmup_steps, decay_start, decay_shape, peak, final (minimum rate; without a peak a
        share of it) and steps, or a file with the columns step and learning_rate.

    Returns
    -------
    Advice
        Forecast and decision; a mapping with the keys of its JSON, and printed a text.

    Raises
    ------
    UserError
        One line on what is missing or wrong.
    TypeError
        For an unknown argument.

    References
    ----------
    Luo et al. 2025, arXiv 2503.12811 (multi-power law); Hoffmann et al. 2022, arXiv 2203.15556 (scaling in N).

    Examples
    --------
    >>> import numpy as np, toposcale
    >>> steps = np.arange(200, 6001, 200)
    >>> curve = {"step": steps, "loss": 2.0 + 40 * steps**-0.5}
    >>> schedule = {"shape": "cosine", "steps": 12000, "warmup_steps": 200, "final": 0.1}
    >>> advice = toposcale.advise(curve, n_parameters="25M", tokens_per_step=5e5, schedule=schedule, sizes=["100M"])
    >>> advice["final_step"], [row["n_parameters"] for row in advice["candidates"] if row["kind"] == "scale_up"]
    (12000, [100000000])
    >>> toposcale.advise(curve, n_parameters="25M")
    Traceback (most recent call last):
    toposcale.io.errors.UserError: this run: not known and not in the curve: tokens_per_step (--tokens-per-step); ...
    """
    refuse_unknown("advise", facts, (*_OTHER_ARGUMENTS, *FACTS))
    run_input = RunInput(curve, name, without_none(facts), count_parameters)
    training = run_input.training_run()
    known_runs = known if isinstance(known, Iterable) and not isinstance(known, Mapping | str) else [known]
    family = [_known_run(other, index, training, run_input) for index, other in enumerate(known_runs, 1)]
    starts = {parameters(str(size), "sizes (--sizes)") or 0.0 for size in np.atleast_1d(sizes).tolist()}
    family += [training.unstarted(model=amount(size), n_parameters=round(size)) for size in sorted(starts)]
    multiples = () if starts else MULTIPLES if curve is not None else (*BEFORE_START, *MULTIPLES)
    request = Request(number(remaining, "remaining", None), multiples, target_loss)
    return advise_before_start(training, family, request) if curve is None else advise_on(training, family, request)


def _known_run(known: Any, index: int, run: TrainingRun, run_input: RunInput) -> TrainingRun:
    """Return another run of the family from a mapping of arguments; defaults are those of `run`, made from `run_input`.

    index: its index in the list, for messages.
    """
    if not isinstance(known, Mapping):
        raise UserError(
            f'known run {index}: a mapping such as {{"curve": "losses.csv", "n_parameters": 25e6}}, but it is {known!r:.60}'
        )
    other_input = input_of(known, f"known run {index}")
    if other_input.curve is None or "n_parameters" not in other_input.stated:
        raise UserError(f"{other_input.name}: a run has a curve and n_parameters")
    try:
        other = _run_under_schedule(other_input, run, run_input)
        refuse_curve(other)
    except NoForecast as error:
        raise UserError(f"{other_input.name}: {error}; leave it out") from None
    return other


def _run_under_schedule(known: RunInput, run: TrainingRun, run_input: RunInput) -> TrainingRun:
    """Return a known run with its stated schedule, else that of `run`, or that of its log if the two contradict."""
    assumed = UNKNOWN.with_provenance(
        Provenance.ASSUMED,
        tokens_per_step=run.tokens_per_step,
        optimizer=run.facts.optimizer,
        weight_average=run.facts.weight_average,
        weight_decay=run.facts.weight_decay,
        unique_tokens=np.nan if "epochs" in known.stated else run.facts.unique_tokens,
    )

    def with_facts_of_run(*names: str) -> RunInput:
        """Return the known run with these facts of `run`, where it has none."""
        shared = {name: run_input.stated[name] for name in names if name in run_input.stated}
        count = known.count_parameters or run_input.count_parameters
        return replace(known, stated=shared | dict(known.stated), count_parameters=count)

    shares_schedule = not states_file(known.stated.get("schedule"))
    other = with_facts_of_run(*_COLUMNS, *(_OF_SCHEDULE if shares_schedule else ()))
    if known.stated.keys() & set(_OF_SCHEDULE):
        return other.training_run(assumed)
    try:
        is_stated = not run_input.stated.keys().isdisjoint(("schedule", "steps"))
        return other.training_run(assumed, None if is_stated else run.schedule)
    except UserError:
        return with_facts_of_run(*_COLUMNS).run_as_read(assumed)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    text = "losses as a tracker, a training loop or a Trainer wrote them, - for the standard input; without it the run "
    text += "has not started; or the folder of a run of the workflow, for advice on each of its trainings"
    parser.add_argument("curve", metavar="CURVE", nargs="?", help=text)
    run_options.add_run_options(parser)
    text = "parameters of a model that could be trained; may be given again"
    run_options.add_option(parser, "sizes", action="append", default=[], metavar="PARAMETERS", help=text)
    text = "another run of the family, all else as in this run but for what its log states; may be given again"
    run_options.add_option(parser, "known", action="append", default=[], metavar="CURVE:PARAMETERS", help=text)
    run_options.add_option(parser, "remaining", metavar="FLOP", help="compute that will still be spent")
    text = "a loss; the advice says when it is reached"
    run_options.add_option(parser, "target_loss", metavar="LOSS", help=text)
    results.add_form_options(parser, plot="write a picture")


def run(options: argparse.Namespace) -> None:
    """Print the advice."""
    # Lines are as long as the terminal, or COLUMNS; in a file or a pipe they are not broken.
    width = shutil.get_terminal_size(fallback=(0, 0)).columns or None
    if options.curve and Path(options.curve, RUN_FILE).exists():
        _advise_run(options, width)
        return
    run_values = {name: value for name in run_options.OPTIONS if (value := getattr(options, name)) is not None}
    with run_options.curve_file(options.curve or "") as curve:
        advice = toposcale.advise(
            curve or None,
            **run_options.arguments(run_values),
            sizes=options.sizes,
            known=[_known_arguments(text) for text in options.known],
            remaining=options.remaining,
            target_loss=options.target_loss,
        )
    results.show(advice, options, advice.text(width))


def _advise_run(options: argparse.Namespace, width: int | None) -> None:
    not_used = (*run_options.OPTIONS, "sizes", "known", "remaining", "target_loss", "plot", "csv", "latex")
    if stated := [option(name) for name in not_used if getattr(options, name)]:
        raise UserError(f"{' and '.join(stated)}: not used with the folder of a run; its configuration says it")
    advice = toposcale.advise_run(options.curve)
    print(json.dumps(advice.as_json(), indent=1, allow_nan=False) if options.json else printable(advice.text(width)))


def _known_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a known run from CURVE:PARAMETERS; the name of a file may contain colons."""
    curve, _, size = text.rpartition(":")
    try:
        if not curve:
            raise ValueError
        return {"curve": curve, "n_parameters": number_of(size)}
    except ValueError:
        raise UserError(
            f"--known {text}: it must be CURVE:PARAMETERS; a run with another schedule is given in Python "
            "(toposcale.advise) or under models in a configuration"
        ) from None
