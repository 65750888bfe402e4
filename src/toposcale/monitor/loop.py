"""`TopologyMonitor`: the weight features of a PyTorch model, every k steps of any training loop."""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from toposcale import __version__
from toposcale.checkpoints.matrices import is_buffer, stored_transposed
from toposcale.features.names import VALIDATION_LOSS
from toposcale.features.weights import WeightSettings
from toposcale.homology import subsample_rows
from toposcale.io.errors import UserError
from toposcale.monitor import memory, records, writers
from toposcale.monitor.folder import Folder
from toposcale.monitor.worker import Job, Worker
from toposcale.training.schedules import breakpoints

Number = Tensor | float


@dataclass
class Cost:
    """What monitoring has cost: of `wall` seconds of training, `seconds` were spent in calls of the monitor.

    On a GPU `seconds` includes waiting for work that the training had queued, so there it is an upper bound.
    `background` is what the process in the background took for its snapshots, beside the training.
    """

    seconds: float = 0.0
    wall: float = 0.0
    snapshots: int = 0
    dropped: int = 0
    background: float = 0.0

    @property
    def share(self) -> float:
        """Part of the wall time that was spent in the monitor, 0 to 1."""
        return self.seconds / self.wall if self.wall else 0.0

    def __str__(self) -> str:
        each = self.background / max(1, self.snapshots)
        return (
            f"{self.snapshots} snapshots, {self.dropped} dropped; {self.seconds:.2f} s of {self.wall:.1f} s "
            f"({self.share:.1%}) spent in the monitor, {each:.2f} s a snapshot in the background"
        )


def _on_guard(method: Callable[..., None]) -> Callable[..., None]:
    """A method whose time is counted, and whose errors end the monitoring with one line and nothing else."""

    @wraps(method)
    def guarded(self: TopologyMonitor, *arguments: Any, **named: Any) -> None:
        if not self._active:
            return
        start = time.perf_counter()
        self._begin = start if self._begin is None else self._begin
        try:
            method(self, *arguments, **named)
        except Exception as error:
            self._give_up(" ".join(f"{type(error).__name__}: {error}".split()))
        now = time.perf_counter()
        self.cost.seconds += now - start
        self.cost.wall = now - self._begin

    return guarded


