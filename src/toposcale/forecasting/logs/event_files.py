"""TensorBoard event files: scalars, and tensors of TensorFlow 2 that hold one number, of a file or a folder."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toposcale.forecasting.logs.json_logs import columns_of_entries
from toposcale.forecasting.logs.names import COUNTERS, loss_name, plain_name, with_split
from toposcale.forecasting.logs.rows import LogError, Rows
from toposcale.forecasting.logs.trainer_states import FILE_NAME
from toposcale.io.errors import listed
from toposcale.io.files import regular_file

FORM = "TensorBoard event files"


def read(path: Path, *, is_named: bool = False) -> Rows:
    """Read an event file or all of a folder; a tag of a folder called `validation`, `loss_val`, ... is a validation loss.

    is_named: whether the user names the loss.
    """
    events = _events(path)
    losses = [tag for tag in events if loss_name(tag)]
    if any("epoch" not in plain_name(tag) for tag in losses):
        events = {tag: logged for tag, logged in events.items() if tag not in losses or "epoch" not in plain_name(tag)}
    if not is_named and losses and all("epoch" in plain_name(tag) for tag in losses):
        raise LogError(
            f"{listed(losses, 4)} count epochs, not steps: log the loss of each batch, or name one with "
            "--loss-column (loss_column) if its counter is that of the training"
        )
    names = [tag for tag in events if plain_name(tag) not in COUNTERS]
    rows: dict[int, dict[str, float]] = {}
    for name in names:
        for step, value in events[name].items():
            rows.setdefault(step, {"step": step})[name] = value
    return Rows(columns_of_entries([rows[step] for step in sorted(rows)], names), FORM)


def _events(path: Path) -> dict[str, dict[int, float]]:
    """Return the values by step of each tag."""
    if not path.exists() or (path.is_dir() and not list(path.rglob("*.tfevents.*"))):
        raise LogError(_why_no_losses(path))
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise LogError(f"event files need tensorboard: {sys.executable} -m pip install tensorboard") from error
    files = [regular_file(file) for file in (path.rglob("*.tfevents.*") if path.is_dir() else [path])]
    folders = sorted({file.parent for file in files}) if path.is_dir() else [path]
    events: dict[str, dict[int, float]] = {}
    for folder in folders:
        accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
        accumulator.Reload()
        for tag, new in _numbers(accumulator):
            name = with_split(tag, str(folder.relative_to(path)) if folder != path else "")
            earlier = events.setdefault(name, {})
            if differs := sorted(step for step in earlier.keys() & new.keys() if earlier[step] != new[step]):
                raise LogError(
                    f"{name} has two values at step {differs[0]}, in {folder} and in a folder before it; give the "
                    "folder of one training"
                )
            earlier.update(new)
    return events


def _numbers(accumulator: Any) -> Iterator[tuple[str, dict[int, float]]]:
    """Yield the values by step of each tag that holds numbers, as scalars or as tensors of TensorFlow 2."""
    tags = accumulator.Tags()
    for tag in tags["scalars"]:
        yield tag, {event.step: event.value for event in accumulator.Scalars(tag)}
    for tag in tags["tensors"]:
        from tensorboard.util.tensor_util import make_ndarray

        arrays = {event.step: make_ndarray(event.tensor_proto) for event in accumulator.Tensors(tag)}
        if all(array.size == 1 and array.dtype.kind in "fiu" for array in arrays.values()):
            yield tag, {step: float(array.item()) for step, array in arrays.items()}


def _why_no_losses(path: Path) -> str:
    """Return why a path has no losses: it is missing, a folder of trainings, or a folder of other files."""
    states = [state.parent.relative_to(path) for state in path.rglob(FILE_NAME)] if path.is_dir() else []
    if trainings := sorted({str(at.parent if at.name.startswith("checkpoint-") else at) for at in states}):
        return f"no training of its own; give one of {listed(trainings, 8)}"
    if any(path.glob("training/*/step-*.parquet")):
        return "the folder of a live monitor; toposcale watch and make advice (docs/monitor.md) read all of its files"
    files = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()) if path.is_dir() else []
    has = f"; of its files give the one with the losses: {listed(files, 8)}" if files else ""
    return f"no TensorBoard event files (named events.out.tfevents...) and no {FILE_NAME} there{has}"
