"""What every benchmark uses: timing functions in turn, a row of the table, and a peer that may not be installed."""

from __future__ import annotations

import contextlib
import importlib
import io
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line: what was timed, our seconds (or megabytes), and the limit, if there is one.

    With a `reference` the limit is on `ours / reference`, without one on `ours`.
    """

    name: str
    ours: float
    limit: float | None = None
    reference: float | None = None
    unit: str = "s"

    @property
    def measured(self) -> float:
        """What is compared with the limit."""
        return self.ours if self.reference is None else self.ours / self.reference

    def line(self) -> str:
        """The row as printed."""
        against = "" if self.reference is None else f"{self.reference:.4g} {self.unit}"
        kind = self.unit if self.reference is None else "x"
        line = f"{self.name:<66} {f'{self.ours:.4g} {self.unit}':>11} {against:>11} {f'{self.measured:.3g} {kind}':>9}"
        if self.limit is None:
            return line
        verdict = "ok" if self.measured <= self.limit else "MISSED"
        return f"{line} {f'{self.limit:.3g} {kind}':>9}  {verdict}"


@dataclass(frozen=True)
class Skipped:
    """A line in place of the rows that need a peer, where the peer is not there."""

    peer: str
    reason: str

    def line(self) -> str:
        """The line as printed."""
        return f"skipped: {self.peer}: {self.reason}"


Line = Row | Skipped


def beside(module: str, measure: Callable[[ModuleType], Iterable[Line]]) -> Iterator[Line]:
    """The rows of `measure(module)`, or one line that says why the peer's module cannot be imported."""
    try:
        with quiet():
            peer = importlib.import_module(module)
    except Exception as error:  # a package built for another NumPy does not fail with ImportError alone
        reason = " ".join(str(error).split()) or type(error).__name__
        yield Skipped(module.partition(".")[0], reason)
        return
    yield from measure(peer)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings and no printed text: some peers print their progress, or use old names of other packages."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


def best_in_turn(*functions: Callable[[], Any], rounds: int = 5) -> list[float]:
    """Least seconds of each function over `rounds`, the functions taking turns so that noise hits all alike.

    Processor time, because other processes disturb it less than wall time; every function uses one thread.
    """
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for index, function in enumerate(functions):
            start = time.process_time()
            function()
            best[index] = min(best[index], time.process_time() - start)
    return best


def compare(name: str, ours: Callable[[], Any], reference: Callable[[], Any], limit: float, rounds: int = 7) -> Row:
    """Our best time and the reference's, after one call of each that does not count (imports, memory, caches)."""
    with quiet():
        ours(), reference()
        mine, theirs = best_in_turn(ours, reference, rounds=rounds)
    return Row(name, mine, limit, theirs)


def seconds_of(function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[float, Any]:
    """Processor seconds of one call, and what it returned."""
    start = time.process_time()
    result = function(*arguments, **options)
    return time.process_time() - start, result
