"""`toposcale init`: a configuration for the checkpoints in a folder."""

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path

from toposcale.checkpoints.saved_numbers import LOSSES
from toposcale.checkpoints.sources import FolderSource, runs_in
from toposcale.forecasting.runs.run_input import logs_in
from toposcale.io.errors import UserError, counted, listed
from toposcale.io.files import write_text

_WARMUP = "    # warmup_steps:       # 0 if there was no warm-up; the tests use the checkpoints after twice the warm-up"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="checkpoints of a training, or folders of several")
    parser.add_argument("--output", metavar="FILE", type=Path, default=Path("mine.yaml"), help="mine.yaml if left out")


def run(given: argparse.Namespace) -> None:
    """Write the configuration, and say what is in it."""
    if not given.folder.is_dir():
        raise UserError(f"{given.folder}: no such folder of checkpoints")
    if given.output.exists():
        raise UserError(f"{given.output}: it is there already; name another file with --output")
    sources = sources_in(given.folder)
    usable = {name: source.usable_steps() for name, source in sources.items()}
    entries = [entry_of(name, source, usable[name][0], given.output.parent) for name, source in sources.items()]
    lines = [f"run: {name_of(given.output.stem)}", "models:", *(line for entry in entries for line in entry)]
    write_text(given.output, "\n".join(lines) + "\n")
    for name, (steps, missing) in usable.items():
        unit = "epoch" if sources[name].counts_epochs else "step"
        span = f"{unit} {steps[0]:,}" if len(steps) == 1 else f"{unit}s {steps[0]:,} to {steps[-1]:,}"
        print(f"{name}: {counted(len(steps), 'checkpoint')}, {span}")
        for reason in (*missing.values(), *sources[name].last_trainer_state().unread.values()):
            print(f"  left out: {reason}")
    print(f"{given.output}: look it over, then: toposcale run {given.output}")


def sources_in(folder: Path) -> dict[str, FolderSource]:
    """Return the trainings in a folder by name: those in folders within it, or those whose names of files differ."""
    whole = FolderSource(folder)
    if whole.patterns:
        one_each = {name_of(one.partition("{step}")[0]): FolderSource(folder, one) for one in whole.patterns}
        return one_each if len(whole.patterns) == len(one_each) > 1 else {name_of(folder.resolve().name): whole}
    runs = runs_in(folder)
    if not runs:
        return {name_of(folder.resolve().name): whole}
    parts = {run: [part for part in run.path.relative_to(folder).parts if part != "checkpoints"] for run in runs}
    return {name_of("-".join(parts[run]) or folder.resolve().name): run for run in runs}


def name_of(text: str) -> str:
    """Return the name of a run or a model for a text, with what a name may hold."""
    return re.sub(r"[^A-Za-z0-9._-]+|^[^A-Za-z0-9]+", "-", text).strip("-_.=")[:64] or "mine"


def entry_of(name: str, source: FolderSource, steps: Sequence[int], base: Path) -> list[str]:
    """Return the lines of the entry of a training with these checkpoints; paths are relative to `base`."""
    lines = [f"  {name}:", "    kind: folder", f"    path: {relative(source.path, base)}"]
    if source.pattern:
        lines.append(f"    pattern: {source.pattern!r}")
    last, state = source.inspection(steps[-1]), source.last_trainer_state().path
    if not state:
        lines += losses_of(source.path, base, are_inside=bool(LOSSES.keys() & last.numbers))
    if last.not_runnable:
        lines.append(f"    embeddings: false   # {last.not_runnable}")
    return lines if state else [*lines, _WARMUP]


def losses_of(folder: Path, base: Path, *, are_inside: bool) -> list[str]:
    """Return the line of the losses: the only log of the folder, or a comment.

    are_inside: the checkpoints hold losses, of which a log in their folder has more.
    """
    logs = [log for log in logs_in(folder) if log.parent == folder or not are_inside]
    if len(logs) == 1:
        return [f"    losses: {relative(logs[0], base)}"]
    if logs:
        return [f"    # losses: FILE        # one of {listed([file.name for file in logs], 5)}"]
    comment = "    # losses: losses.csv  # as `toposcale check` reads it; without losses nothing is correlated"
    return [] if are_inside else [comment]


def relative(path: Path, base: Path) -> str:
    """Return a path as the configuration in `base` names it."""
    return Path(os.path.relpath(path.resolve(), base.resolve())).as_posix()
