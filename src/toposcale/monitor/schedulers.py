"""The learning rates that a scheduler of PyTorch will give."""

from __future__ import annotations

from typing import Any

import numpy as np

from toposcale.training.schedules import knots


def plan_of(scheduler: Any, final_step: int) -> dict[str, list[float]] | None:
    """The rates that a scheduler will give, as the fields of `ScheduleTable`; None for one that is no function of the step.

    A scheduler that looks at the loss on the way has no plan.
    """
    functions = getattr(scheduler, "lr_lambdas", None)
    if not functions or final_step < 1:
        return None
    rates = np.array([scheduler.base_lrs[0] * functions[0](step) for step in range(final_step + 1)])
    if not np.all(np.isfinite(rates)) or rates.min() < 0 or rates.max() <= 0:
        return None
    at = knots(rates)
    return {"at": at.tolist(), "values": rates[at].tolist()}
