"""Warm-up of a training whose log does not show all of it."""

import numpy as np
from numpy.typing import ArrayLike

from toposcale.forecasting.runs.learning_rate_schedule import NEAR_PEAK, first_peak


def longest_warmup(steps: ArrayLike, rates: ArrayLike, peak: float = np.nan) -> int | None:
    """Return a step by which the warm-up was over; None if the rates do not show it.

    steps, rates (rows,); rows without a rate say nothing. peak: the highest rate of the schedule, if it is known. It is the
    first row near that peak, or the first that does not rise: where the rate falls from row to row, the warm-up may have
    ended between them.
    """
    times, logged = np.asarray(steps, dtype=np.float64), np.asarray(rates, dtype=np.float64)
    usable = np.isfinite(logged)
    if not usable.any() or logged[usable].max() <= 0:
        return None
    times, logged = times[usable], logged[usable]
    first = first_peak(logged)
    if peak >= logged.max() and logged[first] >= NEAR_PEAK * peak:
        return int(times[first])
    if first + 1 == len(logged):
        return None
    return int(times[first] if logged[first + 1] == logged[first] else times[first + 1])
