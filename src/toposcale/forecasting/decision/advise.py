"""`toposcale.advise`: from a loss curve to the advice in one call, without a workflow, a configuration or PyTorch."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from toposcale.forecasting.amounts import amount
from toposcale.forecasting.decision.advice import Advice, advise_before_start, advise_on
from toposcale.forecasting.decision.candidates import BEFORE_START, MULTIPLES, Request
from toposcale.forecasting.runs.from_curve import Curve, Stated, known_run, number, parameters, run_of_curve


def advise(
    curve: Curve | None = None,
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
    unique_tokens: float | None = None,
    epochs: float | None = None,
    optimizer: str = "",
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
        warmup_steps, loss_column, step_column, run, unique_tokens, epochs, optimizer and name. What is not stated is as
        in this run, unless the logged learning rates contradict it.
    remaining : float, optional
        Compute that will still be spent, FLOP; by default what the schedule needs.
    target_loss : float, optional
        Loss in nats per token; the advice tells when it is reached.
    loss_column, step_column : str, optional
        Columns of the loss and of the step, if their names are not usual ones.
    run : int, optional
        Which run of the file to read, from 1, where it holds several.
    unique_tokens, epochs : float, optional
        Unique tokens of the training text, or epochs of the whole run over it: repeated tokens are worth less.
    optimizer : str, optional
        Name of the optimizer. The law is for "adamw"; under another or unknown one the interval of a decay is wider.
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
    stated = Stated(
        curve,
        name,
        n_parameters,
        tokens_per_step,
        schedule,
        steps,
        warmup_steps,
        loss_column,
        step_column,
        run,
        unique_tokens,
        epochs,
        optimizer,
    )
    training = run_of_curve(stated)
    given: Sequence[Any] = [known] if isinstance(known, Mapping | str | Path) else known
    others = [known_run(other, index, training, stated) for index, other in enumerate(given, 1)]
    starts = {parameters(size, "sizes (--sizes)") or 0.0 for size in np.atleast_1d(sizes).tolist()}
    others += [training.unstarted(amount(size), round(size)) for size in sorted(starts)]
    request = Request(
        remaining=number(remaining, "remaining", None),
        multiples=() if starts else MULTIPLES if curve is not None else (*BEFORE_START, *MULTIPLES),
        target_loss=number(target_loss, "target_loss", None),
    )
    return advise_before_start(training, others, request) if curve is None else advise_on(training, others, request)
