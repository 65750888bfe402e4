"""Where the checkpoints of a model come from: which steps there are, and the path of one of them.

`FolderSource` finds them in a folder; `toposcale.checkpoints.hub` has the source for repositories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from toposcale.checkpoints.matrices import weight_files
from toposcale.io.errors import UserError
from toposcale.io.step_names import find_step, steps_by_name, wanted_steps

if TYPE_CHECKING:
    from toposcale.checkpoints.hub_client import Limits


class Source(Protocol):
    """Where the checkpoints of one model come from."""

    def steps(self) -> list[int]:
        """Steps with a checkpoint, ascending."""

    def fetch(self, step: int) -> Path:
        """The checkpoint of a step as a path on this machine, whole."""

    def release(self, step: int) -> None:
        """Free the disk that fetching the step took; does nothing where the files are the user's own."""


def open_source(kind: str, settings: Mapping[str, Any], *, limits: Limits | None = None) -> Source:
    """The source behind an entry of `models:`.

    `gpt` and `folder` need `path`, and take `pattern`; `hub` needs `repo` and `revisions`, and takes `cache` and `keep`.
    All take `steps`: the checkpoints that are wanted, every one that is found where there are none.
    ValueError: another kind.
    """
    steps = tuple(settings.get("steps") or ())
    if kind in ("gpt", "folder"):
        default = "step-{step}.safetensors" if kind == "gpt" else "step{step}"
        return FolderSource(Path(settings["path"]), settings.get("pattern") or default, steps)
    if kind == "hub":
        from toposcale.checkpoints import hub, hub_client

        return hub.HubSource(
            settings["repo"],
            settings["revisions"],
            steps,
            cache=settings.get("cache"),
            keep=settings.get("keep", True),
            limits=limits or hub_client.Limits(),
        )
    raise ValueError(f"kind must be gpt, hub or folder, got {kind!r}")


@dataclass(frozen=True)
class FolderSource:
    """Checkpoints under one folder, each a file or a folder whose name is `pattern` with `{step}` a number."""

    path: Path
    pattern: str
    wanted: tuple[int, ...] = ()

    def steps(self) -> list[int]:
        """Steps with a checkpoint, ascending."""
        found = self._found()
        return wanted_steps(self.wanted, found, f"{self.path}: {self.pattern}")

    def fetch(self, step: int) -> Path:
        """The file or folder of a step, its weight files checked to be whole."""
        path = self.path / find_step(step, self._found(), f"{self.path}: {self.pattern}")
        weight_files(path)
        return path

    def release(self, step: int) -> None:
        """Nothing: these files are the user's own."""

    def _found(self) -> dict[int, str]:
        try:
            names = [entry.name for entry in self.path.iterdir()]
        except OSError as error:
            raise UserError(f"{self.path}: no such folder of checkpoints ({error.strerror})") from error
        return steps_by_name(self.pattern, names)


def locate(path: str | Path) -> Path:
    """What holds the weights: `path` itself, or what a manifest (`.json`, see `toposcale.checkpoints.hub`) points to."""
    if Path(path).suffix != ".json":
        return Path(path)
    from toposcale.checkpoints import hub

    return hub.read_manifest(path)
