"""Facts that were read of the user's files, kept so that a file is read once: inspections of checkpoints, and hashes.

Every job parses the Snakefile, and plans with all checkpoints of a folder and with the content of all inputs.
"""

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from digests import fingerprint
from toposcale.checkpoints import Inspection, Sizes, content_hash, files_of, inspect
from toposcale.io.files import read_noted, write_text
from toposcale.io.weight_files import may_hold_weights

FILE = Path(".snakemake", "toposcale-inspections.json")


class Inspections:
    """Inspections of checkpoints and hashes of files; one is made again when its file has another size, time or inode."""

    def __init__(self, path: Path = FILE) -> None:
        self.path = path
        self._current: dict[str, dict[str, Any]] = {}

    def of(self, checkpoint: Path) -> Inspection:
        """Return the inspection of a checkpoint as it is now."""
        try:
            facts = self._kept(f"checkpoint {checkpoint}", files_of(checkpoint), lambda: inspect(checkpoint)._asdict())
        except OSError:
            return inspect(checkpoint)  # which says what is wrong with it
        return Inspection(**facts | {"sizes": Sizes(*facts["sizes"])})

    def content(self, path: str) -> str:
        """Return the hash of the content of a file, or of all files in a folder; "" where nothing can be read."""
        folder = Path(path)
        return self._content(path, sorted(folder.rglob("*")) if folder.is_dir() else [folder])

    def tokenizer(self, folder: str) -> str:
        """Return the hash of the content of a folder with a tokenizer, which may hold weights too."""
        return self._content(folder, [path for path in files_of(Path(folder)) if not may_hold_weights(path.name)])

    def _content(self, path: str, inside: Sequence[Path]) -> str:
        files = list(filter(Path.is_file, inside))
        try:
            return str(self._kept(f"content {path}", files, lambda: content_hash(files)))
        except OSError:
            return ""

    def save(self) -> None:
        """Write what was read of all files that are still there, if there is something new."""
        if self._current.items() <= self._cached.items():
            return
        present = {key: entry for key, entry in self._cached.items() if Path(key.partition(" ")[2]).exists()}
        write_text(self.path, json.dumps({"code": self._code, "facts": present | self._current}) + "\n")

    def _kept(self, key: str, files: Sequence[Path], read: Callable[[], Any]) -> Any:
        """Return what `read` returns of files, or returned of them as they are: in place, size, time and inode."""
        statuses = [(str(file), file.stat()) for file in files]
        now = [[name, one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_ino] for name, one in statuses]
        entry = self._current.get(key) or self._cached.get(key)
        if not entry or entry["files"] != now:
            entry = {"files": now, "facts": read()}
        self._current[key] = entry
        return entry["facts"]

    @cached_property
    def _cached(self) -> dict[str, dict[str, Any]]:
        """Facts that an earlier parse read by the same code."""
        content = read_noted(self.path)
        return content["facts"] if content.get("code") == self._code else {}

    @cached_property
    def _code(self) -> str:
        return fingerprint("", "toposcale.checkpoints.sources")
