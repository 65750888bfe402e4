"""`TopologyCallback`: `TopologyMonitor` in transformers' Trainer."""

from typing import Any

from transformers import TrainerCallback, TrainerState

from toposcale.checkpoints.checkpoint import count_weights
from toposcale.forecasting.logs import trainer_states
from toposcale.io.bin_files import plain_names
from toposcale.monitor.hooks import TrainerHooks, guarded_hook


class TopologyCallback(TrainerHooks, TrainerCallback):
    """Monitor the model of a transformers Trainer.

    There is a snapshot at the start, every `every` steps and at the end, before `load_best_model_at_end` brings back the
    weights of an earlier step. Losses, gradient norms and learning rates come from the log of the Trainer, so let
    `logging_steps` divide `every`. The metric `eval_loss` becomes `validation_loss`, and any other `eval_NAME` that is a
    number becomes `NAME`.

    Parameters
    ----------
    folder, name, **options
        As in `TopologyMonitor`. By default `start`, `final_step` and `tokens_per_step` come from the Trainer.

    Raises
    ------
    UserError, ValueError
        At the start of the training, as in `TopologyMonitor`.

    Examples
    --------
    >>> import tempfile, torch
    >>> from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
    >>> from toposcale.monitor import TopologyCallback
    >>> data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 4
    >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=8, n_positions=8, n_embd=4, n_layer=1, n_head=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     callback = TopologyCallback(folder, "tiny", every=2, when_busy="wait", tensorboard=False)
    ...     arguments = TrainingArguments(folder, max_steps=4, use_cpu=True, disable_tqdm=True, report_to=[])
    ...     _ = Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()  # doctest: +ELLIPSIS
    {...}
    >>> callback.monitor.cost.snapshots
    3
    """

    _tokens_per_step: int | None = None
    _batch_size = 0  # of the training under way

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Open the monitor and take a snapshot of the initial weights."""
        if not state.is_world_process_zero:
            return
        # With auto_find_batch_size a training that ran out of memory begins again with smaller batches.
        batch_size = state.train_batch_size or 0
        is_retry = args.auto_find_batch_size and 0 < batch_size < self._batch_size
        self._batch_size, self._tokens_per_step = batch_size, None
        optimizers = [kwargs["optimizer"]] if kwargs.get("optimizer") else []
        self._open(
            kwargs["model"],
            lambda: kwargs.get("lr_scheduler"),
            optimizers,
            state.global_step,
            state.max_steps,
            is_retry,
        )

    @guarded_hook
    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Count the step, and take a snapshot if one is due."""
        self.monitor.step(kwargs["model"])

    @guarded_hook
    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Record a logged loss."""
        self._write_tokens(state, kwargs.get("model"))
        if logs and "loss" in logs:
            self.monitor.log_loss(
                logs["loss"], gradient_norm=logs.get("grad_norm"), learning_rate=logs.get("learning_rate")
            )

    @guarded_hook
    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Record the metrics of an evaluation."""
        self.monitor.log(**trainer_states.evaluated(metrics or {}))

    @guarded_hook
    def on_epoch_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Take a snapshot of the final weights, if the Trainer will load others before the training ends."""
        is_taken = self.monitor.last_snapshot == self.monitor.last_step
        if args.load_best_model_at_end and control.should_training_stop and not is_taken:
            self.monitor.snapshot(kwargs["model"])

    @guarded_hook
    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Take a snapshot of the final weights and close the monitor."""
        self._batch_size = 0
        self._write_tokens(state, kwargs["model"])
        if args.load_best_model_at_end:  # the weights are those of an earlier step by now
            self.monitor.close()
        else:
            self.monitor.finish(kwargs["model"])

    def _write_tokens(self, state: TrainerState, model: Any) -> None:
        """Record the tokens per step, once the Trainer knows them and unless the user has given them."""
        if "tokens_per_step" in self._options or model is None:
            return
        counts = {name: getattr(state, name, None) for name in ("global_step", "num_input_tokens_seen", "total_flos")}
        shapes = {name: value.shape for name, value in plain_names(dict(model.named_parameters())).items()}
        tokens = trainer_states.tokens_per_step(counts, count_weights(shapes, embeddings=False))
        if tokens is not None and tokens != self._tokens_per_step:
            self._tokens_per_step = tokens
            self.monitor.tell(tokens_per_step=tokens)
