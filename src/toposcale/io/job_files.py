"""Lock files and JSON notes that one job leaves for another."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from toposcale.io.files import parse_json, read_text


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a lock file, which is created if missing; wait while another process holds it."""
    import fcntl

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("w") as file:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_noted(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a JSON file of an earlier job; {} if it is missing, or empty after `--touch`."""
    try:
        return dict(parse_json(read_text(path)))
    except (FileNotFoundError, ValueError, TypeError):
        return {}
