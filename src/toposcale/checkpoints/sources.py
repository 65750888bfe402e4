"""Checkpoints in a local folder: their steps, which of them are usable, and the states of transformers' Trainer."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple, NoReturn

from toposcale.checkpoints.checkpoint import Checkpoint, Sizes
from toposcale.checkpoints.saved_numbers import EPOCH, STEP, saved_numbers
from toposcale.checkpoints.step_names import (
    counts_epochs,
    counts_steps,
    find_step,
    guessed_patterns,
    possible_pattern,
    steps_by_name,
)
from toposcale.forecasting.logs import trainer_states
from toposcale.io.errors import UserError, as_user_error, is_shared, listed, reason_of
from toposcale.io.tensor_files import read_metadata
from toposcale.io.weight_files import (
    choose_weight_files,
    folder_with_weights,
    hub_snapshots,
    is_rank,
    may_hold_weights,
    parts_with,
    refuse_other_formats,
    refuse_parts,
)

TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
_BLOCK = 1 << 16
"""Bytes at the beginning, in the middle and at the end of a large file, by which it is told from others."""

_LARGE = 100_000_000
"""Bytes from which on a file is not hashed as a whole, which would take longer than to measure it."""


class LastTrainerState(NamedTuple):
    """Path of a state of transformers' Trainer, None if there is none; unread: by step, why later states are not read."""

    path: str | None
    unread: dict[int, str]


