"""Learning-rate schedules: the rate of every step of a training, known before it starts."""

from __future__ import annotations

import math


def warmup_cosine(step: int, *, peak: float, steps: int, warmup_steps: int) -> float:
    """Rate of the update that follows `step` earlier ones, 0 <= step <= steps.

    peak (step + 1) / warmup_steps during the warm-up, then peak (1 + cos(pi t)) / 2 with t from 0 to 1 over the
    rest; exactly 0 at the last step, after which nothing is updated.
    """
    if step >= steps:
        return 0.0
    if step < warmup_steps:
        return peak * ((step + 1) / warmup_steps)
    progress = (step - warmup_steps) / (steps - warmup_steps)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))
