"""Open files of a monitor, which forked children give up, and locks on the rows of a model.

No two trainings write rows of one model at a time, nor does the background process that a killed training left.
"""

import fcntl
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakSet

from toposcale.io.errors import UserError
from toposcale.monitor.folder import Folder


class Handle:
    """An open file or channel, which every forked child closes.

    buffer: an object that has a descriptor of its own, which is closed with the object.
    """

    def __init__(self, file: Any, buffer: Any = None) -> None:
        self.file, self._buffer, self._identity = file, buffer, _identity(file)
        _OPEN.add(self)

    @property
    def is_open(self) -> bool:
        """True if the descriptor is still that of the file: a daemon closes all, and their numbers are given away again."""
        try:
            return _identity(self.file) == self._identity
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        """Close the file, unless the program has."""
        _OPEN.discard(self)
        if self.is_open:
            self.file.close()
        else:
            _LOST.extend((self.file, self._buffer))


_OPEN: WeakSet[Handle] = WeakSet()
_LOST: list[Any] = []
"""Files that the program has closed: their destructor would close the file that has the descriptor by now."""


def _identity(file: Any) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino


def _close_all() -> None:
    for handle in list(_OPEN):
        handle.close()


os.register_at_fork(after_in_child=_close_all)


_INTERVAL = 0.1  # seconds between two attempts


class Locks(NamedTuple):
    """Locks that are held until they are closed: `training` by the training, `rows` by its background processes, too."""

    training: Handle
    rows: Handle

    def close(self) -> None:
        """Give the locks up; background processes keep theirs until they end."""
        for handle in self:
            handle.close()


def lock(folder: Folder, timeout: float, say: Callable[[str], None]) -> Locks | None:
    """Lock the rows of a model; None, with a line, where the file system has no locks, and where nothing can be written.

    Wait at most `timeout` seconds for the background process of a training that was killed. UserError: another monitor
    has the lock, or that process does not end.
    """
    try:
        locks = Locks(*(_opened(folder, suffix) for suffix in (".lock", ".rows.lock")))
    except OSError:
        return None
    try:
        if not _is_locked(locks.training):
            locks.close()
            raise UserError(
                f"{folder.path}: another monitor is writing rows of {folder.model} there; close() it, or choose another "
                "folder or name"
            )
        give_up = time.monotonic() + timeout
        is_told = False
        while not _is_locked(locks.rows):
            if time.monotonic() > give_up:
                locks.close()
                raise UserError(
                    f"{folder.path}: the background process of an earlier training has been measuring {folder.model} for "
                    f"more than {timeout:g} s; end it, or choose another folder or name"
                )
            if not is_told:
                say("an earlier training left a snapshot in work, which is waited for")
            is_told = True
            time.sleep(_INTERVAL)
    except OSError as error:
        say(f"{folder.path} has no locks ({os.strerror(error.errno or 0).lower()}); let no other monitor write there")
    return locks


def _opened(folder: Folder, suffix: str) -> Handle:
    path = folder.facts_file.with_suffix(suffix)
    path.parent.mkdir(parents=True, exist_ok=True)
    return Handle(path.open("w"))


def _is_locked(handle: Handle) -> bool:
    try:
        fcntl.flock(handle.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
