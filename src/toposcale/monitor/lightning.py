"""`LightningTopologyCallback`: `TopologyMonitor` inside a Trainer of Lightning."""

import math
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from toposcale.features.names import VALIDATION_LOSS
from toposcale.monitor.loop import TopologyMonitor, plan_of

_EVALUATED = re.compile(r"(?:val|valid|validation|eval)[_/.](.+)")


def _callback_class() -> Any:
    # Lightning has two names, whose classes do not mix: the one that the training has imported counts.
    for name in sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: name not in sys.modules):
        try:
            return import_module(name).Callback
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError("the callback needs Lightning: pip install lightning")


class LightningTopologyCallback(_callback_class()):  # type: ignore[misc]
    """Monitors a module of Lightning: `Trainer(callbacks=[LightningTopologyCallback("topology", "my-gpt", every=100)])`.

    The arguments are those of `TopologyMonitor`; `start` and `final_step` come from the Trainer, and the plan of the
    learning rate from its scheduler, if that is a LambdaLR by steps. A step is an update, whatever the number of batches
    in it; there is a snapshot at the start, every `every` steps and at the end. The loss is what training_step returns,
    its mean over the batches of the update. What is logged in the validation as val_loss (or valid, validation, eval,
    with _, / or . after it) is the metric validation_loss, any other val_NAME the metric NAME.
    """

    def __init__(self, folder: str | Path, name: str = "model", **options: Any) -> None:
        self._arguments = (folder, name)
        self._options = options
        self._losses: list[Tensor] = []
        self.monitor: TopologyMonitor | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the monitor and take the snapshot of the first weights."""
        if not trainer.is_global_zero:
            return
        expected = float(trainer.estimated_stepping_batches)
        final_step = int(expected) if math.isfinite(expected) and expected > 0 else None
        steps = {"start": trainer.global_step, "final_step": final_step}
        self.monitor = TopologyMonitor(*self._arguments, **(steps | self._options))
        by_steps = [plan.scheduler for plan in trainer.lr_scheduler_configs if plan.interval == "step"]
        if by_steps and final_step:
            self.monitor.folder.write_facts(schedule=plan_of(by_steps[0], final_step))
        if trainer.global_step == 0:
            self.monitor.snapshot(pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the step if this batch ended one, and take a snapshot where one is due."""
        if self.monitor is None:
            return
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if isinstance(loss, Tensor):
            # Lightning divides the loss of a batch by the number of batches of an update.
            self._losses.append(loss.detach() * trainer.accumulate_grad_batches)
        if trainer.global_step > self.monitor.last_step:
            mean = sum(self._losses) / len(self._losses) if self._losses else None
            rates = [group["lr"] for optimiser in trainer.optimizers for group in optimiser.param_groups]
            self.monitor.step(pl_module, mean, learning_rate=float(rates[0]) if rates else None)
            self._losses.clear()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Keep what was evaluated for the metrics table."""
        if self.monitor is None or trainer.sanity_checking:
            return
        logged = trainer.callback_metrics.items()
        metrics = {found[1]: value for name, value in logged if (found := _EVALUATED.fullmatch(name))}
        if "loss" in metrics:
            metrics[VALIDATION_LOSS] = metrics.pop("loss")
        self.monitor.log(**metrics)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Take the snapshot of the last weights, wait for the work in the background, and say what it cost."""
        if self.monitor is None:
            return
        if self.monitor.last_snapshot != self.monitor.last_step:
            self.monitor.snapshot(pl_module)
        self.monitor.close()
