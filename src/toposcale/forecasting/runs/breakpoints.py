"""Steps between which a learning-rate schedule is linear, for tables and files."""

import numpy as np

MOST_BREAKPOINTS = 2000


def breakpoints(rates: np.ndarray) -> np.ndarray:
    """Return ascending steps, at most `MOST_BREAKPOINTS`, between which linear interpolation reproduces the rates."""
    last = len(rates) - 1
    if last < MOST_BREAKPOINTS:
        return np.arange(last + 1)
    kinks = np.abs(np.diff(rates, 2))
    sharpest = np.argsort(-kinks, kind="stable")[: MOST_BREAKPOINTS // 3]
    sharpest = sharpest[kinks[sharpest] > 1e-9 * rates.max()] + 1
    even = np.linspace(0, last, MOST_BREAKPOINTS // 3).round().astype(int)
    # Both sides of a kink: a rate that jumps stays where it was up to the jump.
    return np.unique(np.concatenate([even, sharpest, np.minimum(sharpest + 1, last)]))
