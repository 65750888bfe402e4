"""Rows of a model in the tables models and schedules, from its stated facts and its files."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from toposcale import checkpoints
from toposcale.forecasting.logs import trainer_states
from toposcale.forecasting.runs.facts import FACTS_OF_A_LOG
from toposcale.forecasting.runs.learning_rate_schedule import (
    LearningRateSchedule,
    breakpoints,
    first_peak,
    longest_warmup,
)
from toposcale.forecasting.runs.schedules import ScheduleTable, schedule_of
from toposcale.io.errors import UserError
from toposcale.io.files import read_json


class ModelRows(NamedTuple):
    """A row of the models table, and the rows of the schedules table for that model."""

    model: dict[str, Any]
    schedule: list[dict[str, Any]]


def rows_of_model(
    name: str,
    facts: Mapping[str, Any],
    *,
    weights: str | Path | None = None,
    n_parameters: int | None = None,
    curve: str | Path | None = None,
    steps: ArrayLike = (),
    rates: ArrayLike = (),
    columns_of_log: Mapping[str, str] | None = None,
) -> ModelRows:
    """Return the rows of a model in the tables models and schedules. UserError: the log contradicts the schedule.

    `facts` (of `plan.Model`; `schedule` holds the fields of `schedule_of`) have precedence over the files; the rest stays
    unknown. weights: a checkpoint. n_parameters: the size that was noted of it. curve: the user's file with the losses, or
    the state of a Trainer. steps, rates (rows,): learning rates of the training log. columns_of_log: as `log_columns`
    returns.
    """
    stated_facts = {key: value for key, value in facts.items() if value is not None}
    steps, rates = np.asarray(steps), np.asarray(rates)
    logged, end = max(map(int, steps), default=None), stated_facts.get("final_step")
    if curve is not None and end and logged and logged > 1.01 * end:
        raise UserError(f"models.{name}.final_step holds {end:,}, but the log goes to step {logged:,} ({curve})")
    last_steps, stated_schedule = [stated_facts.pop("last_checkpoint", None), logged], None
    if fields := stated_facts.pop("schedule", None):
        stated_schedule = schedule_of(fields)
        last_steps = [stated_schedule.steps]
    row: dict[str, Any] = {
        "model": name,
        "final_step": max((step for step in last_steps if step is not None), default=None),
    }
    log_facts, log_notes = _facts_of_log(columns_of_log or {})
    file_facts = log_facts | _facts_of_files(weights, curve)
    row |= {"n_parameters": n_parameters, **log_notes, **file_facts}
    row["is_end_known"] = bool(end or stated_schedule or file_facts.get("final_step"))
    row |= stated_facts
    try:
        schedule = LearningRateSchedule.of_log(
            row["final_step"], steps, rates, stated_schedule, stated_facts.get("warmup_steps")
        )
    except UserError as error:
        raise UserError(f"models.{name}.{error}") from None
    row |= {"schedule_provenance": schedule.provenance.value, "schedule_unknown_because": schedule.unknown_because}
    if isinstance(stated_schedule, ScheduleTable):
        row.setdefault("warmup_steps", schedule.warmup_steps)
    if row.get("warmup_steps") is None:
        bounds = [bound for bound in (row.get("warmup_at_most"), longest_warmup(steps, rates)) if bound is not None]
        row |= {"warmup_steps": warmup_of_log(steps, rates), "warmup_at_most": min(bounds, default=None)}
    breaks = breakpoints(schedule.rates).tolist() if schedule.is_known else []
    return ModelRows(row, [{"model": name, "step": k, "learning_rate": float(schedule.rates[k])} for k in breaks])


def _facts_of_files(weights: str | Path | None, curve: str | Path | None) -> dict[str, Any]:
    """Return the columns of a model from its checkpoint and the state of its Trainer."""
    count = None if weights is None else checkpoints.Checkpoint(checkpoints.locate(weights)).count
    columns = {"n_parameters": count.total} if count else {}
    if curve is not None and Path(curve).name == trainer_states.FILE_NAME:
        state = trainer_states.read_state(curve)
        facts = trainer_states.facts(state, count.without_embeddings if count else 0)
        columns |= {name: value for name, value in facts.items() if value}
    return columns


def _facts_of_log(columns: Mapping[str, str]) -> tuple[dict[str, int], dict[str, str]]:
    """Return the facts and the other columns that a log states."""
    facts = {name: int(columns[f"log_{name}"]) for name in FACTS_OF_A_LOG if f"log_{name}" in columns}
    return facts, {name: text for name, text in columns.items() if name.removeprefix("log_") not in facts}


def warmup_of_log(steps: ArrayLike, rates: ArrayLike) -> int | None:
    """Return the step where the logged rate first comes near its peak; None if the log does not show it.

    steps, rates (rows,). A missing rate leaves the warm-up unknown, and so does a log that begins later than step 1 at its
    highest rate.
    """
    times, logged = np.asarray(steps, dtype=np.float64), np.asarray(rates, dtype=np.float64)
    if len(times) == 0 or not np.isfinite(logged).all():
        return None
    peak = first_peak(logged)
    return int(times[peak]) if peak > 0 or times[0] <= 1 else None


def fetched_sizes(paths: Iterable[str | Path]) -> dict[str, int]:
    """Return the number of parameters of each published model, as noted of its checkpoints; missing ones have none."""
    sizes = [(Path(path).parent.name, read_json(path).get("n_parameters")) for path in paths]
    return {model: size for model, size in sizes if size}
