"""Timing two functions in turn, and the row that a benchmark reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line: what was timed, ours and what it is held against (seconds or megabytes), and the limit on their ratio.

    `limit` is the most that `ours / reference` may be, or, where `absolute`, the most that `ours` may be.
    """

    name: str
    ours: float
    reference: float
    limit: float
    absolute: bool = False
    unit: str = "s"

    @property
    def measured(self) -> float:
        """What is compared with the limit."""
        return self.ours if self.absolute else self.ours / self.reference

    def line(self) -> str:
        """The row as printed."""
        against = "" if self.absolute else f"{self.reference:.4g} {self.unit}"
        kind = self.unit if self.absolute else "x"
        verdict = "ok" if self.measured <= self.limit else "MISSED"
        return (
            f"{self.name:<58} {f'{self.ours:.4g} {self.unit}':>10} {against:>10} "
            f"{f'{self.measured:.3g} {kind}':>9} {f'{self.limit:g} {kind}':>9}  {verdict}"
        )


def best_in_turn(*functions: Callable[[], Any], rounds: int = 5) -> list[float]:
    """Least wall seconds of each function over `rounds`, the functions taking turns so that noise hits all alike."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for index, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[index] = min(best[index], time.perf_counter() - start)
    return best
