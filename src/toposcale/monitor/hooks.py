"""Base class of the callbacks of trainers: a monitor that begins and ends with the training."""

import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from toposcale.forecasting.runs.facts import OPTIMIZERS
from toposcale.forecasting.runs.learning_rate_schedule import breakpoints
from toposcale.monitor.loop import TopologyMonitor

_WIDTH = re.compile(r"^paged|8bit$|32bit$")
"""Parts of names of optimizers that tell of their states in memory."""


class TrainerHooks:
    """Hooks of a callback, whose arguments are those of `TopologyMonitor`."""

    def __init__(self, folder: str | Path, name: str = "model", **options: Any) -> None:
        self._arguments, self._options = (folder, name), options
        self.monitor: Any = None  # the hooks are called with a monitor only

    def _open(
        self,
        model: Any,
        find_scheduler: Callable[[], Any],
        optimizers: Sequence[Any],
        start: int,
        final_step: int | None,
        is_retry: bool = False,
    ) -> None:
        """Open the monitor of a training, and take a snapshot of the initial weights; a retry replaces what failed."""
        if self.monitor is not None:
            self.monitor.close()  # of a training that was interrupted
        continues_another = self._options.get("start", start) != start  # whose steps the Trainer does not count
        planned = None if continues_another else final_step or None  # a training of no epochs has no last step
        options = {"start": start, "final_step": planned} | self._options
        if is_retry:
            options["overwrite"] = True
        self.monitor = TopologyMonitor(*self._arguments, **options)
        with self.monitor.guard():
            scheduler = None if continues_another else find_scheduler()
            schedule = schedule_of(scheduler, options["final_step"] or 0)
            self.monitor.tell(schedule=schedule, optimizer=optimizer_of(optimizers))
        if start == 0:
            self.monitor.snapshot(model)


def guarded_hook(method: Callable[..., None]) -> Callable[..., None]:
    """Decorate a hook of a callback: do nothing without a monitor, and let an error end the monitoring and nothing else."""

    @wraps(method)
    def guarded(self: Any, *arguments: Any, **named: Any) -> None:
        if self.monitor is not None:
            with self.monitor.guard():
                method(self, *arguments, **named)

    return guarded


def optimizer_of(optimizers: Sequence[Any]) -> str | None:
    """Return the name of the optimizer by its class, as `--optimizer` has it; None where it is another one, or several.

    A wrapper has the optimizer of its training in `optimizer`. AdamW next to another one is for embeddings and vectors.
    """
    names = {_WIDTH.sub("", type(getattr(each, "optimizer", each)).__name__.lower()) for each in optimizers}
    names = names - {"adamw"} or names
    return names.pop() if len(names) == 1 and names <= set(OPTIMIZERS) else None


def schedule_of(scheduler: Any, final_step: int) -> dict[str, list[float]] | None:
    """Return the learning rates that a scheduler of PyTorch will give, as the fields of `ScheduleTable`.

    None unless it is a function of the step: the rates of a scheduler that looks at the loss are not known beforehand.
    """
    functions = getattr(scheduler, "lr_lambdas", None)
    if not functions or final_step < 1:
        return None
    try:
        rates = np.array([scheduler.base_lrs[0] * functions[0](step) for step in range(final_step + 1)])
    except Exception:  # a function of the user's, which may know no step but those of the training
        return None
    if not np.all(np.isfinite(rates)) or rates.min() < 0 or rates.max() <= 0:
        return None
    steps = breakpoints(rates)
    return {"at": steps.tolist(), "values": rates[steps].tolist()}
