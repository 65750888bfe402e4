"""Checkpoints in a local folder: their steps, which of them are usable, and the states of transformers' Trainer."""

import hashlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from toposcale.checkpoints.matrices import Sizes, stored_sizes
from toposcale.checkpoints.step_names import find_step, steps_by_name
from toposcale.forecasting.logs import trainer_states
from toposcale.io.errors import UserError, is_shared, listed, reason_of
from toposcale.io.tensor_files import read_metadata
from toposcale.io.weight_files import tensor_shapes

PATTERNS = ("checkpoint-{step}", "step{step}", "step-{step}", "step{step}.safetensors", "step-{step}.safetensors")
"""Default patterns of checkpoint names; the first one that matches a name in the folder is used."""

_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
_BLOCK = 4096  # bytes


@dataclass(frozen=True)
class FolderSource:
    """Checkpoints of one training run in a folder, each a file or a folder.

    pattern: their names, with `{step}` for the step; if empty, the first of `PATTERNS` that matches. wanted: the steps to
    use; all if empty.
    """

    path: Path
    pattern: str = ""
    wanted: tuple[int, ...] = ()

    def steps(self) -> list[int]:
        """Return the steps, ascending; raise UserError if the folder, all checkpoints or a wanted step are missing."""
        steps = sorted(set(self.wanted or self._names))
        if not steps:
            names = f"its names are {listed(sorted(self._entries), 5)}" if self._entries else "the folder is empty"
            raise UserError(f"{self._where}: no name matches this pattern, so there is no checkpoint; {names}")
        for step in steps:
            self.checkpoint(step)
        return steps

    def checkpoint(self, step: int) -> Path:
        """Return the file or folder of a step."""
        return self.path / find_step(step, self._names, self._where)

    def usable_steps(
        self, inspected: Callable[[Path], "Inspection"] | None = None
    ) -> tuple[tuple[int, ...], dict[int, str]]:
        """Return the usable steps, and the reason by step for each missing checkpoint; raise UserError if none is usable.

        A usable checkpoint has undamaged weights of the names and shapes that most checkpoints have. `inspected` is
        `inspect`, or looks up what it returned.
        """
        inspections = {step: (inspected or inspect)(self.checkpoint(step)) for step in self.steps()}
        missing = {step: found.unusable for step, found in inspections.items() if found.unusable}
        shapes = {step: found.shapes for step, found in inspections.items() if not found.unusable}
        if not shapes:
            raise UserError(f"no checkpoint can be used: {next(iter(missing.values()))}")
        # Of two equally frequent shapes the later one counts: the training was started again.
        frequent = Counter(reversed(shapes.values())).most_common(1)[0][0]
        for step, shape in shapes.items():
            if shape != frequent:
                missing[step] = (
                    f"{self.checkpoint(step)}: its tensors have other names or shapes than in most checkpoints"
                )
        return tuple(step for step in shapes if step not in missing), missing

    def trainer_state(self) -> str | None:
        """Return the path of the last readable Trainer state, which holds the log so far; None if there is none."""
        for step in reversed(self.steps()):
            state = self.checkpoint(step) / trainer_states.FILE_NAME
            with suppress(UserError):
                trainer_states.read_state(state)
                return str(state)
        return None

    def check_one_training(self) -> None:
        """Raise UserError if the Trainer states are of two trainings, since their losses do not belong to all weights."""
        trainer_states.refuse_two_trainings([self.checkpoint(step) for step in self.steps()])

    @property
    def _where(self) -> str:
        return f"{self.path}: {self.pattern or ' or '.join(PATTERNS)}"

    @cached_property
    def _entries(self) -> list[str]:
        try:
            return [entry.name for entry in self.path.iterdir()]
        except OSError as error:
            raise UserError(f"{self.path}: no such folder of checkpoints ({error.strerror})") from error

    @cached_property
    def _names(self) -> dict[int, str]:
        named = (steps_by_name(pattern, self._entries) for pattern in ([self.pattern] if self.pattern else PATTERNS))
        return next(filter(None, named), {})


class Inspection(NamedTuple):
    """Facts that are read from a checkpoint before it is measured.

    unusable: why it cannot be measured; the rest is empty then. shapes, sample: hashes of the names and shapes of its
    tensors, and of name, size and three blocks (first, middle, last) of all its files, by which checkpoints are
    distinguished without reading gigabytes. not_runnable, and the same where a tokenizer is given: see `missing_parts`.
    """

    unusable: str = ""
    shapes: str = ""
    sample: str = ""
    sizes: Sizes = Sizes(0, 0, 0)
    not_runnable: str = ""
    not_runnable_with_tokenizer: str = ""


def inspect(checkpoint: Path) -> Inspection:
    """Return what is read of a checkpoint to plan with it, whatever is wrong with it."""
    try:
        return Inspection(
            shapes=_hash(sorted(tensor_shapes(checkpoint).items())),
            sample=_hash([_sample(file) for file in files_of(checkpoint)]),
            sizes=stored_sizes(checkpoint),
            not_runnable=missing_parts(checkpoint),
            not_runnable_with_tokenizer=missing_parts(checkpoint, tokenizer=False),
        )
    except BaseException as error:
        if is_shared(error):
            raise
        return Inspection(reason_of(error))


def files_of(checkpoint: Path) -> list[Path]:
    """Return the files of a checkpoint, which is a file or a folder, by name."""
    return list(filter(Path.is_file, sorted(checkpoint.iterdir()) if checkpoint.is_dir() else [checkpoint]))


def _sample(file: Path) -> tuple[str, int, list[bytes]]:
    size = file.stat().st_size
    with file.open("rb") as stream:
        blocks = [stream.read(_BLOCK) for start in (0, size // 2, size - _BLOCK) if stream.seek(max(start, 0)) >= 0]
    return file.name, size, blocks


def _hash(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()


def missing_parts(checkpoint: str | Path, *, tokenizer: bool = True) -> str:
    """Return the reason why a checkpoint cannot process a text, besides its weights; empty if it can.

    A file needs the sizes of the project's GPT in its metadata; a folder config.json and, if asked for, a `tokenizer`.
    """
    path = Path(checkpoint)
    if path.is_file():
        is_gpt = path.suffix == ".safetensors" and read_metadata(path)
        return "" if is_gpt else "a file of weights has no config.json beside it"
    if not (path / "config.json").is_file():
        return "there is no config.json"
    return "" if not tokenizer or any((path / name).is_file() for name in _TOKENIZERS) else "there is no tokenizer"
