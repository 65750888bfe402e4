"""`TopologyCallback`: `TopologyMonitor` inside transformers' Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from toposcale.monitor.loop import TopologyMonitor
from toposcale.training.schedules import knots

# What the Trainer measures of itself, not of the model.
_OF_THE_TRAINER = ("_runtime", "_per_second", "_time")


class TopologyCallback(TrainerCallback):
    """Monitors the model of a Trainer: `Trainer(..., callbacks=[TopologyCallback("topology", "my-gpt", every=100)])`.

    The arguments are those of `TopologyMonitor`; `start` and `final_step` come from the Trainer, which also knows
    the tokens of a step where its argument include_num_input_tokens_seen is set. There is a snapshot at the start, every
    `every` steps and at the end. Losses, gradient norms and learning rates are rows of the training log where the
    Trainer logs them, so let logging_steps divide `every`. `eval_loss` becomes the metric validation_loss, any other
    `eval_NAME` that is a number the metric NAME.
    """

    def __init__(self, folder: str | Path, name: str = "model", **options: Any) -> None:
        self._arguments = (folder, name)
        self._options = options
        self.monitor: TopologyMonitor | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the monitor and take the snapshot of the first weights."""
        if not state.is_world_process_zero:
            return
        known = {"start": state.global_step, "final_step": state.max_steps}
        self.monitor = TopologyMonitor(*self._arguments, **(known | self._options))
        if (plan := _plan(kwargs.get("lr_scheduler"), state.max_steps)) is not None:
            self.monitor.folder.write_facts(schedule=plan)
        if state.global_step == 0:
            self.monitor.snapshot(kwargs["model"])

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Count the step, and take a snapshot where one is due."""
        if self.monitor is not None:
            self.monitor.step(kwargs["model"])

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep a logged loss for the training log."""
        if self.monitor is not None and logs and "loss" in logs:
            self.monitor.log_loss(
                logs["loss"], gradient_norm=logs.get("grad_norm"), learning_rate=logs.get("learning_rate")
            )

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep what was evaluated for the metrics table."""
        if self.monitor is None:
            return
        named = {
            name.removeprefix("eval_"): value
            for name, value in (metrics or {}).items()
            if name.startswith("eval_")
            and not name.endswith(_OF_THE_TRAINER)
            and isinstance(value, int | float)
        }
        if "loss" in named:
            named["validation_loss"] = named.pop("loss")
        self.monitor.log(**named)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the snapshot of the last weights, wait for the work in the background, and say what it cost."""
        if self.monitor is None:
            return
        if state.num_input_tokens_seen and state.global_step:
            self.monitor.tell(tokens_per_step=round(state.num_input_tokens_seen / state.global_step))
        if self.monitor.last_snapshot != self.monitor.last_step:
            self.monitor.snapshot(kwargs["model"])
        self.monitor.close()


def _plan(scheduler: Any, final_step: int) -> dict[str, list[float]] | None:
    """The rates that a Trainer's scheduler will give, as the fields of `ScheduleTable`; None for one that is no function.

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
