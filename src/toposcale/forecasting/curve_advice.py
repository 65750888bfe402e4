"""`toposcale.advise`: from a loss curve to the advice in one call, without a workflow, a configuration or PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from toposcale import checkpoints
from toposcale.forecasting import words
from toposcale.forecasting.advice import Question
from toposcale.forecasting.advice import advise as advise_on
from toposcale.forecasting.candidates import MULTIPLES
from toposcale.forecasting.history import History
from toposcale.forecasting.prediction import NoForecast
from toposcale.forecasting.trust import refuse_curve
from toposcale.io import loss_curves
from toposcale.io.amounts import amount
from toposcale.io.errors import UserError
from toposcale.io.step_names import MOST_STEPS
from toposcale.training.schedules import SHAPES, Schedule, ScheduleTable, plan_of_training, schedule_of

Curve = str | Path | Mapping[str, Any] | Any


class Advice(dict[str, Any]):
    """What is known of a run and what to do, by name, as advice.json holds it; printed, the same in words.

    history: the run as it was read.
    """

    history: History

    def __str__(self) -> str:
        if self.history.is_over and self["no_advice_because"]:
            return words.told_of_finished(self.history)
        return words.told(self)


def advise(
    curve: Curve,
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
    name: str = "this run",
    seed: int = 0,
) -> Advice:
    """Finish this training run, or stop it and start a larger one? The advice of the joint law, as plain values.

    curve: the losses in nats per token: a file or folder as trackers write it (CSV, Parquet, JSON,
    trainer_state.json or the folder of a Trainer, TensorBoard), or columns by name (step, loss, and where they are known
    learning_rate and validation_loss), such as a data frame. n_parameters; tokens_per_step: tokens that a step reads.
    schedule: shape (constant, linear, cosine, wsd), warmup_steps, decay_start, decay_shape, peak, final, steps, or a file
    with the columns step and learning_rate; without a peak, final is a share of it. steps: the last step of the plan,
    where no schedule tells it. warmup_steps: the same. sizes: numbers of parameters that could be started, twice and four
    times the run's by default. known: other runs of the family, each a mapping of the arguments curve, n_parameters,
    tokens_per_step, schedule, steps, warmup_steps and name. remaining: FLOP that will still be spent, by default what the
    plan needs. target_loss: told when it is reached.

    Returns a mapping with the keys of advice.json (docs/forecasting.md). UserError: one line on what is missing or wrong.
    """
    run = history_of(curve, name, n_parameters, tokens_per_step, schedule, steps, warmup_steps)
    told = [known] if isinstance(known, Mapping) else known
    others = [_known(one, number, run) for number, one in enumerate(told, 1)]
    named = {_number(size, "sizes", None, MOST_PARAMETERS) for size in np.atleast_1d(sizes).tolist()}
    others += [_unstarted(size, run) for size in sorted(named)]
    question = Question(
        None if remaining is None else _number(remaining, "remaining", None),
        () if named else MULTIPLES,
        None if target_loss is None else _number(target_loss, "target_loss", None),
    )
    advice = Advice(advise_on(run, others, question, seed))
    if run.is_over and advice["no_advice_because"]:
        advice["no_advice_because"] = words.told_of_finished(run)
    advice.history = run
    return advice


MOST_PARAMETERS, MOST_TOKENS = 1e15, 1e12
"""More than any model has, and than any step reads."""


def _number(value: Any, what: str, least: float | None, most: float = np.inf) -> float:
    """A finite number from `least` (None: above 0) to `most`. UserError: it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UserError(f"{what}: {value!r} is no number; write for example 25e6") from None
    high_enough = number > 0 if least is None else number >= least
    if not (high_enough and np.isfinite(number) and number <= most):
        limits = "above 0" if least is None else f"at least {least:g}"
        limits += f" and at most {most:g}" if np.isfinite(most) else ""
        raise UserError(f"{what}: {number:g}, but it must be {limits}")
    return number


def _steps(value: Any, what: str, least: int = 0) -> int | None:
    if value is None:
        return None
    number = _number(value, what, least, MOST_STEPS)
    if number % 1:
        raise UserError(f"{what}: {number:g}, but it must be a whole number")
    return int(number)


def history_of(
    curve: Curve,
    name: str,
    n_parameters: float | None = None,
    tokens_per_step: float | None = None,
    schedule: Mapping[str, Any] | str | Path | None = None,
    steps: int | None = None,
    warmup_steps: int | None = None,
) -> History:
    """A loss curve, with what is known of its training, as a history. UserError: what is missing is asked for in one
    line."""
    steps, warmup_steps = _steps(steps, "steps", 1), _steps(warmup_steps, "warmup_steps")
    if n_parameters is not None:
        n_parameters = _number(n_parameters, "n_parameters", 1, MOST_PARAMETERS)
    if tokens_per_step is not None:
        tokens_per_step = _number(tokens_per_step, "tokens_per_step", 1, MOST_TOKENS)
    read = _read(curve)
    facts = _facts(curve)
    log, metrics = read.log(), read.metric_rows(name)
    at, rates = (log[column].to_numpy().astype(np.float64) for column in ("step", "learning_rate"))
    plan = _plan(schedule, steps, warmup_steps, rates)
    last = plan.steps if plan else steps or facts.get("final_step") or 0
    given = {
        "n_parameters (--parameters)": n_parameters or facts.get("n_parameters"),
        "tokens_per_step (--tokens-per-step)": tokens_per_step or facts.get("tokens_per_step"),
        "schedule (--schedule), or steps (--steps), the last step of the plan": last,
    }
    if missing := [key for key, value in given.items() if not value]:
        raise UserError(f"{name}: not known and not in the curve: {'; '.join(missing)}: give it")
    if at.max(initial=0) > 1.01 * last:
        raise UserError(
            f"{name}: the curve goes to step {int(at.max()):,}, but the plan ends at step {last:,}"
        )
    known, source = plan_of_training(last, at, rates, plan, warmup_steps)
    measured = "validation_loss" in read.metrics
    chosen = metrics.filter(
        pa.compute.equal(metrics["metric"], "validation_loss" if measured else "training_loss")
    ).sort_by("step")
    return History(
        name,
        round(float(n_parameters or facts["n_parameters"] or 0)),
        float(tokens_per_step or facts["tokens_per_step"] or np.nan),
        last,
        steps=at,
        losses=log["loss"].to_numpy(),
        gradient_norms=log["gradient_norm"].to_numpy(),
        learning_rates=known,
        checkpoint_steps=chosen["step"].to_numpy().astype(np.float64),
        checkpoint_losses=chosen["value"].to_numpy(),
        plan=source,
        stated_warmup=int(warmup_steps or 0),
        metric="validation loss" if measured else "training loss",
    )


