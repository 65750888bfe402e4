"""`TopologyMonitor`: weight features of a PyTorch model, every k steps of any training loop."""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from toposcale import __version__
from toposcale.features.weights import WeightSettings
from toposcale.forecasting.runs.metrics import VALIDATION_LOSS
from toposcale.io.errors import UserError, one_line, reason_of
from toposcale.monitor import records, writers
from toposcale.monitor.alerts import PROGRESS, Alert, AlertKind, Watch
from toposcale.monitor.arguments import is_first_process, whole_number
from toposcale.monitor.cost import Cost
from toposcale.monitor.folder import Folder
from toposcale.monitor.locks import Locks, lock
from toposcale.monitor.monitored_weights import MonitoredWeights, monitored_weights
from toposcale.monitor.worker import Job, Snapshot, Worker, lay_out

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Number = Tensor | float


def _guarded(method: Callable[..., None]) -> Callable[..., None]:
    """Decorate a method of the monitor: count its time, and let an error end the monitoring and nothing else."""

    @wraps(method)
    def guarded(self: TopologyMonitor, *arguments: Any, **named: Any) -> None:
        if not self._active:
            return
        start = time.perf_counter()
        self._begin = start if self._begin is None else self._begin
        with self.guard():
            method(self, *arguments, **named)
        now = time.perf_counter()
        self.cost.seconds += now - start
        self.cost.wall = now - self._begin

    return guarded


