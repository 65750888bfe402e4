"""Rows of the `warnings` table that a job notes while it measures: missing checkpoints, and what else to know.

Most jobs import this module, so it does without pandas.
"""

from collections.abc import Mapping
from typing import Any


def note(
    model: str, concerns: str, warning: str, remedy: str, *, step: int | None = None, is_missing: bool = False
) -> dict[str, Any]:
    """Return a row about a checkpoint, which may be missing, or about the whole model if there is no `step`.

    A fact with which nothing is wrong has no remedy.
    """
    row = {"model": model, "step": step, "concerns": concerns, "warning": warning, "remedy": remedy}
    return row | {"is_missing": is_missing}


def missing(
    model: str, reasons: Mapping[int, str], concerns: str = "checkpoint", *, remedy: str = ""
) -> list[dict[str, Any]]:
    """Return rows for the checkpoints of a model that could not be measured; `reasons` holds the reason by step."""
    remedy = remedy or f"fix the checkpoint and run again, or leave out its step with models.{model}.steps"
    return [note(model, concerns, reason, remedy, step=step, is_missing=True) for step, reason in reasons.items()]
