"""Live curves: TensorBoard, and Weights & Biases, MLflow and Trackio if a run of theirs is open."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

PREFIX = "topology/"


def tensorboard_writer(folder: Path, first_step: int) -> SummaryWriter | None:
    """Return a writer of event files into `folder`, None if the package tensorboard is not installed.

    TensorBoard no longer shows what earlier files have from `first_step` on.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(log_dir=str(folder), purge_step=first_step)


def _check_folder(folder: str) -> None:
    """Raise FileNotFoundError if a folder was removed, of which the thread that writes there would print a traceback."""
    if folder and "://" not in folder and not Path(folder).is_dir():
        raise FileNotFoundError(f"{folder} was removed")


def show(step: int, values: Mapping[str, float], writer: SummaryWriter | None) -> None:
    """Add the values of one step to TensorBoard and to the open runs of other trackers, none of which is imported here."""
    named = {PREFIX + name: value for name, value in values.items()}
    if writer is not None:
        _check_folder(str(getattr(writer, "log_dir", "")))
        for name, value in named.items():
            writer.add_scalar(name, value, step)
        writer.flush()
    wandb = sys.modules.get("wandb")
    if wandb is not None and getattr(wandb, "run", None) is not None:
        # The training is steps ahead by now, and W&B takes no row of an earlier step: so the step is a column, and
        # the values go with the row that the training writes next.
        wandb.define_metric(PREFIX + "*", step_metric=PREFIX + "step")
        wandb.log({PREFIX + "step": step, **named}, commit=False)
    mlflow = sys.modules.get("mlflow")
    if mlflow is not None and mlflow.active_run() is not None:
        mlflow.log_metrics(named, step=step, synchronous=False)  # the training does not wait for a server
    trackio = sys.modules.get("trackio")
    if trackio is not None and trackio.context_vars.current_run.get() is not None:
        trackio.log(named, step=step)
