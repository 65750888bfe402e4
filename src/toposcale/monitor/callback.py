"""`TopologyCallback`: `TopologyMonitor` inside transformers' Trainer."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerState

from toposcale.checkpoints.matrices import count_weights
from toposcale.io import loss_curves
from toposcale.monitor.loop import TopologyMonitor, plain_name, plan_of


class TopologyCallback(TrainerCallback):
    """Monitors the model of a Trainer: `Trainer(..., callbacks=[TopologyCallback("topology", "my-gpt", every=100)])`.

    The arguments are those of `TopologyMonitor`; `start`, `final_step` and the tokens of a step come from the Trainer, as
    from its trainer_state.json. There is a snapshot at the start, every `every` steps and at the end. Losses, gradient
    norms and learning rates are rows of the training log where the Trainer logs them, so let logging_steps divide `every`.
    `eval_loss` becomes the metric validation_loss, any other `eval_NAME` that is a number the metric NAME.
    """

    def __init__(self, folder: str | Path, name: str = "model", **options: Any) -> None:
        self._arguments = (folder, name)
        self._options = options
        self._tokens_per_step: int | None = None
        self.monitor: TopologyMonitor | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Open the monitor and take the snapshot of the first weights."""
        if not state.is_world_process_zero:
            return
        steps = {"start": state.global_step, "final_step": state.max_steps}
        self.monitor = TopologyMonitor(*self._arguments, **(steps | self._options))
        self.monitor.folder.write_facts(schedule=plan_of(kwargs.get("lr_scheduler"), state.max_steps))
        if state.global_step == 0:
            self.monitor.snapshot(kwargs["model"])

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Count the step, and take a snapshot where one is due."""
        if self.monitor is not None:
            self.monitor.step(kwargs["model"])

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Keep a logged loss for the training log."""
        if self.monitor is None:
            return
        self._write_tokens(state, kwargs.get("model"))
        if logs and "loss" in logs:
            self.monitor.log_loss(
                logs["loss"], gradient_norm=logs.get("grad_norm"), learning_rate=logs.get("learning_rate")
            )

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Keep what was evaluated for the metrics table."""
        if self.monitor is not None:
            self.monitor.log(**loss_curves.evaluated(metrics or {}))

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Take the snapshot of the last weights, wait for the work in the background, and say what it cost."""
        if self.monitor is None:
            return
        self._write_tokens(state, kwargs["model"])
        if self.monitor.last_snapshot != self.monitor.last_step:
            self.monitor.snapshot(kwargs["model"])
        self.monitor.close()

    def _write_tokens(self, state: TrainerState, model: Any) -> None:
        """The tokens of a step, where the Trainer knows them by now and the user has not said them."""
        if self.monitor is None or "tokens_per_step" in self._options or model is None:
            return
        counts = {name: getattr(state, name, None) for name in ("global_step", "num_input_tokens_seen", "total_flos")}
        shapes = {plain_name(name): value.shape for name, value in model.named_parameters()}
        tokens = loss_curves.tokens_per_step(counts, count_weights(shapes, embeddings=False))
        if tokens is not None and tokens != self._tokens_per_step:
            self._tokens_per_step = tokens
            self.monitor.tell(tokens_per_step=tokens)
