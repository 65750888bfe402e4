"""Rows of the `warnings` table that a job notes while it measures: missing and repeated checkpoints.

Most jobs import this module, so it does without pandas.
"""

from collections.abc import Iterable, Mapping
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


def repeated(model: str, step: int, original: str, manifest: str) -> dict[str, Any]:
    """Return a row for a revision that serves the weights of another one, `original`."""
    remedy = f"it is left out; once it is fixed on the Hub, run again with AGAIN={manifest}"
    return note(model, "checkpoint", f"serves the weights of {original}", remedy, step=step)


def count_missing(warning_rows: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of missing checkpoints in the rows, without those that repeat another one."""
    return len({(row["model"], row["step"]) for row in warning_rows if row["is_missing"]})
