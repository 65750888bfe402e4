"""Checkpoints in a folder of this machine: which steps there are, which can be used, and what Trainer left beside them."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from toposcale.checkpoints.matrices import count_parameters, tensor_shapes
from toposcale.io import loss_curves
from toposcale.io.errors import UserError, is_shared, reason_of
from toposcale.io.files import read_json
from toposcale.io.step_names import find_step, steps_by_name, wanted_steps
from toposcale.io.tensor_files import read_metadata

PATTERNS = ("checkpoint-{step}", "step{step}", "step-{step}", "step{step}.safetensors", "step-{step}.safetensors")
"""How checkpoints are named where nobody says: the first of these that fits a name in the folder."""

_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")


@dataclass(frozen=True)
class FolderSource:
    """Checkpoints under one folder, each a file or a folder whose name is `pattern` with `{step}` a number.

    Without a pattern it is the first of `PATTERNS` that fits. `wanted`: the steps that count, all where empty.
    """

    path: Path
    pattern: str = ""
    wanted: tuple[int, ...] = ()

    def steps(self) -> list[int]:
        """Steps with a checkpoint, ascending. UserError: no such folder, no checkpoint, or a wanted one is not there."""
        return wanted_steps(self.wanted, self._names, self._where)

    def checkpoint(self, step: int) -> Path:
        """The file or folder of a step."""
        return self.path / find_step(step, self._names, self._where)

    def usable_steps(self) -> tuple[tuple[int, ...], dict[int, str]]:
        """The steps with whole weights of the shape that most have; by step, why others are left out. UserError: none."""
        shapes, gaps = {}, {}
        for step in self.steps():
            try:
                shapes[step] = str(sorted(tensor_shapes(self.checkpoint(step)).items()))
            except BaseException as error:
                if is_shared(error):
                    raise
                gaps[step] = reason_of(error)
        if not shapes:
            raise UserError(f"no checkpoint can be used: {next(iter(gaps.values()))}")
        # Of two shapes that are as frequent, the later one counts: the training was restarted.
        frequent = Counter(reversed(shapes.values())).most_common(1)[0][0]
        for step, shape in shapes.items():
            if shape != frequent:
                gaps[step] = f"{self.checkpoint(step)}: its tensors have other names or shapes than those of the others"
        return tuple(step for step in shapes if step not in gaps), gaps

    def trainer_state(self) -> str | None:
        """What transformers' Trainer left beside the last checkpoint that has a whole such file: the log so far."""
        for step in reversed(self.steps()):
            state = self.checkpoint(step) / loss_curves.TRAINER_STATE
            with suppress(UserError):
                loss_curves.trainer_state(state)
                return str(state)
        return None

    def check_one_training(self) -> None:
        """UserError: two checkpoints whose Trainer states tell of two trainings; their losses do not fit their weights.

        A training that was resumed goes on with the log that it had, also where it was given more steps.
        """
        before, log, last = "", "[]", None
        for step in self.steps():
            checkpoint = self.checkpoint(step)
            try:
                state = loss_curves.trainer_state(checkpoint / loss_curves.TRAINER_STATE)
            except UserError:
                continue
            log_here, last_here = repr(state["log_history"]), state.get("max_steps")
            is_another = before and log == "[]" and last_here != last
            if is_another or not log_here.startswith(log[:-1]):
                steps = f"{last} and {last_here} steps"
                why = steps if is_another else "the log of the second does not begin as that of the first"
                raise UserError(
                    f"{self.path}: {before} and {checkpoint.name} are of two trainings ({why}); give each a folder of its "
                    "own, or name the steps of one (steps: [...])"
                )
            before, log, last = checkpoint.name, log_here, last_here

    @property
    def _where(self) -> str:
        return f"{self.path}: {self.pattern or ' or '.join(PATTERNS)}"

    @cached_property
    def _names(self) -> dict[int, str]:
        try:
            names = [entry.name for entry in self.path.iterdir()]
        except OSError as error:
            raise UserError(f"{self.path}: no such folder of checkpoints ({error.strerror})") from error
        named = (steps_by_name(pattern, names) for pattern in ([self.pattern] if self.pattern else PATTERNS))
        return next(filter(None, named), {})


def state_of_files(paths: Iterable[str | Path]) -> str:
    """A hash of name, size and time of every file of some checkpoints, each a file or a folder of files."""
    state = hashlib.sha256()
    for path in map(Path, paths):
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            if file.is_file():
                status = file.stat()
                state.update(repr((file.name, status.st_size, status.st_mtime_ns)).encode())
    return state.hexdigest()


def trainer_facts(state: Path, checkpoint: Path | None) -> dict[str, int | None]:
    """final_step and tokens_per_step as the Trainer's state tells them, None where it does not.

    checkpoint: a whole one of the same model, for the one beside the state may not be written yet; None without weights.
    """
    stated = loss_curves.trainer_state(state)
    inner = count_parameters(checkpoint, embeddings=False) if checkpoint else 0
    tokens = loss_curves.tokens_per_step(stated, inner)
    return {"final_step": stated.get("max_steps") or None, "tokens_per_step": tokens}


def missing_parts(checkpoint: str | Path, *, tokenizer: bool = True) -> str:
    """What a checkpoint lacks beside its weights to read a text, in words; empty where it has everything.

    A file needs the sizes of the project's GPT in its metadata; a folder config.json and, where asked for, a `tokenizer`.
    """
    path = Path(checkpoint)
    if path.is_file():
        ours = path.suffix == ".safetensors" and read_metadata(path)
        return "" if ours else "a file of weights has no config.json beside it"
    if not (path / "config.json").is_file():
        return "there is no config.json"
    return "" if not tokenizer or any((path / name).is_file() for name in _TOKENIZERS) else "there is no tokenizer"


def locate(path: str | Path) -> Path:
    """What holds the weights: `path` itself, or what a manifest (`.json`, see `manifests`) points to."""
    if Path(path).suffix != ".json":
        return Path(path)
    from toposcale.checkpoints import manifests

    return manifests.read_manifest(path)


def moved(path: str | Path) -> str:
    """Between which commits the revision behind `path` moved since it was last fetched; empty where it did not."""
    facts = _manifest(path)
    if "commit_before" not in facts:
        return ""
    return (
        f"{facts['repo']}, revision {facts['revision']}: it was commit {facts['commit_before'][:12]} when it was fetched "
        f"first, and was {facts['commit'][:12]} when it was fetched again; what is measured now is of the second"
    )


def readable(message: str, path: str | Path) -> str:
    """A message about the checkpoint behind `path`: of a download it names repository and revision, no cache."""
    facts = _manifest(path)
    if "folder" not in facts:
        return message
    name = f"{facts['repo']}, revision {facts['revision']}"
    return message.replace(f"{facts['folder']}/", f"{name}: ").replace(facts["folder"], name)


def _manifest(path: str | Path) -> dict[str, Any]:
    """What the manifest of a download holds; nothing where `path` is none."""
    return read_json(path) if Path(path).suffix == ".json" else {}
