"""Rows of the `warnings` table that a job notes while it measures: gaps and repeated checkpoints.

Every job imports this module, so it needs no data frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def gaps(model: str, reasons: Mapping[int, str], concerns: str = "checkpoint") -> list[dict[str, Any]]:
    """Rows for the checkpoints of a model that could not be measured, by step with the reason."""
    remedy = "the series has a gap there; mend the checkpoint, or leave it out with models.{name}.steps"
    return [
        {"model": model, "step": step, "concerns": concerns, "warning": reason, "remedy": remedy}
        for step, reason in reasons.items()
    ]


def repeated(model: str, step: int, original: str, *, leave_out: bool) -> dict[str, Any]:
    """A row for a revision that serves the weights of another one, `original`."""
    return {
        "model": model,
        "step": step,
        "concerns": "checkpoint",
        "warning": f"serves the weights of {original}",
        "remedy": "it is left out"
        if leave_out
        else "set hub.duplicates: leave_out, or leave it out of steps",
    }
