"""Facts that were read of the user's checkpoints, kept so that a checkpoint is opened once.

Every job parses the Snakefile, and plans with all checkpoints of a folder.
"""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from fingerprint import fingerprint
from toposcale.checkpoints import Inspection, Sizes, files_of, inspect
from toposcale.io.files import write_text
from toposcale.io.job_files import read_noted

FILE = Path(".snakemake", "toposcale-inspections.json")


class Inspections:
    """Inspections of checkpoints; one is made again when a file of its checkpoint has another size or time."""

    def __init__(self, path: Path = FILE) -> None:
        self.path = path
        self._current: dict[str, dict[str, Any]] = {}

    def of(self, checkpoint: Path) -> Inspection:
        """Return the inspection of a checkpoint as it is now."""
        try:
            statuses = [(file.name, file.stat()) for file in files_of(checkpoint)]
        except OSError:
            return inspect(checkpoint)  # which says what is wrong with it
        files = [[name, status.st_size, status.st_mtime_ns, status.st_ctime_ns] for name, status in statuses]
        entry = self._current.get(str(checkpoint)) or self._cached.get(str(checkpoint))
        if not entry or entry["files"] != files:
            entry = {"files": files, "inspection": inspect(checkpoint)._asdict()}
        self._current[str(checkpoint)] = entry
        return Inspection(**entry["inspection"] | {"sizes": Sizes(*entry["inspection"]["sizes"])})

    def save(self) -> None:
        """Write the inspections of all checkpoints that are still there, if there are new ones."""
        if self._current.items() <= self._cached.items():
            return
        present = {path: entry for path, entry in self._cached.items() if Path(path).exists()}
        write_text(self.path, json.dumps({"code": self._code, "checkpoints": present | self._current}) + "\n")

    @cached_property
    def _cached(self) -> dict[str, dict[str, Any]]:
        """Inspections of an earlier parse by the same code."""
        content = read_noted(self.path)
        return content["checkpoints"] if content.get("code") == self._code else {}

    @cached_property
    def _code(self) -> str:
        return fingerprint("", "toposcale.checkpoints.sources")
