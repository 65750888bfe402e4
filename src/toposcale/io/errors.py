"""Errors that the user can fix, and one-line messages."""

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OF_THE_MACHINE = (*NO_ROOM, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE)

WHEN_DAMAGED = "check that the copy or download is complete; if the workflow made the file, delete it and run again"
"""End of a message about a damaged file; the file may be the user's own, which must not be deleted."""

NOT_TENSORS = "Python objects other than tensors, which are not loaded"

Kinds = type[BaseException] | tuple[type[BaseException], ...]


class UserError(Exception):
    """Error in what the user gave, in one line: what is wrong, where, and what to do.

    Scripts print it without a traceback. Wrong arguments of a function raise `ValueError`.
    """


class SharedError(UserError):
    """Error that all checkpoints share (an unreachable server, a full disk, too short a text), so that the run ends."""


class NoForecast(ValueError):
    """Missing forecast of a method; the message is the reason and follows "no forecast: "."""


def is_shared(error: BaseException) -> bool:
    """Return True for an error that all checkpoints would meet: an interrupt, no memory, no disk space, no Hub."""
    if isinstance(error, OSError):
        return error.errno in _OF_THE_MACHINE
    if not isinstance(error, Exception):  # the others are panics of libraries in Rust
        return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
    torch = sys.modules.get("torch")  # not imported for this: only if it was can an error be of its class
    if torch is not None and isinstance(error, torch.cuda.OutOfMemoryError):
        return True
    # On a CPU it raises a RuntimeError that differs from others only by its text.
    return isinstance(error, SharedError | MemoryError) or "DefaultCPUAllocator" in str(error)


@contextmanager
def as_user_error(subject: object, problem: str, kinds: Kinds = BaseException, *, remedy: str = "") -> Iterator[None]:
    """Raise an error of these kinds, by default any, as a UserError about `subject`; a shared error stays what it is."""
    try:
        yield
    except kinds as error:
        if isinstance(error, UserError) or is_shared(error):
            raise
        if isinstance(error, PermissionError) and error.filename:  # what cannot be opened is not damaged
            raise UserError(message_of(error)) from error
        raise UserError(f"{subject}: {problem} ({reason_of(error)})" + (f"; {remedy}" if remedy else "")) from error


@contextmanager
def needs_extra(extra: str, subject: object) -> Iterator[None]:
    """Raise a UserError that names an extra of toposcale if a package that is imported in the block is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"{subject} needs {error.name}: pip install 'toposcale[{extra}]'") from error


def message_of(error: BaseException) -> str:
    """Return the message of an error for the user: for a system error about a file, the file and what is wrong with it."""
    if not isinstance(error, OSError) or error.filename is None or not error.errno:
        return str(error)
    remedy = "; change its permissions (chmod), or ask its owner" if isinstance(error, PermissionError) else ""
    return f"{os.fsdecode(error.filename)}: {os.strerror(error.errno).lower()}{remedy}"


def reason_of(error: BaseException) -> str:
    """Return the message of an error in one line, with the exception's name unless it was written for the user."""
    message, kind = one_line(message_of(error)), type(error).__name__
    if isinstance(error, UserError) or message != one_line(error):
        return message
    if "weights_only" in message and "False" in message:  # advice of PyTorch that would run code from the file
        message = f"it contains {NOT_TENSORS}"
    return f"{kind}: {message[:300]}" if message else kind


def one_line(text: object) -> str:
    """Return a text for a terminal: white space joined, control characters escaped (`\\x1b`)."""
    return printable(" ".join(str(text).split()))


def printable(text: object) -> str:
    """Return a text for a terminal: control characters but line breaks escaped (`\\x1b`)."""
    # A name in a file could otherwise move the cursor, clear the screen or hide what follows it.
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in str(text))


def listed(names: Iterable[str], most: int) -> str:
    """Return names for a message: the first `most`, and the number of further ones."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, "1 feature" or "2 features"; plural: if it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def did_you_mean(word: object, names: Iterable[str]) -> str:
    """Return the end of a message that suggests the closest of the names; "" if none is close, or the word is one."""
    near = get_close_matches(word, list(names), 1) if isinstance(word, str) else []
    return f"; did you mean {near[0]}?" if near and near[0] != word else ""
