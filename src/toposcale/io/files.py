"""Atomic writes, reading of small files, and the locks and notes that one job leaves for another."""

import gzip
import json
import math
import os
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from toposcale.io.errors import NO_ROOM, WHEN_DAMAGED, UserError, as_user_error, message_of

UNFINISHED = ".unfinished."  # prefix of a file that is being written; see `remove_unfinished`
_SMALL_BYTES = 1 << 26  # of any compression
_MAX_COMPRESSION_RATIO = 100  # of text: what is beyond it is made to fill the memory


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path, renamed to `path` if the block succeeds and removed if it raises.

    Raise UserError if the disk, a quota or a limit on file sizes leaves no room, or if the folder may not be written.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # A name that no other writer chooses. The suffix stays, since some programs choose the format by it.
    temporary = target.with_name(f"{UNFINISHED}{os.urandom(4).hex()}.{target.name}")
    try:
        yield temporary
        os.replace(temporary, target)
    except PermissionError as error:  # about the temporary file, whose name tells the user nothing
        raise UserError(f"{target}: not written (permission denied in its folder); write it elsewhere") from error
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise OSError(error.errno, os.strerror(error.errno or 0), str(target)) from error
        reason = os.strerror(error.errno).lower()
        raise UserError(f"{target}: not written ({reason}); make room and run again") from error
    finally:
        with suppress(OSError):  # it is not there, or could not be
            temporary.unlink()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text in UTF-8 atomically; errors as in `atomic_write`."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def regular_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file to read; raise UserError for a pipe, a device or a pointer of Git LFS."""
    path = not_a_pipe(Path(path))
    if path.is_file():
        with path.open("rb") as stream:
            if stream.read(64).startswith(b"version https://git-lfs.github.com/spec/"):
                raise UserError(f"{path}: a pointer of Git LFS, not the file itself; fetch it with: git lfs pull")
    return path


def not_a_pipe(path: Path) -> Path:
    """Return the path; raise UserError for a pipe, a socket or a device, which may never end."""
    # A missing file and a folder are left to the reader, whose message says what it expected.
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path}: not a regular file (a pipe, a socket or a device); copy its content to a file")
    return path


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a regular file in UTF-8, without a byte-order mark."""
    return regular_file(path).read_text(encoding="utf-8-sig")


def read_plain_or_gzip(path: Path) -> bytes:
    """Return the content of a file, decompressed if it is gzip; raise UserError if it is unreadable or grows too much."""
    try:
        with regular_file(path).open("rb") as file:
            if file.read(2) != b"\x1f\x8b":
                file.seek(0)
                return file.read()
        most = max(_SMALL_BYTES, _MAX_COMPRESSION_RATIO * path.stat().st_size)
        with gzip.open(path, "rb") as file:
            if len(content := file.read(most + 1)) <= most:
                return content
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except PermissionError as error:
        raise UserError(message_of(error)) from error
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not readable ({error})") from error
    raise UserError(
        f"{path}: decompressed, it is more than {_MAX_COMPRESSION_RATIO} times as large; decompress it yourself"
    )


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a small JSON file of the run; raise UserError if it is damaged."""
    with as_user_error(path, "not a complete JSON file", ValueError, remedy=WHEN_DAMAGED):
        return parse_json(read_text(path))


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


def finite_or_none(value: Any) -> Any:
    """Return a value as JSON can hold it: None for a number that is not finite."""
    if not isinstance(value, float):
        return value
    return float(value) if math.isfinite(value) else None
