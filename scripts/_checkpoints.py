"""Note a checkpoint that could not be measured, and go on with the next one."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _job import missing, note
from toposcale.checkpoints.checkpoint import LeftOutError, noted, readable
from toposcale.io.errors import UserError, is_shared, reason_of


@contextmanager
def noted_if_missing(
    snakemake: Any, concerns: str, step: int, checkpoint: str, warning_rows: list[dict[str, Any]]
) -> Iterator[None]:
    """Add a row for the warnings table to `warning_rows` where the block cannot measure a checkpoint, and go on after it.

    An error is raised if all checkpoints share it (`errors.is_shared`), or if the checkpoint was trained here and so can be
    trained again.
    """
    model = snakemake.wildcards.model
    try:
        yield
    except LeftOutError as error:
        remedy = f"it is left out; once it is fixed on the Hub, run again with AGAIN={checkpoint}"
        warning_rows.append(note(model, "checkpoint", f"serves the weights of {error.original}", remedy, step=step))
    except BaseException as error:
        if is_shared(error) or not snakemake.params.allow_missing:
            raise
        reason = readable(reason_of(error), noted(checkpoint))
        logging.warning("%s", reason, exc_info=not isinstance(error, UserError))
        warning_rows += missing(model, {step: reason}, concerns, remedy=_remedy(model, checkpoint))


def _remedy(model: str, checkpoint: str) -> str:
    """Return the remedy for a missing checkpoint: a published one is fetched again on request."""
    if Path(checkpoint).suffix != ".json":
        return ""
    return (
        f"once it is fixed on the Hub, run again with AGAIN={checkpoint} (snakemake --forcerun) to fetch it again; or "
        f"leave its step out of models.{model}.steps"
    )