@dataclass(frozen=True)
class FolderSource:
    """Checkpoints of one training run in a folder, each a file or a folder.

    Without a pattern it is guessed from the names of the weights that are there (`guessed_patterns`), or in the only folder
    within it that has some. Where no name has a number, or it is an epoch, the step is the one inside each checkpoint.

    path: the folder.
    pattern: names of the checkpoints, with `{step}` for the step; "" to guess it.
    wanted: steps to use; () for all.
    inspected: `inspect`, or what looks up its results.
    """

    path: Path
    pattern: str = ""
    wanted: tuple[int, ...] = ()
    inspected: "Callable[[Path], Inspection] | None" = None

    def steps(self) -> list[int]:
        """Return the steps, ascending; raise UserError if the folder, all checkpoints or a wanted step are missing."""
        steps = sorted(set(self.wanted or self._names))
        for step in steps:
            self.checkpoint(step)
        if not steps:
            self._refuse_without_steps()
        return steps

    def _refuse_without_steps(self) -> NoReturn:
        """Raise UserError with what the folder is, or how its checkpoints get a step."""
        refuse_parts(self.path)
        refuse_other_formats(self.path)
        names = f"its names are {listed(sorted(self._entries), 5)}" if self._entries else "the folder is empty"
        if self.pattern:
            raise UserError(f"{self.path}: no name matches {self.pattern}, so there is no checkpoint; {names}")
        if snapshots := hub_snapshots(self.path):
            raise UserError(
                f"{self.path}: a cache of the Hub, whose snapshots are named by revision and not by step; "
                f"measure one: toposcale describe {snapshots[-1]}, or its revisions with kind: hub under models"
            )
        if len(runs := runs_in(self.path)) > 1:
            entries = ", ".join(f"{run.path.name}: {{kind: folder, path: {run.path}}}" for run in runs)
            raise UserError(f"{self.path}: holds {len(runs)} runs; make each an entry of models: {{{entries}}}")
        if self._with_weights == ["."]:
            raise UserError(
                f"{self.path}: one checkpoint, which does not hold its step; if its name does, name the folder above it; "
                f"or measure it: toposcale describe {self.path}"
            )
        why = "no name of weights holds the step as its one number"
        if self._with_weights:
            first = self.path / self._with_weights[0]
            pattern = possible_pattern(first.name)
            renamed = f"{first.stem.partition('.')[0]}-1000{first.suffix}"
            remedy = (
                f"if the number is a step, state pattern: {pattern!r}" if pattern else f"rename them, as to {renamed}"
            )
            why += ", nor do the files"
            names += f"; {remedy}; or measure one: toposcale describe {first}"
        raise UserError(f"{self.path}: {why}, so there is no checkpoint; {names}")

    def checkpoint(self, step: int) -> Path:
        """Return the file or folder of a step."""
        return self.path / find_step(step, self._names, f"{self.path}: {self.pattern or 'names with a number'}")

    @cached_property
    def without_step(self) -> list[str]:
        """Names of weights in the folder without a step, such as `best.pt`."""
        names = set(self._names.values())
        return [] if self.wanted or "." in names else sorted(set(filter(self._has_weights, self._entries)) - names)

    @cached_property
    def steps_inside(self) -> dict[int, str]:
        """Names of the checkpoints by the step that each of them holds, where no name has one, or an epoch in its place."""
        if self._pattern and not self._numbers_are_epochs:
            return {}
        names = list(self._numbered_names.values()) or self._with_weights
        steps = {name: self._step_in(name) for name in names if not self._inspection(name).unusable}
        by_step = {step: name for name, step in steps.items() if step is not None}
        return dict(sorted(by_step.items())) if len(by_step) == len(steps) else {}

    @property
    def counts_epochs(self) -> bool:
        """True if the number in the names, which stands for a step, is an epoch, and the files do not hold the step."""
        return self._numbers_are_epochs and not self.steps_inside

    @cached_property
    def _numbers_are_epochs(self) -> bool:
        """True if the number in the names is an epoch by the word before it, or by what the last checkpoint holds."""
        if self.pattern or counts_steps(self._pattern):
            return False
        for number, name in () if counts_epochs(self._pattern) else reversed(self._numbered_names.items()):
            if not (inspection := self._inspection(name)).unusable:
                inside = {key: inspection.numbers[key] for key in (EPOCH, STEP) if key in inspection.numbers}
                differ = {key: abs(value - number) > 1 for key, value in inside.items()}  # some count from 0
                return differ == {EPOCH: False, STEP: True}
        return counts_epochs(self._pattern)

    @cached_property
    def _with_weights(self) -> list[str]:
        """Names of the checkpoints in the folder, which may be one itself."""
        return ["."] if choose_weight_files(self._entries) else sorted(filter(self._has_weights, self._entries))

    def _step_in(self, name: str) -> int | None:
        """Return the step that a checkpoint, or the Trainer's state in its folder, holds."""
        with suppress(UserError):
            state = self.path / name / trainer_states.FILE_NAME
            numbers = self._inspection(name).numbers
            step = trainer_states.read_state(state)["global_step"] if state.is_file() else numbers.get(STEP, -1)
            return int(step) if step >= 0 and float(step).is_integer() else None
        return None

    @cached_property
    def _inspections(self) -> "dict[str, Inspection]":
        return {}

    def _inspection(self, name: str) -> "Inspection":
        """Return what is read of a checkpoint by its name, read once."""
        if name not in self._inspections:
            self._inspections[name] = (self.inspected or inspect)(self.path / name)
        return self._inspections[name]

    def inspection(self, step: int) -> "Inspection":
        """Return what is read of the checkpoint of a step, read once."""
        return self._inspection(self._names[step])

    def usable_steps(self) -> tuple[tuple[int, ...], dict[int, str]]:
        """Return the usable steps, and the reason by step for each missing checkpoint; raise UserError if none is usable.

        A usable checkpoint has undamaged weights of the names and shapes that most checkpoints have; where several have
        others, they are of another training, and UserError is raised.
        """
        inspections = {step: self.inspection(step) for step in self.steps()}
        missing = {step: inspection.unusable for step, inspection in inspections.items() if inspection.unusable}
        steps_of: dict[str, list[int]] = {}
        for step, inspection in inspections.items():
            if not inspection.unusable:
                steps_of.setdefault(inspection.shapes, []).append(step)
        if not steps_of:
            raise UserError(f"no checkpoint can be used: {next(iter(missing.values()))}")
        frequent, *others = sorted(steps_of.values(), key=len, reverse=True)
        if others and (len(others[0]) > 1 or len(frequent) == 1):
            self._refuse_trainings([frequent, *others], "their tensors have other names or shapes")
        for step in chain.from_iterable(others):
            missing[step] = f"{self.checkpoint(step)}: its tensors have other names or shapes than in most checkpoints"
        return tuple(frequent), missing

    def last_trainer_state(self) -> LastTrainerState:
        """Return the last readable state of transformers' Trainer, which holds the log so far."""
        unread: dict[int, str] = {}
        for step in reversed(self.steps()):
            state = self.checkpoint(step) / trainer_states.FILE_NAME
            if not state.exists():
                continue
            try:
                trainer_states.read_state(state)
                return LastTrainerState(str(state), unread)
            except UserError as error:
                unread[step] = str(error)
        return LastTrainerState(None, unread)

    def check_one_training(self) -> None:
        """Raise UserError if the Trainer states are of two trainings, since their losses do not belong to all weights."""
        step_of: dict[Path, int] = {}
        states: list[trainer_states.TrainerState] = []
        for step in self.steps():
            path = self.checkpoint(step) / trainer_states.FILE_NAME
            with suppress(UserError):
                states.append(trainer_states.TrainerState(path, trainer_states.read_state(path)))
                step_of[path] = step
        trainings = trainer_states.trainings(states)
        if len(trainings) > 1:
            why = "the logs of their Trainer do not continue each other, or end at other steps"
            self._refuse_trainings([[step_of[state.path] for state in run] for run in trainings], why)

    def _refuse_trainings(self, groups: Sequence[Sequence[int]], why: str) -> None:
        choices = " or ".join(f"steps: [{', '.join(map(str, sorted(steps)))}]" for steps in groups)
        raise UserError(
            f"{self.path}: its checkpoints are of {len(groups)} trainings ({why}); give each a folder of its own, or, "
            f"under models, name the steps of one: {choices}"
        )

    def _has_weights(self, name: str) -> bool:
        """Return whether an entry of the folder is a file of weights or a folder with some, by its name."""
        path = self.path / name
        if path.is_dir():
            with suppress(OSError):
                return folder_with_weights(path) is not None
            return False
        return may_hold_weights(name) and not parts_with(name, self._entries)

    @cached_property
    def _entries(self) -> list[str]:
        with as_user_error(self.path, "no such folder of checkpoints", OSError):
            return [entry.name for entry in self.path.iterdir()]

    @cached_property
    def patterns(self) -> list[str]:
        """The pattern that is stated, or those that are guessed: none, one, or several that match as many names."""
        if self.pattern or hub_snapshots(self.path):  # whose names are of repositories and revisions
            return [self.pattern] * bool(self.pattern)
        return guessed_patterns(name for name in self._entries if not is_rank(name) and self._has_weights(name))

    @property
    def _pattern(self) -> str:
        if len(self.patterns) > 1:
            choices = " and ".join(f"pattern: {one!r}" for one in self.patterns)
            raise UserError(f"{self.path}: its names match {choices} equally; choose one of them")
        return next(iter(self.patterns), "")

    @cached_property
    def _numbered_names(self) -> dict[int, str]:
        """Names of the checkpoints by the number in them; none without a pattern."""
        return steps_by_name(self._pattern, self._entries) if self._pattern else {}

    @cached_property
    def _names(self) -> dict[int, str]:
        if names := self.steps_inside or self._numbered_names:
            return names
        runs = runs_in(self.path) if not self._pattern else []
        return {
            step: os.path.relpath(run.path / name, self.path)
            for run in runs * (len(runs) == 1)
            for step, name in run._names.items()
        }