def _read(curve: Curve) -> loss_curves.LossCurve:
    if isinstance(curve, str | Path):
        return loss_curves.read(curve)
    if not hasattr(curve, "keys"):
        raise UserError(
            f"curve: a file, a folder, or columns by name such as a data frame, but it is a {type(curve).__name__}"
        )
    return loss_curves.of_columns({str(key): curve[key] for key in curve})


def _facts(curve: Curve) -> dict[str, int | None]:
    """What a Trainer's folder tells beside its losses."""
    if not isinstance(curve, str | Path):
        return {}
    state = loss_curves.trainer_state_of(curve)
    if state is None:
        return {}
    try:
        size = checkpoints.count_parameters(state.parent)
        return {"n_parameters": size, **checkpoints.trainer_facts(state, state.parent)}
    except UserError:  # no weights beside it
        return {**checkpoints.trainer_facts(state, None)}


def _plan(
    schedule: Mapping[str, Any] | str | Path | None,
    steps: int | None,
    warmup_steps: int | None,
    rates: np.ndarray,
) -> Schedule | ScheduleTable | None:
    if schedule in SHAPES:
        schedule = {"shape": schedule}
    if schedule is None or not isinstance(schedule, Mapping):
        return None if schedule is None else schedule_of(schedule)
    given = {key: value for key, value in schedule.items() if value is not None}
    given = {"steps": steps, "warmup_steps": warmup_steps} | given
    given = {key: value for key, value in given.items() if value is not None}
    given |= {
        key: _steps(given[key], key) for key in ("steps", "warmup_steps", "decay_start") if key in given
    }
    if "peak" not in given:
        # Of a course of the rate its unit does not matter; that of the log lets the two be compared.
        logged = rates[np.isfinite(rates)]
        given["peak"] = float(logged.max()) if len(logged) and logged.max() > 0 else 1.0
        given["final"] = given.get("final", 0.0) * given["peak"]
    if "steps" not in given:
        raise UserError("schedule: steps, the last step of the plan, is missing")
    return schedule_of(given)


def _known(given: Mapping[str, Any], number: int, run: History) -> History:
    """Another run of the family; what is not said of it is as in the run that is asked about."""
    told = {"name": f"known run {number}", "tokens_per_step": run.tokens_per_step, **given}
    if unknown := sorted(set(told) - _KNOWN):
        raise UserError(f"known: {', '.join(unknown)} means nothing; a run has {', '.join(sorted(_KNOWN))}")
    if not {"curve", "n_parameters"} <= set(told):
        raise UserError(f"{told['name']}: a run has a curve and n_parameters")
    if "steps" not in told and not told.get("schedule"):
        told["steps"] = int(_read(told["curve"]).columns["step"].max())
    found = history_of(**told)
    try:
        refuse_curve(found)
    except NoForecast as error:
        raise UserError(f"{found.model}: {error}; leave it out") from None
    return found


_KNOWN = {"curve", "name", "n_parameters", "tokens_per_step", "schedule", "steps", "warmup_steps"}


def _unstarted(size: float, run: History) -> History:
    return History(
        amount(size),
        round(float(size)),
        run.tokens_per_step,
        run.final_step,
        learning_rates=run.learning_rates,
        plan=run.plan,
    )


def chart(advice: Advice, width: int = 64, height: int = 12) -> str:
    """The losses seen (o), and the forecast of the plan (-) with its interval (.), over the logarithm of the step, as
    text."""
    history = advice.history
    steps, losses = history.loss_curve
    if advice["forecast"] is None or len(steps) < 2:
        return ""
    left, right, course = np.log(steps[0]), np.log(history.final_step), advice["course"]
    low, high = min(losses.min(), *course["low"]), losses.max()
    grid = [[" "] * width for _ in range(height)]

    def put(step: float, loss: float, sign: str) -> None:
        column = round((np.log(step) - left) / (right - left) * (width - 1))
        row = round((high - loss) / (high - low) * (height - 1))
        if 0 <= row < height:
            grid[row][column] = sign

    for end, sign in (("low", "."), ("high", "."), ("loss", "-")):
        for step, loss in zip(course["step"], course[end], strict=True):
            put(step, loss, sign)
    for step, loss in zip(steps, losses, strict=True):
        put(float(step), float(loss), "o")
    labels = [f"{high:.3f}", *[""] * (height - 2), f"{low:.3f}"]
    rows = [f"  {label:>7s} |{''.join(cells).rstrip()}" for label, cells in zip(labels, grid, strict=True)]
    axis = f"step {steps[0]:,.0f}".ljust(width - 12) + f"{history.final_step:,}".rjust(12)
    return "\n".join([*rows, " " * 10 + "+" + "-" * width, " " * 11 + axis])
