"""Training runs from the loss curves of users: files, folders of a Trainer, or columns."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from toposcale.forecasting.logs import trainer_states
from toposcale.forecasting.logs.loss_curves import LOG, LossCurve, of_columns, read
from toposcale.forecasting.runs.arguments import RunInput
from toposcale.forecasting.runs.facts import UNKNOWN, CountParameters, Provenance, RunFacts
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule, ScheduleProvenance
from toposcale.forecasting.runs.schedules import Schedule
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import UserError, listed
from toposcale.io.files import read_json

NEEDED = {
    "n_parameters": "n_parameters{of} (--n-parameters)",
    "tokens_per_step": "tokens_per_step (--tokens-per-step)",
    "final_step": "schedule (--schedule), or steps (--steps), the last step of the run",
}
"""Facts that an advice needs, and how they are stated; of: the model whose adapter the weights are."""


def run_as_read(losses: LossCurve, given: RunInput) -> TrainingRun:
    """Return the run of a curve that was read, whatever is unknown; without a known end it ends at its last row."""
    last = int(losses.columns["step"].max(initial=1))
    return run_of_curve(losses, given, UNKNOWN.with_provenance(Provenance.ASSUMED, final_step=last), needed=())


def run_of_curve(
    losses: LossCurve,
    given: RunInput,
    assumed: RunFacts = UNKNOWN,
    like: LearningRateSchedule | None = None,
    needed: Sequence[str] = tuple(NEEDED),
) -> TrainingRun:
    """Return the run of a curve that was read; raise UserError, which names what is missing and what was left out of it.

    assumed: facts where neither the user nor the log states them. like: the schedule and its end if the user states none.
    needed: the facts without which there is an error; of the others only the last step has to be known.
    """
    try:
        facts = given.facts.merged(logged_facts(losses, given.count_parameters)).merged(assumed)
        if like is not None:
            facts = facts.with_provenance(Provenance.ASSUMED, final_step=like.final_step)
        if missing := [NEEDED[name] for name in needed if not facts.is_known(name)]:
            of = f" of {facts.adapter_of}, of which the weights there are an adapter" if facts.adapter_of else ""
            unknown = "; ".join(missing).format(of=of)
            raise UserError(f"{facts.model}: not known and not in the curve: {unknown}: give it")
        return _run(losses, facts.with_unique_tokens(), given, like)
    except UserError as error:
        raise UserError("; ".join((f"{error}", *losses.notes))) from None


def _run(losses: LossCurve, facts: RunFacts, given: RunInput, like: LearningRateSchedule | None) -> TrainingRun:
    """Return the run of a curve: its columns, its facts, and its schedule."""
    log, stated, final_step, warmup_steps = losses.log(), given.schedule, int(facts.final_step or 1), facts.warmup_steps
    steps, rates = log["step"], log["learning_rate"]
    if given.is_relative and isinstance(stated, Schedule):
        stated = stated.at_peak_of(steps, rates)
    _refuse_late_rows(facts.model, losses.columns["step"], facts.tokens_per_step, final_step)
    if warmup_steps and warmup_steps >= final_step:
        raise UserError(f"warmup_steps: {warmup_steps:,}, but the schedule ends at step {final_step:,}")
    if like is not None and like.is_known:
        schedule = replace(like, stated_warmup=warmup_steps, warmup_logged=bool(np.isfinite(rates).any()))
        schedule = replace(schedule, provenance=ScheduleProvenance.GIVEN)
    else:
        schedule = LearningRateSchedule.of_log(final_step, steps, rates, stated, warmup_steps)
    return TrainingRun.of(
        facts,
        schedule,
        log,
        losses.metric_series(),
        checkpoints=_trained_to(losses),
        notes=(*losses.notes, *facts.notes()),
        low_confidence_reasons=losses.low_confidence_reasons,
    )


def _refuse_late_rows(name: str, steps: np.ndarray, tokens_per_step: float, final_step: int) -> None:
    """Raise UserError if the curve continues after the end of the schedule."""
    if (end := int(steps.max(initial=0))) > 1.01 * final_step:
        are_tokens = end / tokens_per_step <= 1.01 * final_step and not np.any(steps % tokens_per_step)
        raise UserError(
            f"{name}: the curve goes to step {end:,}, but the schedule ends at step {final_step:,}"
            + ("; its steps are tokens: divide them by the tokens per step (--tokens-per-step)" if are_tokens else "")
        )


def read_curve(given: RunInput) -> LossCurve:
    """Read the curve of a file, a folder or columns; None is that of a run that has not started."""
    curve = given.curve
    if curve is None:
        return LossCurve(dict.fromkeys(("step", *LOG), np.empty(0)))
    if isinstance(curve, str | Path):
        trainer_states.refuse_two_trainings(trainer_states.checkpoints_in(Path(curve)))
        losses = read(curve, **given.reading)
        _refuse_without_losses(losses)
        where = losses.trainer.path if losses.trainer else curve
    else:
        named, where = _by_name(curve), "the loss curve"
        losses = of_columns({str(key): named[key] for key in named}, **given.reading)
    _refuse_other_units(losses, where)
    return losses


def _by_name(curve: Any) -> Any:
    """Return the columns of a curve by name; raise UserError for an object that is none."""
    if hasattr(curve, "index") and getattr(curve, "ndim", 2) == 1:  # a series
        return {"step": np.asarray(curve.index), "loss": np.asarray(curve)}
    if hasattr(curve, "keys"):
        return curve
    if isinstance(curve, list | tuple) and curve and all(isinstance(row, Mapping) for row in curve):
        import pandas as pd  # slow to import, and files do not need it

        return pd.DataFrame(list(curve))
    if getattr(curve, "ndim", 0) == 2 and curve.shape[1] == 2:
        return {"step": curve[:, 0], "loss": curve[:, 1]}
    raise UserError(
        "curve: a file, a folder, columns by name such as a data frame, a series of losses whose index is the step, an "
        f"array (n, 2) of steps and losses, or a list of rows by name, but it is a {type(curve).__name__}"
    )


def _refuse_without_losses(losses: LossCurve) -> None:
    """Raise UserError if no entry of the log of a Trainer has a loss; an empty log is that of a start."""
    if (state := losses.trainer) is None or not (history := state.content["log_history"]):
        return
    columns = [losses.columns[name] for name in ("loss", "validation_loss") if name in losses.columns]
    if not any(np.isfinite(values).any() for values in columns):
        keys = dict.fromkeys(key for entry in history if isinstance(entry, dict) for key in entry)
        raise UserError(
            f"{state.path}: no entry of its log_history has a step and a loss (as numbers); its keys are {listed(keys, 20)}"
        )


def _refuse_other_units(losses: LossCurve, where: str | Path) -> None:
    """Raise UserError if a loss is 0 or less, as those of policies and flows may be."""
    for name in ("loss", "validation_loss"):
        if (low := np.fmin.reduce(losses.columns.get(name, ()), initial=np.inf)) <= 0:
            raise UserError(
                f"{where}: the {name.replace('_', ' ')} is {low:g} in a row, but a loss in nats per token is above 0"
            )


def logged_facts(losses: LossCurve, count_parameters: CountParameters | None) -> RunFacts:
    """Return the facts of a run that the curve states, and the weights beside it where they can be counted."""
    if (state := losses.trainer) is None:
        return UNKNOWN.with_provenance(
            Provenance.LOGGED,
            n_parameters=losses.n_parameters or np.nan,
            tokens_per_step=float(losses.tokens_per_step or np.nan),
            final_step=losses.final_step or None,
        )
    folder, base = state.path.parent, ""
    if (adapter := folder / "adapter_config.json").exists():  # its parameters are not those of the model
        base = str(read_json(adapter).get("base_model_name_or_path") or "a model that it does not name")
    size, inner = 0, 0
    with suppress(UserError, OSError):  # no weights there
        if count_parameters is not None:
            size, inner = count_parameters(Path(base) if base else folder)
    logged, epochs = trainer_states.facts(state.content, inner), state.content.get("epoch")
    of_run = [epochs / step * logged["final_step"] for step in _trained_to(losses) if epochs and logged["final_step"]]
    return UNKNOWN.with_provenance(
        Provenance.LOGGED,
        tokens_per_step=float(logged["tokens_per_step"] or np.nan),
        final_step=logged["final_step"],
        epochs=of_run[0] if of_run else np.nan,
    ).with_provenance(Provenance.WEIGHTS, n_parameters=size or np.nan, adapter_of=base)


def _trained_to(losses: LossCurve) -> list[int]:
    """Return the step of a Trainer's state, none of other files: a checkpoint, whose loss may not be logged."""
    return [step] if losses.trainer and (step := int(losses.trainer.content["global_step"])) else []
