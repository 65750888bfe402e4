"""Measure the checkpoints of a job, one by one, and note those that could not be measured."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _notes import missing, repeated
from toposcale.checkpoints.locations import LeftOutError, noted, readable
from toposcale.io.errors import UserError, is_shared, reason_of


def measure_checkpoints(
    snakemake: Any, concerns: str, warning_rows: list[dict[str, Any]], measure: Callable[..., Any], *arguments: Any
) -> Iterator[tuple[int, Any]]:
    """Yield the step of each checkpoint of the job and the result of `measure(checkpoint, *arguments)`.

    A checkpoint that cannot be measured adds a row for the warnings table to `warning_rows`. An error is raised if all
    checkpoints share it (`errors.is_shared`), or if the checkpoint was trained here and so can be trained again.
    """
    model = snakemake.wildcards.model
    for step, checkpoint in zip(snakemake.params.steps, snakemake.input.checkpoints, strict=True):
        try:
            measurements = measure(checkpoint, *arguments)
        except LeftOutError as error:
            warning_rows.append(repeated(model, step, error.original, checkpoint))
        except BaseException as error:
            if is_shared(error) or not snakemake.params.allow_missing:
                raise
            reason = readable(reason_of(error), noted(checkpoint))
            logging.warning("%s", reason, exc_info=not isinstance(error, UserError))
            warning_rows += missing(model, {step: reason}, concerns, remedy=_remedy(model, checkpoint))
        else:
            yield step, measurements


def _remedy(model: str, checkpoint: str) -> str:
    """Return the remedy for a missing checkpoint: a published one is fetched again on request."""
    if Path(checkpoint).suffix != ".json":
        return ""
    return (
        f"once it is fixed on the Hub, run again with AGAIN={checkpoint} (snakemake --forcerun) to fetch it again; or "
        f"leave its step out of models.{model}.steps"
    )
