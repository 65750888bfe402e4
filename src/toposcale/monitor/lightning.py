"""`LightningTopologyCallback`: `TopologyMonitor` in a Trainer of Lightning."""

import math
import re
import sys
from importlib import import_module
from typing import Any

from torch import Tensor

from toposcale.forecasting.runs.metrics import VALIDATION_LOSS
from toposcale.monitor.hooks import TrainerHooks, guarded_hook

_EVALUATED = re.compile(r"(?:val|valid|validation|eval)[_/.](.+)")


def _callback_class() -> Any:
    # Lightning has two package names, whose classes do not mix: take the one that the training has imported.
    for name in sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: name not in sys.modules):
        try:
            return import_module(name).Callback
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError("No module named 'lightning'", name="lightning")


class LightningTopologyCallback(TrainerHooks, _callback_class()):  # type: ignore[misc]
    """Monitor the module of a Lightning Trainer.

    The steps are those of `trainer.global_step`: a step is an update, whatever the number of batches in it, and each of
    several optimizers counts its own. There is a snapshot at the start, every `every` steps and at the end. The loss is
    what `training_step` returns, averaged over the batches of the update. What is logged in the validation as `val_loss`
    (or with valid, validation or eval, and with _, / or . after it) becomes the metric `validation_loss`, and any other
    `val_NAME` becomes `NAME`. The learning-rate schedule comes from a LambdaLR by steps.

    Parameters
    ----------
    folder, name, **options
        As in `TopologyMonitor`. By default `start` and `final_step` come from the Trainer. With `max_epochs`, the last step
        is unknown in manual optimization, and where the number of batches per update changes.

    Raises
    ------
    UserError, ValueError
        At the start of the training, as in `TopologyMonitor`.

    Examples
    --------
    >>> import tempfile, lightning.pytorch as lightning
    >>> from lightning.pytorch.demos.boring_classes import BoringModel
    >>> from toposcale.monitor import LightningTopologyCallback
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     callback = LightningTopologyCallback(folder, "tiny", every=2, when_busy="wait", tensorboard=False)
    ...     quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    ...     trainer = lightning.Trainer(accelerator="cpu", max_steps=4, callbacks=[callback], **quiet)
    ...     trainer.fit(BoringModel())
    >>> callback.monitor.cost.snapshots
    3
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the monitor and take a snapshot of the initial weights."""
        if not trainer.is_global_zero:
            return
        self._losses: list[Tensor] = []
        self._open(
            pl_module,
            lambda: _scheduler_by_steps(trainer),
            trainer.optimizers,
            trainer.global_step,
            _final_step(trainer),
        )
        # Steps of an earlier training that Lightning did not resume.
        self._done_before = self.monitor.last_step - trainer.global_step

    @guarded_hook
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the step if this batch ended one, and take a snapshot if one is due."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if isinstance(loss, Tensor):
            # Lightning divides the loss of a batch by the number of batches of an update. A sum in bfloat16 loses digits.
            self._losses.append(loss.detach().float() * trainer.accumulate_grad_batches)
        before, now = self.monitor.last_step, self._done_before + trainer.global_step
        if now > before:
            mean = sum(self._losses) / len(self._losses) if self._losses else None
            rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
            self.monitor.last_step = now - 1  # each of several optimizers may have made an update
            self.monitor.step(pl_module, mean, learning_rate=float(rates[0]) if rates else None)
            if now // self.monitor.every > before // self.monitor.every and self.monitor.last_snapshot != now:
                self.monitor.snapshot(pl_module)
            self._losses.clear()

    @guarded_hook
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Remember what was logged before this evaluation."""
        self._logged_before = dict(trainer.callback_metrics)

    @guarded_hook
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Record the metrics of an evaluation."""
        if trainer.sanity_checking:
            return
        # Lightning keeps the value of an earlier evaluation where this one logs none.
        earlier = self._logged_before
        logged = {name: value for name, value in trainer.callback_metrics.items() if value is not earlier.get(name)}
        metrics = {match[1]: value for name, value in logged.items() if (match := _EVALUATED.fullmatch(name))}
        if "loss" in metrics:
            metrics[VALIDATION_LOSS] = metrics.pop("loss")
        self.monitor.log(**metrics)

    @guarded_hook
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Take a snapshot of the final weights and close the monitor."""
        self.monitor.finish(pl_module)

    @guarded_hook
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Write what was measured and close the monitor: a notebook goes on, and may start another training."""
        self.monitor.close()


def _final_step(trainer: Any) -> int | None:
    """Return the last step of the training; None if it is not known."""
    # estimated_stepping_batches assumes one update per batch in manual optimization, and a constant number of batches per
    # update.
    varies = any(hasattr(callback, "going_to_accumulate_grad_batches") for callback in trainer.callbacks)
    if trainer.lightning_module.automatic_optimization and not varies:
        expected = float(trainer.estimated_stepping_batches)
    else:
        expected = trainer.max_steps if trainer.max_epochs == -1 else math.inf
    return int(expected) if math.isfinite(expected) and expected > 0 else None


def _scheduler_by_steps(trainer: Any) -> Any:
    """Return the first scheduler that changes the learning rate every step; None if there is none."""
    each_step = (each for each in trainer.lr_scheduler_configs if each.interval == "step" and each.frequency == 1)
    return next((each.scheduler for each in each_step), None)
