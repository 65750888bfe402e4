"""Writing a file so that one that is there is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name beside `path`, renamed to it when the block ends well and removed when it does not."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # One name for every attempt, so that what a killed job left is overwritten by the job that repeats it. The
    # suffix stays: some programs choose the format by it.
    temporary = target.with_name(f".unfinished.{target.name}")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