class TopologyMonitor(AbstractContextManager["TopologyMonitor"]):
    """Monitor the weights of a PyTorch model during its training.

    Every `every` steps the weights are copied, and a background process computes the features of the copy. Where several
    processes train one model, the first one monitors: create the monitor after ``torch.distributed`` is initialised.
    After the start an error is one line on stderr, and does not stop the training.

    Parameters
    ----------
    folder : str or Path
        Folder of the rows. Several models may share it.
    name : str, default="model"
        Name of the model in the tables: up to 64 letters, digits, dots, underscores and hyphens.
    every : int, default=100
        Number of steps between snapshots.
    settings : WeightSettings, optional
        Features to compute, as under `weights` in the configuration of the workflow.
    max_rows : int, optional
        Copy at most so many rows of a matrix, the same at every step. By default all rows are copied, and the features
        are those that the workflow computes from a checkpoint of the same weights.
    start : int, default=0
        Number of steps done before, if this training continues another one. Rows of later steps are removed.
    final_step, tokens_per_step : int, optional
        Last step of the training, and tokens per step. Forecasts and advice need them.
    when_busy : {"drop", "wait"}, default="drop"
        Whether to drop a snapshot that falls due before the last one is finished, or to wait for that one.
    tensorboard : bool or SummaryWriter, default=True
        Write event files to ``folder/tensorboard/name``, or add scalars to the given writer.
    overwrite : bool, default=False
        Remove the rows of an earlier training of the same name.
    timeout : float, default=600
        Seconds that `close` and ``when_busy="wait"`` wait for a snapshot before the background process is killed.
    on_alert : callable, optional
        Function of an `Alert` (kind, step, message), called in the training process when the loss is not a number, does
        not come back from a spike, or leaves the track of three finished sizes in the folder. The losses are read every
        `every` steps. Each alert is also a line on stderr; an exception of the function is one line, too.

    Attributes
    ----------
    cost : Cost
        Overhead so far, in seconds and snapshots.

    Raises
    ------
    UserError
        If the folder has rows of that model, another monitor writes them, it is a file, or the name is not valid.
    ValueError
        If a count is not an integer of at least 1 (`start`: 0), `timeout` is not in (0, 1e6], or `when_busy` is neither of
        the two.
    TypeError
        If `settings` or `on_alert` is something else.

    Examples
    --------
    >>> import tempfile, torch
    >>> from toposcale.monitor import TopologyMonitor
    >>> model = torch.nn.Linear(4, 3)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> folder = tempfile.TemporaryDirectory()
    >>> with TopologyMonitor(folder.name, "tiny", every=2, when_busy="wait", tensorboard=False) as monitor:
    ...     for _ in range(4):
    ...         loss = model(torch.ones(4)).square().mean()
    ...         loss.backward()
    ...         optimizer.step()
    ...         monitor.step(model, loss, learning_rate=0.1)
    >>> monitor.cost.snapshots
    2
    >>> folder.cleanup()
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
        tensorboard: bool | SummaryWriter = True,
        overwrite: bool = False,
        timeout: float = 600.0,
        on_alert: Callable[[Alert], object] | None = None,
    ) -> None:
        every, start = whole_number("every", every), whole_number("start", start, least=0)
        optional = {"max_rows": max_rows, "final_step": final_step, "tokens_per_step": tokens_per_step}
        max_rows, final_step, tokens_per_step = (
            None if count is None else whole_number(argument, count) for argument, count in optional.items()
        )
        if when_busy not in ("drop", "wait"):
            raise ValueError(f"when_busy must be drop or wait, got {when_busy!r}")
        if not 0 < timeout <= 1e6:
            raise ValueError(f"timeout must be more than 0 and at most 1e6 seconds, got {timeout}")
        if settings is not None and not isinstance(settings, WeightSettings):
            raise TypeError(f"settings must be a WeightSettings, got {settings!r}")
        if on_alert is not None and not callable(on_alert):
            raise TypeError(f"on_alert must be a function of an Alert, got {on_alert!r}")
        self.folder = Folder(Path(folder).absolute(), name)  # the training may change its working directory
        self.every, self.max_rows, self.when_busy, self.timeout = every, max_rows, when_busy, timeout
        self.settings = settings or WeightSettings()
        self.cost = Cost()
        self.last_step = start
        self.last_snapshot: int | None = None
        self._final_step = final_step
        self._evaluated: set[int] = set()
        self._last_evaluation = start
        self._log = records.Log(self.folder)
        self._watch, self._on_alert = Watch(), on_alert
        self._next_forecast = 0.0
        self._worker_log = self.folder.path / "logs" / f"{name}.log"
        self._worker: Worker | None = None
        self._finished_at_loss: int | None = None  # number of snapshots when a background process was lost
        self._begin: float | None = None
        self._warned: set[str] = set()
        self._writer: SummaryWriter | None = None
        self._own_process = os.getpid()
        self._locks: Locks | None = None
        self._active = is_first_process()
        if self._active:
            self._locks = lock(self.folder, timeout, self._say)
            if start == 0 and not overwrite and self.folder.holds_rows():
                self._release()
                raise UserError(
                    f"{self.folder.path} holds rows of {name} from an earlier training: choose another folder or name, "
                    "set overwrite=True, or set start=STEP if this training continues from that step"
                )
            with self.guard():
                self._prepare(start, tensorboard, final_step=final_step, tokens_per_step=tokens_per_step)
            atexit.register(self.close)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Let an error inside the block end the monitoring with one line, and nothing else."""
        try:
            yield
        except Exception as error:
            self._give_up(reason_of(error))

    @_guarded
    def step(
        self,
        model: nn.Module,
        loss: Number | None = None,
        *,
        gradient_norm: Number | None = None,
        learning_rate: Number | None = None,
    ) -> None:
        """Count a step; call it after every update.

        Parameters
        ----------
        model : torch.nn.Module
            The model, or what wraps it: the names of wrappers are left out.
        loss, gradient_norm : Tensor or float, optional
            Loss, in nats per token, and gradient norm of the batch. The values of tensors are not waited for.
        learning_rate : Tensor or float, optional
            Learning rate of the update.
        """
        self.last_step += 1
        if loss is not None:
            self._log.training(self.last_step, loss, gradient_norm, learning_rate)
        self._receive()
        if self.last_step % self.every == 0:
            self._take(model)

    @_guarded
    def snapshot(self, model: nn.Module) -> None:
        """Take a snapshot now, for instance of the weights before the first step or after the last."""
        self._take(model)

    @_guarded
    def log(self, **metrics: Number) -> None:
        """Record metrics of the weights as they are now, for instance ``validation_loss=2.31``."""
        for name, value in metrics.items():
            self._log.metric(self.last_step, name, value)
        if self.last_snapshot == self.last_step:  # from which a training that is killed may go on
            self._write_log()
        if VALIDATION_LOSS in metrics:
            self._compare_with_snapshots()

    @_guarded
    def log_loss(
        self, loss: Number, *, gradient_norm: Number | None = None, learning_rate: Number | None = None
    ) -> None:
        """Record the loss of the last step, where `step` was not given it; arguments as there."""
        self._log.training(self.last_step, loss, gradient_norm, learning_rate)
        if self.last_snapshot == self.last_step:  # from which a training that is killed may go on
            self._write_log()

    @_guarded
    def tell(self, **facts: Any) -> None:
        """Record facts that were not known at the start: final_step, tokens_per_step, schedule, optimizer."""
        self.folder.write_facts(**facts)

    def finish(self, model: nn.Module) -> None:
        """Take a snapshot of the final weights, unless one was taken at the last step, and close the monitor."""
        if self._active and (self._worker is None or self._worker.step != self.last_step):
            with self.guard():
                self._receive(self.timeout)  # close() would wait too, and this one must not be dropped for it
            self.snapshot(model)
        self.close()

    def close(self) -> None:
        """Wait for the snapshot in work, at most `timeout` seconds; write what is left and print the cost. Also at exit."""
        if os.getpid() != self._own_process:
            return  # a forked child, of a data loader for instance
        atexit.unregister(self.close)
        if self._active:
            with self.guard():  # its time is not counted: the wait comes after the training
                self._receive(self.timeout)
                self._write_log()
                self._show(self.last_step, {"monitor_share_of_time": self.cost.share})
                if "evaluated" in self._warned:
                    taken = self._log.snapshots
                    self._say(f"{len(self._evaluated & taken)} of {len(taken)} snapshots have a validation loss")
                self._say(str(self.cost))
                if self._worker is not None:
                    self._worker.end()
        self._active = False
        self._release()

    def __exit__(self, *_: object) -> None:
        """Close the monitor."""
        self.close()

    def _release(self) -> None:
        if self._locks is not None:
            self._locks.close()

    def _compare_with_snapshots(self) -> None:
        """Warn once if evaluations and snapshots fall on different steps: such a loss is compared with no feature."""
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

    def _prepare(self, start: int, tensorboard: bool | SummaryWriter, **facts: int | None) -> None:
        """Remove the rows of another training, so that none is mixed with those of this one, and open the writer."""
        last_kept = start or -1
        records.drop_after(self.folder, last_kept)
        if start == 0:
            self.folder.facts_file.unlink(missing_ok=True)
        self.folder.write_facts(**facts)
        curves = self.folder.path / "tensorboard" / self.folder.model
        self._writer = writers.tensorboard_writer(curves, last_kept + 1) if tensorboard is True else tensorboard or None
        if tensorboard is True and self._writer is None:
            self._say("tensorboard is not installed, so only tables are written (pip install tensorboard)")

    def _take(self, model: nn.Module) -> None:
        """Copy the weights and hand them over. If the snapshot before is in work, wait or drop this one (`when_busy`)."""
        self._check_handles()
        step = self.last_snapshot = self.last_step
        self._log.snapshots.add(step)
        self._write_log()  # before the snapshot: its forecast reads the rows
        self._receive(self.timeout if self.when_busy == "wait" else 0)
        if not self._active:
            return
        if self._worker is not None and self._worker.busy:
            self.cost.dropped += 1
            self._say_once(
                "dropped",
                f"the snapshot of step {step} is dropped, because the one before is not finished; take fewer snapshots "
                "(every), fewer rows or layers (max_rows, settings), or set when_busy='wait'",
            )
        else:
            self._hand_over(step, self._chosen(model))

    def _write_log(self) -> None:
        """Write the rows that are kept, and report the alerts that begin in them."""
        for step, loss in self._log.write(self.last_step).items():
            self._alert(self._watch.add(step, loss))

    def _alert(self, alerts: Sequence[Alert]) -> None:
        """Print alerts and call the function of the user."""
        for alert in alerts:
            self._say(f"since step {alert.step}: {alert.message}")
            try:
                if self._on_alert is not None:
                    self._on_alert(alert)
            except Exception as error:
                self._say_once("on_alert", f"on_alert failed ({type(error).__name__}: {error})")

    def _chosen(self, model: nn.Module) -> MonitoredWeights:
        """Choose the weights of a snapshot, and name the weights of the model that are not measured."""
        weights = monitored_weights(model, self.settings, self.max_rows)
        self.folder.write_facts(n_parameters=weights.n_parameters)
        for sentence in weights.left_out:
            self._say_once(sentence, sentence)
        if not weights.matrices:
            raise UserError("there is no matrix to monitor: the settings exclude all of them, or the model has none")
        return weights

    def _hand_over(self, step: int, weights: MonitoredWeights) -> None:
        """Copy the weights where the background process reads them; start one that knows their shapes if there is none."""
        slots = lay_out(
            (name, str(value.dtype).removeprefix("torch."), (value.shape[0], value.shape[1]))
            for name, value in weights.matrices.items()
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
            self._worker = Worker(Job(self.folder, slots, self.settings, metadata), self._worker_log, self._locks)
        for slot, value in zip(slots, weights.matrices.values(), strict=True):
            copy = torch.frombuffer(self._worker.buffer, dtype=value.dtype, count=value.numel(), offset=slot.offset)
            copy.view(value.shape).copy_(value)
        self._worker.submit(Snapshot(step, weights.largest_elsewhere, forecast=step >= self._next_forecast))
        self._next_forecast = max(self._next_forecast, PROGRESS * step)

    def _receive(self, timeout: float = 0) -> None:
        """Take the outcome of the snapshot in work, if it comes within `timeout` seconds."""
        if self._worker is None or not self._worker.busy:
            return
        self._check_handles()
        try:
            outcome = self._worker.outcome(timeout)
        except (EOFError, OSError):
            self._lose(self._worker, f"the background process ended with status {self._worker.end()}")
            return
        if outcome is None:
            if timeout:
                self._worker.end()
                self._lose(self._worker, f"the background process took more than {timeout:g} s and was killed")
            return
        self.cost.background += outcome.seconds
        for warning in outcome.warnings:
            self._say_once(warning, f"step {outcome.step}: {warning}")
        self._alert(
            self._watch.begun(outcome.outlook.alerts, *([AlertKind.OFF_TRACK] if outcome.outlook.curves else []))
        )
        if error := outcome.error:
            self._say_once(error, f"no features of step {outcome.step} ({error}; more in {self._worker_log})")
            return
        self.cost.snapshots += 1
        self._show(outcome.step, {**outcome.features, **outcome.outlook.curves})

    def _check_handles(self) -> None:
        """Raise UserError if the program has closed a file of the monitor."""
        if not all(
            handle.is_open for handle in (*(self._locks or ()), *([self._worker.handle] if self._worker else []))
        ):
            raise UserError("the program closed files of the monitor, as a daemon does; create the monitor after that")

    def _lose(self, worker: Worker, reason: str) -> None:
        """Report that a background process is gone; the next snapshot starts another one, unless that gave no result."""
        self._worker = None
        self.cost.dropped += 1
        if self._finished_at_loss == self.cost.snapshots:
            self._give_up(f"{reason} once more")
            return
        self._finished_at_loss = self.cost.snapshots
        self._say(f"{reason}; there are no features of step {worker.step}")

    def _show(self, step: int, values: dict[str, float]) -> None:
        try:
            writers.show(step, values, self._writer)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._say_once("shown", f"a value could not be shown ({reason}); its row is written all the same")

    def _give_up(self, reason: str) -> None:
        if not self._active:
            return
        self._active = False
        self._say(f"{reason}; nothing is monitored from here on, and the training goes on")
        if self._worker is not None:
            self._worker.let_go()

    def _say_once(self, kind: str, line: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._say(line)

    def _say(self, line: str) -> None:
        with suppress(Exception):  # a full disk, a closed pipe or file behind stderr
            print(f"toposcale.monitor: {self.folder.model}: {one_line(line)}", file=sys.stderr, flush=True)
