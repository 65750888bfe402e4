"""Open files and channels of a monitor: forked children give them up, and the program may close them, too."""

import os
from typing import Any
from weakref import WeakSet


class Handle:
    """An open file or channel, which every forked child closes.

    beside: an object that has a descriptor of its own, which is closed with the object.
    """

    def __init__(self, file: Any, beside: Any = None) -> None:
        self.file, self._beside, self._identity = file, beside, _identity(file)
        _OPEN.add(self)

    @property
    def is_open(self) -> bool:
        """Whether the descriptor is still that of the file: a daemon closes all, and their numbers are given away again."""
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
            _LOST.extend((self.file, self._beside))


_OPEN: WeakSet[Handle] = WeakSet()
_LOST: list[Any] = []
"""What the program has closed: the destructor would close the file that has the descriptor by now."""


def _identity(file: Any) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino


def _close_all() -> None:
    for handle in list(_OPEN):
        handle.close()


os.register_at_fork(after_in_child=_close_all)
