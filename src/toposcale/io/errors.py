"""Errors that are the user's to mend, and not ours."""

import errno
from collections.abc import Iterable

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OF_THE_MACHINE = (*NO_ROOM, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE)

WHEN_DAMAGED = "was it copied or downloaded whole? If the workflow made it, delete it and run again"
"""What a message about a damaged file ends with, where the file may be the user's own: that is not to be deleted."""


NOT_TENSORS = "Python objects other than tensors, which are not loaded"


class UserError(Exception):
    """A mistake in what the user gave: one line that names the thing and says what would be right.

    Scripts print it without a traceback. Mistakes in calling a function stay `ValueError`.
    """


class SharedError(UserError):
    """What every checkpoint of a run shares: a server that does not answer, a full disk, a text that is too short.

    It ends the run. Nothing is concluded from it about the checkpoint at which it was met.
    """


class DownloadError(UserError):
    """What a repository does not serve, or not as it states it. A later attempt may find it mended."""


class LeftOutError(UserError):
    """A checkpoint that is not measured on purpose, because its weights are those of `original`."""

    def __init__(self, message: str, original: str) -> None:
        super().__init__(message)
        self.original = original


class NoForecast(ValueError):
    """Why a method has no forecast, in words that follow "no forecast: "."""


def is_shared(error: BaseException) -> bool:
    """Whether an error over one checkpoint would come at every other one, too: an interrupt, no memory, no disk, no Hub.

    Everything else is wrong with that checkpoint alone, whatever exception says it.
    """
    if isinstance(error, OSError):
        return error.errno in _OF_THE_MACHINE
    kind, message = type(error).__name__, str(error)
    if not isinstance(error, Exception):
        return kind != "PanicException"  # how a library in Rust fails
    # PyTorch is not imported to ask: its two errors of a full memory are known by name and by text.
    out_of_memory = kind == "OutOfMemoryError" or "DefaultCPUAllocator" in message
    return isinstance(error, SharedError | MemoryError) or out_of_memory


def reason_of(error: BaseException) -> str:
    """What an error says, in one line: as it is where it is written for the user, else with the name of its kind."""
    message, kind = one_line(error), type(error).__name__
    if isinstance(error, UserError):
        return message
    if "weights_only" in message and "False" in message:  # advice of PyTorch that would run code from the file
        message = f"it contains {NOT_TENSORS}"
    return f"{kind}: {message[:300]}" if message else kind


def one_line(text: object) -> str:
    """Return a text for a terminal: white space joined, control characters escaped (`\\x1b`)."""
    # A name in a file of weights could otherwise move the cursor, clear the screen or hide what follows it.
    joined = " ".join(str(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)


def listed(names: Iterable[str], most: int) -> str:
    """Names for a message: the first ones, and how many more there are."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
