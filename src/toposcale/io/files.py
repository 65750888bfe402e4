"""Writing a file so that one that is there is whole."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toposcale.io.errors import NO_ROOM, WHEN_DAMAGED, UserError


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name beside `path`, renamed to it when the block ends well and removed when it does not.

    UserError: the disk, a quota or a limit on the size of files leaves no room.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # One name for every attempt, so that what a killed job left is overwritten by the job that repeats it. The
    # suffix stays: some programs choose the format by it.
    temporary = target.with_name(f".unfinished.{target.name}")
    try:
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        reason = os.strerror(error.errno).lower()
        raise UserError(f"{target}: not written ({reason}); make room and run again") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text in UTF-8 so that the file is whole whenever it is there; errors as in `atomic_write`."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def regular_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file to read; raise UserError for a pipe, a socket or a device, which may never end."""
    path = Path(path)
    # A missing file and a folder are left to the reader, whose message says what it expected.
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path}: not a regular file (a pipe, a socket or a device); copy its content to a file")
    return path


def regular_files(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the entries of a folder, each checked as in `regular_file`."""
    return [regular_file(entry) for entry in Path(folder).iterdir()]


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a regular file in UTF-8."""
    return regular_file(path).read_text(encoding="utf-8")


def parse_json(text: str | bytes) -> Any:
    """What a text in JSON says. ValueError: it is none, or nested deeper than any file that is meant to be read."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """What a small JSON file of the run holds; a `UserError` names one that is damaged."""
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise UserError(f"{path}: not a whole JSON file ({error}); {WHEN_DAMAGED}") from error
