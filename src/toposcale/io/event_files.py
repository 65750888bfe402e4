"""The scalars of TensorBoard event files. Needs the package tensorboard."""

from __future__ import annotations

import sys
from pathlib import Path

from toposcale.io.errors import UserError


def scalars(path: Path) -> tuple[dict[str, dict[int, float]], int]:
    """The values of every tag by step, of one file or of all of a folder; and how many steps have several values.

    Of two values of one step in one folder the last counts, as a training that was resumed writes it. UserError: no such
    files, no package tensorboard, or folders that contradict each other.
    """
    if not path.exists() or (path.is_dir() and not list(path.rglob("*.tfevents.*"))):
        raise UserError(f"{path}: no TensorBoard event files there (named events.out.tfevents...)")
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise UserError(f"{path}: event files need tensorboard: {sys.executable} -m pip install tensorboard") from error
    folders = sorted({file.parent for file in path.rglob("*.tfevents.*")}) if path.is_dir() else [path]
    points: dict[str, dict[int, float]] = {}
    repeated: set[int] = set()
    for folder in folders:
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        for tag in events.Tags()["scalars"]:
            by_step = points.setdefault(tag, {})
            new = {event.step: event.value for event in events.Scalars(tag)}
            repeated |= {event.step for event in events.Scalars(tag) if event.value != new[event.step]}
            if differs := sorted(step for step in by_step.keys() & new.keys() if by_step[step] != new[step]):
                raise UserError(
                    f"{path}: {tag} has two values at step {differs[0]}, in {folder} and in a folder before it; give the "
                    "folder of one training"
                )
            by_step.update(new)
    return points, len(repeated)
