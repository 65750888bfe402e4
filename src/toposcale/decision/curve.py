"""`toposcale.advise`: from a loss curve to the advice in one call, without a workflow, a configuration or PyTorch.

A curve becomes columns and facts here, and nothing else; `TrainingRun.of` and `advise_on` do the rest, as for every door.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toposcale import checkpoints
from toposcale.decision.advice import Advice, advise_on
from toposcale.decision.expected_regret import MULTIPLES, Request
from toposcale.io import loss_curves
from toposcale.io.amounts import amount, number_of
from toposcale.io.errors import NoForecast, UserError
from toposcale.io.step_names import MOST_STEPS
from toposcale.runs.checks import refuse_curve
from toposcale.runs.training_run import Facts, TrainingRun
from toposcale.training.schedules import SHAPES, Schedule, ScheduleTable, schedule_of

Curve = str | Path | Mapping[str, Any] | Any


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
    loss_column: str | None = None,
    step_column: str | None = None,
    name: str = "this run",
) -> Advice:
    """Finish this training run, or stop it and start a larger one? The advice of the joint law.

    curve: the losses in nats per token: a file or folder as trackers write it (CSV, Parquet, JSON,
    trainer_state.json or the folder of a Trainer, TensorBoard), or columns by name (step, loss, and where they are known
    learning_rate and validation_loss), such as a data frame. n_parameters; tokens_per_step: tokens that a step reads.
    schedule: shape (constant, linear, cosine, wsd), warmup_steps, decay_start, decay_shape, peak, final, steps, or a file
    with the columns step and learning_rate; without a peak, final is a share of it. steps: the last step of the plan,
    where no schedule tells it. warmup_steps: the same. sizes: numbers of parameters that could be started, twice and four
    times the run's by default. known: other runs of the family, each a mapping of the arguments curve, n_parameters,
    tokens_per_step, schedule, steps, warmup_steps, loss_column, step_column and name; what is not stated is as in this run,
    unless its own logged rates tell another plan. remaining: FLOP that will still be spent, by default what the plan needs.
    target_loss: told when it is reached. loss_column, step_column: the columns of the loss and of the step, where no usual
    name tells them. A number may also be a text: "25M", "25,000,000".

    Returns the advice: print it, or read it as a mapping with the keys of advice.json (docs/forecasting.md). UserError:
    one line on what is missing or wrong.
    """
    plan: dict[str, Any] = {"schedule": schedule, "steps": steps, "warmup_steps": warmup_steps}
    columns: dict[str, Any] = {"loss_column": loss_column, "step_column": step_column}
    training = training_of(curve, name, n_parameters, tokens_per_step, **plan, **columns)
    runs: Sequence[Any] = [known] if isinstance(known, Mapping | str | Path) else known
    others = [_known_training(run, number, training, plan | columns) for number, run in enumerate(runs, 1)]
    starts = {_number(size, "sizes", None, MOST_PARAMETERS) for size in np.atleast_1d(sizes).tolist()}
    others += [training.unstarted(amount(size), round(size)) for size in sorted(starts)]
    request = Request(
        None if remaining is None else _number(remaining, "remaining", None),
        () if starts else MULTIPLES,
        None if target_loss is None else _number(target_loss, "target_loss", None),
    )
    return advise_on(training, others, request)


LEAST_PARAMETERS, MOST_PARAMETERS, MOST_TOKENS = 1000, 1e15, 1e12
"""Fewer and more than any language model has, and more than any step reads."""


def _number(value: Any, what: str, least: float | None, most: float = np.inf) -> float:
    """A finite number from `least` (None: above 0) to `most`. UserError: it is none."""
    try:
        number = number_of(value) if isinstance(value, str) else float(value)
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


def training_of(
    curve: Curve,
    name: str,
    n_parameters: float | None = None,
    tokens_per_step: float | None = None,
    schedule: Mapping[str, Any] | str | Path | None = None,
    steps: int | None = None,
    warmup_steps: int | None = None,
    rates: np.ndarray | None = None,
    loss_column: str | None = None,
    step_column: str | None = None,
) -> TrainingRun:
    """A loss curve, with what is known of its training. UserError: what is missing is asked for in one line.

    rates: the rate of every step of the plan, where another training tells it.
    """
    steps, warmup_steps = _steps(steps, "steps", 1), _steps(warmup_steps, "warmup_steps")
    if n_parameters is not None:
        n_parameters = _number(n_parameters, "n_parameters", 1, MOST_PARAMETERS)
        if n_parameters < LEAST_PARAMETERS:
            raise UserError(
                f"n_parameters: {n_parameters:g} parameters make no language model; write 25e6 or 25M for 25 million"
            )
    if tokens_per_step is not None:
        tokens_per_step = _number(tokens_per_step, "tokens_per_step", 1, MOST_TOKENS)
    losses, by_trainer = _read(curve, loss_column, step_column), _facts(curve)
    log = losses.log_columns()
    plan, warmup_steps = _plan(schedule, steps, warmup_steps, log)
    last = plan.steps if plan else steps or by_trainer.get("final_step")
    facts = {
        "n_parameters (--parameters)": n_parameters or by_trainer.get("n_parameters"),
        "tokens_per_step (--tokens-per-step)": tokens_per_step or by_trainer.get("tokens_per_step"),
        "schedule (--schedule), or steps (--steps), the last step of the plan": last,
    }
    if missing := [key for key, value in facts.items() if not value]:
        raise UserError(f"{name}: not known and not in the curve: {'; '.join(missing)}: give it")
    size, tokens, final_step = (float(value or 0) for value in facts.values())
    logged = losses.columns["step"]
    if (end := int(logged.max(initial=0))) > 1.01 * final_step:
        are_tokens = end / tokens <= 1.01 * final_step and not np.any(logged % tokens)
        raise UserError(
            f"{name}: the curve goes to step {end:,}, but the plan ends at step {int(final_step):,}"
            + ("; its steps are tokens: divide them by those of a step (--tokens-per-step)" if are_tokens else "")
        )
    if warmup_steps and warmup_steps >= final_step:
        raise UserError(f"warmup_steps: {warmup_steps:,}, but the plan ends at step {int(final_step):,}")
    return TrainingRun.of(
        Facts(
            name,
            round(size),
            int(final_step),
            tokens,
            schedule=plan,
            rates=rates,
            plan="given" if rates is not None else "",
            warmup_steps=warmup_steps,
            repeated=losses.repeated,
            reached=by_trainer.get("reached") or 0,
        ),
        log,
        losses.metric_columns(),
    )


def _read(curve: Curve, loss_column: str | None, step_column: str | None) -> loss_curves.LossCurve:
    if isinstance(curve, str | Path):
        return loss_curves.read(curve, loss_column=loss_column, step_column=step_column)
    if not hasattr(curve, "keys") or getattr(curve, "ndim", 2) == 1:  # a pandas.Series has keys, too
        raise UserError(
            f"curve: a file, a folder, or columns by name such as a data frame, but it is a {type(curve).__name__}"
        )
    columns = {str(key): curve[key] for key in curve}
    return loss_curves.of_columns(columns, loss_column=loss_column, step_column=step_column)


def _facts(curve: Curve) -> dict[str, int | None]:
    """What a Trainer's folder tells beside its losses."""
    state = loss_curves.trainer_state_of(curve) if isinstance(curve, str | Path) else None
    if state is None:
        return {}
    reached = {"reached": int(loss_curves.trainer_state(state)["global_step"])}
    try:
        size = checkpoints.count_parameters(state.parent)
        return {"n_parameters": size, **checkpoints.trainer_facts(state, state.parent), **reached}
    except UserError:  # no weights beside it
        return {**checkpoints.trainer_facts(state, None), **reached}


