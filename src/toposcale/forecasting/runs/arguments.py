"""Arguments in which users state a training run: its curve, its facts and its learning-rate schedule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, Self

import numpy as np

from toposcale.forecasting.amounts import number_of
from toposcale.forecasting.runs.facts import CountParameters, RunFacts
from toposcale.forecasting.runs.schedules import MOST_STEPS, SHAPES, Schedule, ScheduleTable, schedule_of
from toposcale.io.errors import UserError

CurveInput = str | Path | Mapping[str, Any] | Any
"""A file, a folder, columns by name such as a data frame, a series of losses by step, (n, 2) steps and losses, or rows."""

LEAST_PARAMETERS, MOST_PARAMETERS, LEAST_TOKENS, MOST_TOKENS = 1000, 1e15, 64, 1e12
"""Bounds on the parameters of a language model, and on the tokens per step."""

LEAST_RATIO = 1e-3
"""Without a peak, a minimum rate is a ratio to it; a value below this bound must be a rate."""


@dataclass(frozen=True)
class RunInput:
    """A loss curve to be read, and what its user states about the run; a curve of None has not started.

    is_relative: whether the schedule is in units of its peak, which the log has. reading: options of the reader of logs.
    count_parameters: as in `advise`; None leaves weights unread.
    """

    curve: CurveInput | None
    facts: RunFacts
    schedule: Schedule | ScheduleTable | None = None
    is_relative: bool = False
    reading: Mapping[str, Any] = field(default_factory=dict)
    count_parameters: CountParameters | None = None

    @classmethod
    def of(
        cls,
        curve: CurveInput | None,
        name: str,
        *,
        n_parameters: Any = None,
        tokens_per_step: Any = None,
        schedule: Mapping[str, Any] | str | Path | None = None,
        steps: Any = None,
        warmup_steps: Any = None,
        loss_column: str | None = None,
        step_column: str | None = None,
        run: Any = None,
        unique_tokens: Any = None,
        epochs: Any = None,
        optimizer: str = "",
        objective: str = "",
        count_parameters: CountParameters | None = None,
    ) -> Self:
        """Return the input of these arguments of `advise`, None where not stated; UserError for one out of bounds."""
        for what, text, example in (("optimizer", optimizer, "adamw"), ("objective", objective, "next-token")):
            if not isinstance(text, str):
                raise UserError(f'{what}: a name such as "{example}", but it is {text!r:.60}')
        of_a_step = ": a step reads sequences x tokens per sequence (--tokens-per-step)"
        tokens = number(tokens_per_step, "tokens_per_step", LEAST_TOKENS, MOST_TOKENS, of_a_step)
        size = parameters(n_parameters, "n_parameters")
        of_run = {"steps": whole_number(steps, "steps", 1), "warmup_steps": whole_number(warmup_steps, "warmup_steps")}
        fields = _schedule_fields(schedule, {key: value for key, value in of_run.items() if value is not None})
        is_relative = isinstance(schedule, Mapping | str) and "steps" in fields and not {"peak", "at"} & fields.keys()
        in_units = {"peak": 1.0} if is_relative else {}
        stated = None if schedule is None else schedule_of(in_units | fields or schedule)
        facts = RunFacts(
            name,
            round(size) if size else np.nan,
            tokens or np.nan,
            final_step=fields.get("steps") if stated is None else stated.steps,
            warmup_steps=fields.get("warmup_steps"),
            optimizer=optimizer,
            objective=objective,
            unique_tokens=number(unique_tokens, "unique_tokens", 1) or np.nan,
            epochs=number(epochs, "epochs", 0.01) or np.nan,
        )
        reading = {"loss_column": loss_column, "step_column": step_column, "run": whole_number(run, "run (--run)", 1)}
        return cls(curve, facts, stated, is_relative, reading, count_parameters)


RUN_ARGUMENTS = tuple(signature(RunInput.of).parameters)
"""Names of the arguments that state a run."""


def states_file(schedule: Any) -> bool:
    """Return whether a schedule is a file, which states all of it."""
    return isinstance(schedule, str | Path) and schedule not in SHAPES


def _schedule_fields(schedule: Any, of_run: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a schedule, those of the run where it does not state them; none of a file."""
    if schedule is None:
        return of_run
    if states_file(schedule):
        options = {"steps": "steps (--steps)", "warmup_steps": "warmup_steps (--warmup-steps)"}
        if of_run and Path(schedule).exists():
            unused = " and ".join(options[name] for name in of_run)
            raise UserError(f"{unused}: not used with the schedule file {schedule}")
        return {}
    if not isinstance(schedule, Mapping | str):
        raise UserError(
            f"schedule: a shape ({', '.join(SHAPES)}), a mapping of its fields, or a file, but it is a "
            f"{type(schedule).__name__}"
        )
    of_schedule = {"shape": schedule} if isinstance(schedule, str) else schedule
    fields = of_run | {key: value for key, value in of_schedule.items() if value is not None}
    fields |= {key: whole_number(fields[key], key) for key in ("steps", "warmup_steps", "decay_start") if key in fields}
    fields |= {key: number(fields[key], key, 0) for key in ("peak", "final") if key in fields}
    if "steps" not in fields and "at" not in fields:
        raise UserError("schedule: steps, the last step of the run, is missing")
    if "peak" not in fields and 0 < fields.get("final", 0) < LEAST_RATIO:
        raise UserError(
            f"final (--final): {fields['final']:g} without a peak is a ratio to it: give the peak too (--peak), or a ratio "
            "such as 0.1"
        )
    return fields


def number(value: Any, what: str, least: float | None, most: float = np.inf, hint: str = "") -> float | None:
    """Return a finite number from `least` (None: above 0) to `most`, or None; raise UserError if it is not one."""
    if value is None:
        return None
    try:
        parsed = number_of(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        raise UserError(f"{what}: {value!r} is not a number, for example 25e6") from None
    high_enough = parsed > 0 if least is None else parsed >= least
    if not (high_enough and np.isfinite(parsed) and parsed <= most):
        limits = "above 0" if least is None else f"at least {least:g}"
        limits += f" and at most {most:g}" if np.isfinite(most) else ""
        raise UserError(f"{what}: {parsed:g}, but it must be {limits}{hint}")
    return parsed


def parameters(value: Any, what: str) -> float | None:
    """Return a number of parameters, or None; raise UserError if no language model has so few, or so many."""
    n_parameters = number(value, what, 1, MOST_PARAMETERS)
    if n_parameters is not None and n_parameters < LEAST_PARAMETERS:
        raise UserError(f"{what}: {n_parameters:g} parameters make no language model; write 25e6 or 25M for 25 million")
    return n_parameters


def whole_number(value: Any, what: str, least: int = 0) -> int | None:
    """Return a whole number of steps, or None."""
    parsed = number(value, what, least, MOST_STEPS)
    if parsed is not None and parsed % 1:
        raise UserError(f"{what}: {parsed:g}, but it must be a whole number")
    return None if parsed is None else int(parsed)
