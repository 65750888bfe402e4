"""Rows of the `warnings` table that a job notes while it measures: gaps and repeated checkpoints.

Every job imports this module, so it needs no data frame.
"""

from collections.abc import Iterable, Mapping
from typing import Any

_REPEATED = "serves the weights of "


def note(model: str, concerns: str, warning: str, remedy: str, *, step: int | None = None) -> dict[str, Any]:
    """A row: of a checkpoint, or of the whole model where there is no `step`."""
    return {"model": model, "step": step, "concerns": concerns, "warning": warning, "remedy": remedy}


def gaps(
    model: str, reasons: Mapping[int, str], concerns: str = "checkpoint", *, remedy: str = ""
) -> list[dict[str, Any]]:
    """Rows for the checkpoints of a model that could not be measured, by step with the reason."""
    remedy = remedy or f"mend the checkpoint and run again, or leave its step out with models.{model}.steps"
    return [note(model, concerns, reason, remedy, step=step) for step, reason in reasons.items()]


def repeated(model: str, step: int, original: str, *, leave_out: bool) -> dict[str, Any]:
    """A row for a revision that serves the weights of another one, `original`."""
    remedy = "it is left out" if leave_out else "set hub.duplicates: leave_out, or leave it out of steps"
    return note(model, "checkpoint", f"{_REPEATED}{original}", remedy, step=step)


def left_out(noted: Iterable[Mapping[str, Any]]) -> int:
    """How many checkpoints have a gap among such rows; one that only repeats another is none."""
    gaps = [row for row in noted if row["step"] is not None and not row["warning"].startswith(_REPEATED)]
    return len({(row["model"], row["step"]) for row in gaps})