def _plan(
    schedule: Mapping[str, Any] | str | Path | None,
    steps: int | None,
    warmup_steps: int | None,
    log: Mapping[str, np.ndarray],
) -> tuple[Schedule | ScheduleTable | None, int | None]:
    """The plan that was stated, and the steps of its warm-up, None where nobody stated them."""
    if schedule is None:
        return None, warmup_steps
    if isinstance(schedule, str) and schedule in SHAPES:
        schedule = {"shape": schedule}
    if isinstance(schedule, str | Path):
        beside = {"steps (--steps)": steps, "warmup_steps (--warmup)": warmup_steps}
        idle = [name for name, value in beside.items() if value is not None]
        if idle and Path(schedule).exists():
            raise UserError(f"{' and '.join(idle)}: means nothing beside the schedule file {schedule}")
        return schedule_of(schedule), None
    if not isinstance(schedule, Mapping):
        raise UserError(
            f"schedule: a shape ({', '.join(SHAPES)}), a mapping of its fields, or a file, but it is a "
            f"{type(schedule).__name__}"
        )
    both = [("steps", steps), ("warmup_steps", warmup_steps), *schedule.items()]
    stated = {key: value for key, value in both if value is not None}
    stated |= {key: _steps(stated[key], key) for key in ("steps", "warmup_steps", "decay_start") if key in stated}
    stated |= {key: _number(stated[key], key, 0) for key in ("peak", "final") if key in stated}
    if "steps" not in stated and "at" not in stated:
        raise UserError("schedule: steps, the last step of the plan, is missing")
    if "peak" not in stated and "at" not in stated:
        unit = schedule_of(stated | {"peak": 1.0})
        # Of a course of the rate its unit does not matter; that of the log lets the two be compared.
        stated["peak"] = _peak(unit.rates(), log["step"], log["learning_rate"])
        stated |= {"final": stated["final"] * stated["peak"]} if "final" in stated else {}
    return schedule_of(stated), stated.get("warmup_steps")


