"""Rows of a model in the tables models and schedules, from what is stated of it and its files."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from toposcale import checkpoints
from toposcale.analysis.training_runs import ModelRows, model_rows
from toposcale.forecasting.logs import trainer_states
from toposcale.forecasting.runs.learning_rate_schedule import first_peak, longest_warmup
from toposcale.forecasting.runs.schedules import schedule_of
from toposcale.io.errors import UserError
from toposcale.io.files import read_json


def rows_of_model(
    name: str,
    facts: Mapping[str, Any],
    *,
    weights: str | Path | None = None,
    n_parameters: int | None = None,
    curve: str | Path | None = None,
    steps: Sequence[int] | np.ndarray = (),
    rates: Sequence[float] | np.ndarray = (),
    notes: Mapping[str, str] | None = None,
) -> ModelRows:
    """Return the rows of a model in the tables models and schedules.

    `facts` (of `plan.Model`) have precedence over the files; the rest stays unknown. weights: a checkpoint. n_parameters:
    the size that was noted of it. curve: the user's file with the losses, or the state of a Trainer. steps, rates: the
    learning rates of the training log. notes: as `LossCurve.note_columns` returns.
    """
    facts_known = {key: value for key, value in facts.items() if value is not None}
    logged, end = max(map(int, steps), default=None), facts_known.get("final_step")
    if curve is not None and end and logged and logged > 1.01 * end:
        raise UserError(f"models.{name}.final_step holds {end:,}, but the log goes to step {logged:,} ({curve})")
    last = [facts_known.pop("last_checkpoint", None), logged]
    if schedule := facts_known.pop("schedule", None):
        last = [schedule_of(schedule).steps]
    facts_of_run: dict[str, Any] = {"final_step": max((step for step in last if step is not None), default=None)}
    facts_of_run |= {"n_parameters": n_parameters, "is_end_known": bool(end or schedule), **(notes or {})}
    count = None if weights is None else checkpoints.Checkpoint(checkpoints.locate(weights)).count
    if count:
        facts_of_run["n_parameters"] = count.total
    if curve is not None and Path(curve).name == trainer_states.FILE_NAME:
        trainer_facts = trainer_states.facts(trainer_states.read_state(curve), count.without_embeddings if count else 0)
        facts_of_run |= {key: value for key, value in trainer_facts.items() if value}
        facts_of_run["is_end_known"] |= bool(trainer_facts["final_step"])
    rows = model_rows({"model": name} | facts_of_run | facts_known, facts, steps, rates)
    if rows.model.get("warmup_steps") is None and len(steps):
        rows.model["warmup_steps"] = warmup_of_log(steps, rates)
        bounds = [rows.model.get("warmup_at_most"), longest_warmup(steps, rates)]
        rows.model["warmup_at_most"] = min((bound for bound in bounds if bound is not None), default=None)
    return rows


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


def fetched_sizes(paths: Iterable[str]) -> dict[str, int]:
    """Return the number of parameters of each published model, as noted of its checkpoints; missing ones have none."""
    sizes = [(Path(path).parent.name, read_json(path).get("n_parameters")) for path in paths]
    return {model: size for model, size in sizes if size}