_DEPTH = 3
"""Levels of folders that are searched for checkpoints, as in lightning_logs/version_0/checkpoints."""


def runs_in(path: Path, depth: int = _DEPTH) -> list[FolderSource]:
    """Return the folders within a folder that hold checkpoints of their own."""
    runs: list[FolderSource] = []
    for folder in sorted(path.iterdir()):
        with suppress(UserError):  # a folder that cannot be read
            is_above = path.resolve().is_relative_to(folder.resolve())  # such as a link to /
            if folder.is_dir() and not folder.name.startswith(".") and not is_above:
                source = FolderSource(folder)
                runs += [source] if source.patterns else runs_in(folder, depth - 1) if depth > 1 else []
    return runs


class Inspection(NamedTuple):
    """Facts that are read from a checkpoint before it is measured.

    unusable: why it cannot be measured; the rest is empty then.
    shapes: hash of the names and shapes of its tensors.
    sample: hash of the content of its files, see `content_hash`.
    sizes: see `Checkpoint.sizes`.
    digests: of its weights, see `Checkpoint.digests`.
    not_runnable: why it cannot process a text, see `missing_parts`.
    not_runnable_with_tokenizer: the same where a tokenizer is stated.
    numbers: see `saved_numbers`.
    unread: why the states of its schedule cannot be read.
    """

    unusable: str = ""
    shapes: str = ""
    sample: str = ""
    sizes: Sizes = Sizes(0, 0, 0)
    digests: Sequence[str] = ()
    not_runnable: str = ""
    not_runnable_with_tokenizer: str = ""
    numbers: Mapping[str, float] = {}
    unread: Sequence[str] = ()


