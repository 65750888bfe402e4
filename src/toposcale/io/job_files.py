"""Lock files and JSON notes that one job leaves for another."""

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toposcale.io.files import UNFINISHED, parse_json, read_text


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a lock file, which is created if missing; wait while another process holds it.

    Warn if the file system has no locks, as some over a network.
    """
    import fcntl

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            warnings.warn(f"{path}: not locked ({reason}); let no other process write here", stacklevel=3)
        yield


def remove_unfinished(targets: Iterable[str | os.PathLike[str]]) -> None:
    """Remove what killed writers left of files that no other process is writing."""
    paths = {Path(target) for target in targets}
    for folder in {path.parent for path in paths}:
        for file in folder.glob(f"{UNFINISHED}*"):
            if folder / file.name.removeprefix(UNFINISHED).partition(".")[2] in paths:
                file.unlink(missing_ok=True)


def read_noted(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a JSON file of an earlier job; {} if it is missing, or empty after `--touch`."""
    try:
        return dict(parse_json(read_text(path)))
    except (FileNotFoundError, ValueError, TypeError):
        return {}
