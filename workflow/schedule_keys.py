"""The keys of a learning-rate schedule in the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def trained_schedule(given: Mapping[str, Any], training: Mapping[str, Any]) -> dict[str, Any]:
    """A schedule of a model that is trained here: what it leaves out is that of `training:`."""
    default = {"shape": "cosine", "peak": training["learning_rate"], "final": 0.0}
    return {**default, "warmup_steps": training["warmup_steps"], "steps": training["steps"], **given}


def schedule_contradictions(where: str, schedule: Mapping[str, Any], final_step: int | None) -> Iterator[str]:
    """What is wrong with a schedule that the schema cannot say."""
    from toposcale.io.errors import UserError
    from toposcale.training.schedules import schedule_of

    missing = [key for key in ("shape", "peak", "steps") if key not in schedule]
    if missing:
        yield f"config key {where}.{missing[0]} is missing; a schedule has shape, peak and steps"
        return
    if final_step is not None and final_step != schedule["steps"]:
        yield f"config key {where}.steps holds {schedule['steps']}, but final_step is {final_step}; leave one out"
    try:
        schedule_of(schedule)
    except UserError as error:
        yield f"config key {where}: {str(error).partition(': ')[2]}"
