"""`toposcale.advise`: from a loss curve to the advice in one call, without a workflow, a configuration or PyTorch."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from toposcale.forecasting.amounts import amount, number, parameters
from toposcale.forecasting.decision.advice import Advice, advise_before_start, advise_on
from toposcale.forecasting.decision.candidates import BEFORE_START, MULTIPLES, Request
from toposcale.forecasting.runs.checks import refuse_curve
from toposcale.forecasting.runs.facts import UNKNOWN, CountParameters, Provenance
from toposcale.forecasting.runs.run_input import CurveInput, RunInput, run_arguments, states_file, without_none
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import NoForecast, UserError

_READER_ARGUMENTS = ("loss_column", "step_column", "count_parameters")
_SCHEDULE_ARGUMENTS = ("schedule", "steps", "warmup_steps")


def advise(
    curve: CurveInput | None = None,
    *,
    n_parameters: float | None = None,
    tokens_per_step: float | None = None,
    schedule: Mapping[str, Any] | str | Path | None = None,
    steps: int | None = None,
    warmup_steps: int | None = None,
    sizes: Sequence[float] = (),
    known: Sequence[Mapping[str, Any]] = (),
    remaining: float | None = None,
    target_loss: float | None = None,
    loss_column: str | None = None,
    step_column: str | None = None,
    run: int | None = None,
    pattern: str | None = None,
    unique_tokens: float | None = None,
    epochs: float | None = None,
    optimizer: str = "",
    objective: str = "",
    count_parameters: CountParameters | None = None,
    name: str = "this run",
    **unknown: Any,
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
    n_parameters : float, optional
        Number of parameters, embeddings included.
    tokens_per_step : float, optional
        Tokens that one step reads.
    schedule : mapping or path, optional
        Learning-rate schedule: fields shape (constant, linear, cosine, wsd), warmup_steps, decay_start, decay_shape, peak,
        final (minimum rate; without a peak a share of it) and steps; or a file with the columns step and learning_rate.
    steps : int, optional
        Last step of the run, where no schedule states it.
    warmup_steps : int, optional
        Steps of warm-up, where no schedule states them.
    sizes : sequence of float, optional
        Numbers of parameters that could be trained from scratch; by default twice and four times `n_parameters`, and of a
        run that has not started half and a quarter, too.
    known : sequence of mapping, optional
        Other runs of the family: each a mapping of the arguments curve, n_parameters, tokens_per_step, schedule, steps,
        warmup_steps, loss_column, step_column, run, pattern, unique_tokens, epochs, optimizer, objective and name. What is
        not stated is as in this run, unless the logged learning rates contradict it.
    remaining : float, optional
        Compute that will still be spent, FLOP; by default what the schedule needs.
    target_loss : float, optional
        Loss in nats per token; the advice tells when it is reached.
    loss_column, step_column : str, optional
        Columns of the loss and of the step, if their names are not usual ones.
    run : int, optional
        Which run of the file to read, from 1, where it holds several.
    pattern : str, optional
        Regular expression of the lines of a text log, with groups called step and loss.
    unique_tokens, epochs : float, optional
        Unique tokens of the training text, or epochs of the whole run over it: repeated tokens are worth less.
    optimizer : str, optional
        Name of the optimizer. The law is for "adamw"; under another or unknown one the interval of a decay is wider.
    objective : str, optional
        Objective of the training. The law is for "next-token"; a run with another one is refused.
    count_parameters : callable, optional
        Function of the path of a checkpoint that returns the numbers of its parameters with and without embeddings, for the
        one that a Trainer left beside its log. `toposcale.advise` has one; `toposcale.forecasting.advise` reads no weights.
    name : str, optional
        Name of the run in texts.
    **unknown : Any
        Not used: a misspelt argument is refused with the closest name.

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
    for argument in unknown:
        near = get_close_matches(argument, [*signature(advise).parameters], 1)
        raise TypeError(f"advise: no argument {argument}" + (f"; did you mean {near[0]}?" if near else ""))
    run_input = RunInput(
        curve,
        name,
        n_parameters=n_parameters,
        tokens_per_step=tokens_per_step,
        schedule=schedule,
        steps=steps,
        warmup_steps=warmup_steps,
        loss_column=loss_column,
        step_column=step_column,
        run=run,
        pattern=pattern,
        unique_tokens=unique_tokens,
        epochs=epochs,
        optimizer=optimizer,
        objective=objective,
        count_parameters=count_parameters,
    )
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
    stated = run_arguments(without_none(known), f"known run {index}")
    if not {"curve", "n_parameters"} <= set(stated):
        raise UserError(f"{stated['name']}: a run has a curve and n_parameters")
    try:
        other = _run_under_schedule(stated, run, run_input)
        refuse_curve(other)
    except NoForecast as error:
        raise UserError(f"{stated['name']}: {error}; leave it out") from None
    return other


def _run_under_schedule(stated: dict[str, Any], run: TrainingRun, run_input: RunInput) -> TrainingRun:
    """Return a known run with its stated schedule, else that of `run`, or that of its log if the two contradict."""
    assumed = UNKNOWN.with_provenance(
        Provenance.ASSUMED,
        tokens_per_step=run.tokens_per_step,
        optimizer=run.facts.optimizer,
        unique_tokens=np.nan if "epochs" in stated else run.facts.unique_tokens,
    )
    own_arguments = {key: getattr(run_input, key) for key in _READER_ARGUMENTS} | stated
    shared = () if states_file(stated.get("schedule")) else _SCHEDULE_ARGUMENTS
    known_input = RunInput(**{key: getattr(run_input, key) for key in shared} | own_arguments)
    if stated.keys() & set(_SCHEDULE_ARGUMENTS):
        return known_input.training_run(assumed)
    try:
        is_stated = run_input.schedule is not None or run_input.steps is not None
        return known_input.training_run(assumed, None if is_stated else run.schedule)
    except UserError:
        return RunInput(**own_arguments).run_as_read(assumed)