def inspect(checkpoint: Path) -> Inspection:
    """Return what is read of a checkpoint to plan with it, whatever is wrong with it."""
    try:
        weights = Checkpoint(checkpoint)
        return Inspection(
            shapes=_hash(sorted((name, list(tensor.shape)) for name, tensor in weights.tensors.items())),
            sample=content_hash(files_of(checkpoint)),
            sizes=weights.sizes,
            digests=sorted(weights.digests().values()),
            not_runnable=missing_parts(checkpoint),
            not_runnable_with_tokenizer=missing_parts(checkpoint, tokenizer=False),
            numbers=saved_numbers(weights.content),
            unread=weights.unread_schedules,
        )
    except BaseException as error:
        if is_shared(error):
            raise
        return Inspection(reason_of(error))


def files_of(checkpoint: Path) -> list[Path]:
    """Return the files of a checkpoint, which is a file or a folder, by name."""
    return list(filter(Path.is_file, sorted(checkpoint.iterdir()) if checkpoint.is_dir() else [checkpoint]))


def content_hash(files: Sequence[Path]) -> str:
    """Return a hash of the content of files; of a large file, of its size, its time and three blocks."""
    return _hash([_sample(file) for file in files])


def _sample(file: Path) -> tuple[str, int, int, list[bytes]]:
    status = file.stat()
    size = status.st_size
    with file.open("rb") as stream:
        if size < _LARGE:
            return file.name, size, 0, [hashlib.file_digest(stream, "sha256").digest()]
        blocks = [stream.read(_BLOCK) for start in (0, size // 2, size - _BLOCK) if stream.seek(start) >= 0]
    return file.name, size, status.st_mtime_ns, blocks


def _hash(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()


def missing_parts(checkpoint: str | Path, *, tokenizer: bool = True) -> str:
    """Return the reason why a checkpoint cannot process a text, besides its weights; empty if it can.

    A file needs the sizes of the project's GPT in its metadata; a folder config.json and, if asked for, a `tokenizer`.
    """
    path = Path(checkpoint)
    if path.is_file():
        is_gpt = path.suffix == ".safetensors" and read_metadata(path)
        return "" if is_gpt else "they need a folder with config.json and a tokenizer for each checkpoint"
    if not (path / "config.json").is_file():
        return "there is no config.json"
    return "" if not tokenizer or any((path / name).is_file() for name in TOKENIZERS) else "there is no tokenizer"