def _peak(unit: np.ndarray, steps: np.ndarray, rates: np.ndarray) -> float:
    """The highest rate of a plan of which only the course is known, (steps + 1,), from a log that may start in mid-run."""
    inside = np.isfinite(rates) & (rates > 0) & (steps < len(unit))
    at, logged = steps[inside].astype(int), rates[inside]
    if not len(at):
        return 1.0
    at_the_peak = unit[at] == 1
    if at_the_peak.any():
        return float(logged[at_the_peak].max())
    return float(np.median(logged / np.maximum(unit[at], 1e-3)))


_PLAN = ("schedule", "steps", "warmup_steps")
_COLUMNS = ("loss_column", "step_column")
_KNOWN = {"curve", "name", "n_parameters", "tokens_per_step", *_PLAN, *_COLUMNS}


def _known_training(run: Any, number: int, training: TrainingRun, alike: Mapping[str, Any]) -> TrainingRun:
    """Another training of the family; what is not stated of it is as in `training`, of which `alike` was stated.

    Where nothing of its plan is stated and its log contradicts that plan, its own log tells its plan.
    """
    if not isinstance(run, Mapping):
        raise UserError(
            f'known run {number}: a mapping such as {{"curve": "losses.csv", "n_parameters": 25e6}}, but it is {run!r:.60}'
        )
    curve = run.get("curve")
    name = Path(curve).name if isinstance(curve, str | Path) else f"known run {number}"
    stated: dict[str, Any] = {"name": name, "tokens_per_step": training.tokens_per_step}
    stated |= {key: value for key, value in run.items() if value is not None}
    if unknown := sorted(set(stated) - _KNOWN):
        raise UserError(f"known: {', '.join(unknown)} means nothing; a run has {', '.join(sorted(_KNOWN))}")
    if not {"curve", "n_parameters"} <= set(stated):
        raise UserError(f"{stated['name']}: a run has a curve and n_parameters")
    stated = {key: alike[key] for key in _COLUMNS} | stated
    plan = {key: alike[key] for key in _PLAN if alike[key] is not None}
    try:
        other = _with_plan(stated, training, plan)
        refuse_curve(other)
    except NoForecast as error:
        raise UserError(f"{stated['name']}: {error}; leave it out") from None
    return other


def _with_plan(stated: dict[str, Any], training: TrainingRun, plan: Mapping[str, Any]) -> TrainingRun:
    """A known run under the plan that was stated of it, or else under that of `training`, or else of its own log."""
    if stated.keys() & set(_PLAN):
        # A file tells the whole plan, so nothing is added to it.
        from_file = isinstance(stated.get("schedule"), str | Path) and stated["schedule"] not in SHAPES
        return training_of(**{**({} if from_file else plan), **stated})
    alike: dict[str, Any] = dict(plan)
    if not alike.keys() & {"schedule", "steps"}:  # the log of `training` tells its plan
        alike |= {"steps": training.final_step, "rates": training.learning_rates if training.plan_known else None}
    try:
        return training_of(**{**alike, **stated})
    except UserError:
        columns = {key: stated[key] for key in _COLUMNS}
        return training_of(**stated, steps=int(_read(stated["curve"], **columns).columns["step"].max()))