class TopologyMonitor:
    """Copies a model's weights every `every` steps and has the features of the copy computed in the background.

        with TopologyMonitor("topology", "my-gpt", every=100) as monitor:
            for batch in batches:
                ...  # loss, loss.backward(), optimizer.step()
                monitor.step(model, loss)

    `folder`, `name`: where rows land, and of which model they are (see `toposcale.monitor.folder`).
    `settings`: what is computed of a matrix, as `weights:` in the configuration of the workflow.
    `max_rows`: copy that many rows of a matrix at most, the same at every step. None copies all, and the rows are then
    those that the workflow computes of a checkpoint of the same weights.
    `start`: steps that were done before, where a training goes on; rows of later steps are removed, to be made again.
    `final_step`, `tokens_per_step`: where the training will end and what a step costs; `advice` asks for them.
    `when_busy`: "drop" a snapshot that is due while the one before is in work, or "wait" for that one.
    `tensorboard`: True for event files in folder/tensorboard/name, a SummaryWriter of yours, or False.

    Where several processes train one model, the first one monitors. What goes wrong after the start is one line on
    stderr and does not stop the training.
    UserError: the folder has rows of that model already (`overwrite` removes them), it is a file, or it cannot be a name.
    ValueError: a count that is no whole number of at least 1, another word in `when_busy`.
    """

    def __init__(
        self,
        folder: str | Path,
        name: str = "model",
        *,
        every: int = 100,
        settings: WeightSettings | None = None,
        max_rows: int | None = None,
        start: int = 0,
        final_step: int | None = None,
        tokens_per_step: int | None = None,
        when_busy: Literal["drop", "wait"] = "drop",
        tensorboard: bool | writers.ScalarWriter = True,
        overwrite: bool = False,
    ) -> None:
        counts = {"every": every, "max_rows": max_rows, "final_step": final_step, "tokens_per_step": tokens_per_step}
        for what, count in counts.items():
            if count is not None and (count < 1 or count != int(count)):
                raise ValueError(f"{what} must be a whole number of at least 1, got {count}")
        if when_busy not in ("drop", "wait"):
            raise ValueError(f"when_busy must be drop or wait, got {when_busy!r}")
        self.folder = Folder(Path(folder), name)
        self.every, self.max_rows, self.when_busy = every, max_rows, when_busy
        self.settings = settings or WeightSettings()
        self.cost = Cost()
        self.last_step = start
        self.last_snapshot: int | None = None
        self._final_step = final_step
        self._evaluated: set[int] = set()
        self._last_evaluation = start
        self._log = records.Log(self.folder)
        self._worker_log = self.folder.path / "logs" / f"{name}.log"
        self._worker: Worker | None = None
        self._begin: float | None = None
        self._warned: set[str] = set()
        self._writer: writers.ScalarWriter | None = None
        self._own_process = os.getpid()
        self._active = _is_first_process()
        if self._active:
            self._prepare(start, overwrite)
            self.folder.write_facts(final_step=final_step, tokens_per_step=tokens_per_step)
            curves = self.folder.path / "tensorboard" / name
            self._writer = writers.tensorboard_writer(curves) if tensorboard is True else tensorboard or None
            if tensorboard is True and self._writer is None:
                self._say("tensorboard is not installed, so only tables are written (pip install tensorboard)")
            atexit.register(self.close)

    @_on_guard
    def step(
        self,
        model: nn.Module,
        loss: Number | None = None,
        *,
        gradient_norm: Number | None = None,
        learning_rate: float | None = None,
    ) -> None:
        """Call after every update, with the loss of the batch that led to it. A tensor's value is not waited for."""
        self.last_step += 1
        if loss is not None:
            self._log.training(self.last_step, _kept(loss), _kept(gradient_norm), learning_rate)
        self._receive()
        if self.last_step % self.every == 0:
            self._take(model)

    @_on_guard
    def snapshot(self, model: nn.Module) -> None:
        """Take a snapshot now, for instance of the weights before the first step or after the last."""
        self._take(model)

    @_on_guard
    def log(self, **metrics: Number) -> None:
        """Metrics of the weights as they are now, such as validation_loss=2.31, for the metrics table."""
        for name, value in metrics.items():
            self._log.metric(self.last_step, name, _kept(value))
        if VALIDATION_LOSS in metrics:
            self._compare_with_snapshots()

    @_on_guard
    def log_loss(
        self, loss: Number, *, gradient_norm: Number | None = None, learning_rate: float | None = None
    ) -> None:
        """A row of the training log at the last step, where `step` is not given the losses."""
        self._log.training(self.last_step, _kept(loss), _kept(gradient_norm), learning_rate)

    @_on_guard
    def tell(self, **facts: int | None) -> None:
        """Facts for `advice` that were not known at the start: final_step, tokens_per_step."""
        self.folder.write_facts(**facts)

    def close(self) -> None:
        """Wait for the snapshot that is in work, write what is left, and say what it all has cost. Also at exit."""
        if os.getpid() != self._own_process:
            return  # a forked child, of a data loader for instance
        atexit.unregister(self.close)
        if self._active:
            # The wait comes after the training and is not part of what it cost.
            cost, wall = self.cost.seconds, self.cost.wall
            self._finish()
            self.cost.seconds, self.cost.wall = cost, wall
        self._active = False

    def __enter__(self) -> TopologyMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @_on_guard
    def _finish(self) -> None:
        self._receive(timeout=None)
        self._log.write(self.last_step)
        self._show(self.last_step, {"monitor_share_of_time": self.cost.share})
        if "evaluated" in self._warned:
            taken = self._log.snapshots
            self._say(f"{len(self._evaluated & taken)} of {len(taken)} snapshots have a validation loss")
        self._say(str(self.cost))
        if self._worker is not None:
            self._worker.end()

    def _compare_with_snapshots(self) -> None:
        """Say where evaluations and snapshots fall on different steps: such a loss is compared with no feature."""
        between = self.last_step - self._last_evaluation
        at_snapshots = between < 1 or between % self.every == 0 or self.every % between == 0
        self._last_evaluation = self.last_step
        self._evaluated.add(self.last_step)
        if not at_snapshots and self.last_step not in (self.last_snapshot, self._final_step):
            self._say_once(
                "evaluated",
                f"the validation loss of step {self.last_step} is compared with no feature, since that step has no "
                f"snapshot; every ({self.every}) should divide the {between} steps between evaluations",
            )

    def _prepare(self, start: int, overwrite: bool) -> None:
        """Make sure that no row of another training is mixed with those of this one."""
        if start == 0 and not overwrite and self.folder.holds_rows():
            raise UserError(
                f"{self.folder.path} holds rows of {self.folder.model} from an earlier training: choose another folder "
                "or name, set overwrite=True, or set start=STEP if this training continues from that step"
            )
        records.drop_after(self.folder, start if start else -1)
        if start == 0:
            self.folder.facts_file.unlink(missing_ok=True)

    def _take(self, model: nn.Module) -> None:
        """Copy the weights and hand them over. If the snapshot before is in work, wait or drop this one (`when_busy`)."""
        step = self.last_snapshot = self.last_step
        self._log.snapshots.add(step)
        self._receive(timeout=None if self.when_busy == "wait" else 0)
        if self._worker is not None and self._worker.busy:
            self.cost.dropped += 1
            self._say_once(
                "dropped",
                f"the snapshot of step {step} is dropped, because the one before is not finished; take fewer snapshots "
                "(every), fewer rows or layers (max_rows, settings), or set when_busy='wait'",
            )
        else:
            self._hand_over(step, self._matrices(model))
        self._log.write(step)

    def _matrices(self, model: nn.Module) -> dict[str, Tensor]:
        """The matrices that the settings want, by the names that they have in a checkpoint, cut to `max_rows`."""
        named = {plain_name(name): value.detach() for name, value in model.named_parameters()}
        if any(hasattr(value, "full_tensor") for value in named.values()):
            raise UserError("the weights are spread over several processes (FSDP); the monitor needs whole weights")
        self.folder.write_facts(n_parameters=sum(value.numel() for value in named.values()))
        transposed = stored_transposed({name: tuple(value.shape) for name, value in named.items()})
        wanted = {
            name: self._some_rows(name, value.T if name in transposed else value)
            for name, value in named.items()
            if value.ndim == 2 and value.is_floating_point() and not is_buffer(name) and self.settings.wants(name)
        }
        if not wanted:
            raise UserError("there is no matrix to monitor: the settings exclude all of them, or the model has none")
        return wanted

    def _some_rows(self, name: str, matrix: Tensor) -> Tensor:
        if self.max_rows is None or len(matrix) <= self.max_rows:
            return matrix
        seed = (self.settings.seed, self.folder.model, name, "monitor")
        rows = subsample_rows(len(matrix), self.max_rows, seed=seed)
        return matrix.index_select(0, torch.from_numpy(rows).to(matrix.device))

    def _hand_over(self, step: int, matrices: dict[str, Tensor]) -> None:
        slots = memory.lay_out(
            (name, str(value.dtype).removeprefix("torch."), (value.shape[0], value.shape[1]))
            for name, value in matrices.items()
        )
        if self._worker is None or self._worker.slots != slots:
            if self._worker is not None:
                self._worker.let_go()
            settings = {**asdict(self.settings), "max_rows": self.max_rows, "every": self.every}
            metadata = {
                "rule": "monitor",
                "settings": json.dumps(settings, sort_keys=True),
                "versions": json.dumps({"toposcale": __version__, "torch": torch.__version__}),
            }
            self._worker = Worker(Job(self.folder, slots, self.settings, metadata), self._worker_log)
        for slot, value in zip(slots, matrices.values(), strict=True):
            place = torch.frombuffer(self._worker.buffer, dtype=value.dtype, count=value.numel(), offset=slot.offset)
            place.view(value.shape).copy_(value)
        self._worker.submit(step)

    def _receive(self, timeout: float | None = 0) -> None:
        """What became of the snapshot in work, if that is known by now; a `timeout` of None waits for it."""
        if self._worker is None or not self._worker.busy:
            return
        try:
            outcome = self._worker.outcome(timeout)
        except (EOFError, OSError):
            status = self._worker.end()
            self._worker = None
            self._give_up(f"the process in the background ended with status {status}")
            return
        if outcome is None:
            return
        self.cost.background += outcome.seconds
        for warning in outcome.warnings:
            self._say_once(warning, f"step {outcome.step}: {warning}")
        if error := outcome.error:
            self._say_once(error, f"no features of step {outcome.step} ({error}; more in {self._worker_log})")
            return
        self.cost.snapshots += 1
        self._show(outcome.step, outcome.features)

    def _show(self, step: int, values: dict[str, float]) -> None:
        try:
            writers.show(step, values, self._writer)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._say_once("shown", f"a value could not be shown ({reason}); its row is written all the same")

    def _give_up(self, reason: str) -> None:
        self._say(f"{reason}; nothing is monitored from here on, and the training goes on")
        self._active = False
        if self._worker is not None:
            self._worker.let_go()

    def _say_once(self, kind: str, line: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._say(line)

    def _say(self, line: str) -> None:
        print(f"toposcale.monitor: {self.folder.model}: {line}", file=sys.stderr, flush=True)


def _kept(value: Any) -> Any:
    """A copy of a tensor's value, taken without waiting for it: the training may write over the tensor."""
    return value.detach().clone() if isinstance(value, Tensor) else value


def plain_name(name: str) -> str:
    """The name of a weight without those of what wraps the model (DistributedDataParallel, torch.compile)."""
    return name.replace("_orig_mod.", "").removeprefix("module.")


def plan_of(scheduler: Any, final_step: int) -> dict[str, list[float]] | None:
    """The rates that a scheduler of PyTorch will give, as the fields of `ScheduleTable`.

    None for one that is no function of the step: a scheduler that looks at the loss on the way has no plan.
    """
    functions = getattr(scheduler, "lr_lambdas", None)
    if not functions or final_step < 1:
        return None
    rates = np.array([scheduler.base_lrs[0] * functions[0](step) for step in range(final_step + 1)])
    if not np.all(np.isfinite(rates)) or rates.min() < 0 or rates.max() <= 0:
        return None
    at = breakpoints(rates)
    return {"at": at.tolist(), "values": rates[at].tolist()}


def _is_first_process() -> bool:
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized() and distributed.get_rank() > 0)
