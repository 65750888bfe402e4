"""What is known of a training beside its rows, and what is made of both: its plan, its metric, and what is to be said.

`TrainingRun.of` alone asks these.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from toposcale.features.names import TRAINING_LOSS, VALIDATION_LOSS
from toposcale.runs.series import Series, in_order
from toposcale.training.schedules import Schedule, ScheduleTable, plan_of_training, rates_of_log


class Facts(NamedTuple):
    """What is known of a training beside its rows; NaN, None or "" is not known.

    schedule: the plan, to be held against the logged rates. rates (final_step + 1,) and plan: the rate of every step, and
    where it is known from, of a plan that was already held against the log. warmup_steps: as its owner stated them.
    repeated: steps that were logged several times, of which a reader kept the last. reached: the step that it has come to,
    where that is known beside its log.
    """

    model: str
    n_parameters: int
    final_step: int
    tokens_per_step: float = np.nan
    schedule: Schedule | ScheduleTable | None = None
    rates: np.ndarray | None = None
    plan: str = ""
    warmup_steps: float | None = None
    family: str = ""
    seed: int = 0
    repeated: int = 0
    reached: int = 0


def rates_and_plan(facts: Facts, steps: np.ndarray, logged: np.ndarray) -> tuple[np.ndarray, str]:
    """Rates of every step, and where they are known from; without a plan those that were logged, and why there is none."""
    if facts.rates is not None:
        return facts.rates, facts.plan
    rates, plan = plan_of_training(facts.final_step, steps, logged, facts.schedule, facts.warmup_steps)
    if not len(rates):
        so_far = rates_of_log(steps, logged, facts.warmup_steps)
        rates = np.empty(0) if isinstance(so_far, str) else so_far
    return rates, plan


def newest_metric(
    metrics: Mapping[str, Series], steps: np.ndarray, losses: np.ndarray
) -> tuple[str, tuple[np.ndarray, np.ndarray]]:
    """The metric to forecast, and its finite values: one that was measured in the second half of what was logged.

    steps, losses (rows,): the log. It stands for itself where no metric was measured that late.
    """
    seen = steps[np.isfinite(losses)]
    for name in (VALIDATION_LOSS, TRAINING_LOSS):
        measured = _finite(metrics.get(name))
        if len(measured[0]) and measured[0][-1] >= 0.5 * seen.max(initial=0):
            return name, measured
    return TRAINING_LOSS, (seen, losses[np.isfinite(losses)])


def _finite(series: Series | None) -> tuple[np.ndarray, np.ndarray]:
    steps, values = in_order(series if series is not None else ((), ()))
    return steps[np.isfinite(values)], values[np.isfinite(values)]


def notes_on(repeated: int, metric: str, validation: Series | None) -> tuple[str, ...]:
    """What a reader has to know of a log, a clause each."""
    clauses = []
    at, _ = _finite(validation)
    if metric != VALIDATION_LOSS and len(at):
        clauses.append(
            f"the validation loss was not read: its last is of step {at[-1]:,.0f}, in the first half of the log"
        )
    elif metric != VALIDATION_LOSS and validation is not None and np.size(validation[0]):
        clauses.append("the validation loss was not read: none of it is a number")
    if repeated:
        clauses.append(on_repeated(repeated))
    return tuple(clauses)


def on_repeated(count: int) -> str:
    """What becomes of steps that a log has more than once."""
    return f"of {count:,} steps that were logged again, as after a restart, the last value counts"


def is_warmup_assumed(facts: Facts, rates: np.ndarray, logged: np.ndarray) -> bool:
    """Whether there may be a warm-up that nobody told of."""
    is_told = facts.warmup_steps is not None or isinstance(facts.schedule, ScheduleTable)
    return not (is_told or np.isfinite(logged).any() or (len(rates) and np.argmax(rates) > 0))
