"""Location of a checkpoint: a path of the user's, or what a run noted of a published one (`.json`).

Such a note holds `repo`, `step`, `revision` and the `folder` of what was fetched, or why there is none.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toposcale.io.errors import UserError
from toposcale.io.files import read_json


class LeftOutError(UserError):
    """Checkpoint that is left out on purpose, because it repeats the weights of `original`."""

    def __init__(self, message: str, original: str) -> None:
        super().__init__(message)
        self.original = original


def locate(path: str | Path) -> Path:
    """Return the file or folder of the weights: `path` itself, or the folder that a note names.

    Raise UserError if the checkpoint was unusable when it was fetched, and LeftOutError for a duplicate.
    """
    facts = noted(path)
    if "unusable" in facts:
        raise UserError(facts["unusable"])
    if "folder" not in facts and facts:
        original = facts["repeats"]
        raise LeftOutError(f"{facts['repo']}: step {facts['step']} serves the weights of {original}", original)
    return Path(facts.get("folder", path))


def noted(path: str | Path) -> dict[str, Any]:
    """Return what was noted of a published checkpoint; nothing for a path of the user's."""
    return read_json(path) if Path(path).suffix == ".json" else {}


def readable(message: str, facts: Mapping[str, Any]) -> str:
    """Return a message with the repository and revision of a download in place of its folder."""
    if "folder" not in facts:
        return message
    name = f"{facts['repo']}, revision {facts['revision']}"
    return message.replace(f"{facts['folder']}/", f"{name}: ").replace(facts["folder"], name)
