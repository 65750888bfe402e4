"""Checkpoints that a test of prewhitened residuals may use: evenly spaced, after the warm-up.

There the test keeps its false-positive rate on real nulls, and nowhere else (`make nulls`, docs/statistics.md).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

MIN_FOR_TEST = 10
"""Fewer points leave no degrees of freedom beside the trend and the past: no test is made."""
WARMUPS = 2
"""The segment begins at so many times the warm-up."""


class Segment(NamedTuple):
    """Checkpoints start to stop (exclusive) of a series; reason: why they cannot be tested, else empty."""

    start: int
    stop: int
    reason: str


def testable_segment(steps: ArrayLike, warmup_steps: float | None) -> Segment:
    """Return the longest evenly spaced segment of checkpoints from twice the warm-up on; of equal ones the last.

    Parameters
    ----------
    steps : array_like of shape (T,)
        Training steps of the checkpoints, increasing.
    warmup_steps : float or None
        Steps of the learning-rate warm-up; None or NaN if unknown.

    Returns
    -------
    Segment
        Indices `start` and `stop` (exclusive), and the `reason` if it has fewer than 10 checkpoints, else "".

    Examples
    --------
    >>> from toposcale.statistics import testable_segment
    >>> testable_segment(range(0, 1300, 100), warmup_steps=100)
    Segment(start=2, stop=13, reason='')
    """
    times = np.asarray(steps, dtype=np.float64)
    if warmup_steps is None or not np.isfinite(warmup_steps):
        return Segment(0, 0, "the warm-up is not known; give models.{name}.warmup_steps")
    first = int(np.searchsorted(times, WARMUPS * warmup_steps))
    start = stop = begin = first
    for end in range(first, len(times)):
        uneven = end - begin >= 2 and times[end] - times[end - 1] != times[end - 1] - times[end - 2]
        begin = end - 1 if uneven else begin
        if end + 1 - begin >= stop - start:
            start, stop = begin, end + 1
    if stop - start < MIN_FOR_TEST:
        checkpoints = f"{stop - start} evenly spaced checkpoints from step {WARMUPS * warmup_steps:g} on"
        return Segment(start, stop, f"{checkpoints}; the test needs {MIN_FOR_TEST}")
    return Segment(start, stop, "")
