"""The process in the background: it waits for snapshots in shared memory and writes their rows.

It is a Python of its own that is handed a channel to the training and the shared memory as open files: no process
that uses a GPU is forked, and the user's program is not imported again. It ends when the training does.
"""

import mmap
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import NamedTuple

from toposcale.features import weights
from toposcale.monitor import memory, records
from toposcale.monitor.folder import Folder

_SOURCES = Path(__file__).resolve().parents[2]
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Job(NamedTuple):
    """What to make of the snapshots; it does not change."""

    folder: Folder
    slots: tuple[memory.Slot, ...]
    settings: weights.WeightSettings
    metadata: Mapping[str, str]


class Outcome(NamedTuple):
    """What became of a snapshot: the whole model's features, or why there are none."""

    step: int
    seconds: float
    features: weights.Features
    warnings: tuple[str, ...] = ()
    error: str = ""


class Worker:
    """The training's end: `buffer` to write a snapshot to, `submit` to hand it over, `outcome` to hear what became of it.

    One snapshot at a time: from `submit` until its outcome the buffer, of which `slots` are parts, belongs to the process.
    """

    def __init__(self, job: Job, log: Path) -> None:
        self.slots = job.slots
        self.busy = False
        file = memory.nameless_file(job.slots[-1].offset + job.slots[-1].n_bytes)
        self.buffer = memoryview(mmap.mmap(file.fileno(), 0))
        self._channel, theirs = Pipe()
        log.parent.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(filter(None, [str(_SOURCES), os.environ.get("PYTHONPATH")]))
        descriptors = theirs.fileno(), file.fileno()
        with file, theirs, log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {__name__} import main; main()", *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=os.environ | _ONE_THREAD | {"PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is for the training, which then tells this process to end
            )
        self._channel.send(job)

    def submit(self, step: int) -> None:
        """Hand over the snapshot of a step that stands in the buffer. OSError: the process is gone."""
        self._channel.send(step)
        self.busy = True

    def outcome(self, timeout: float | None = 0) -> Outcome | None:
        """What became of the snapshot in work; None while that is open. EOFError, OSError: the process is gone."""
        if not self.busy or not self._channel.poll(timeout):
            return None
        outcome = self._channel.recv()
        self.busy = False
        return outcome

    def let_go(self) -> None:
        """Let the process end by itself, once the snapshot that may be in work is written."""
        self._channel.close()

    def end(self) -> int:
        """Let the process end, if it has not already, and return its exit status."""
        self.let_go()
        return self._process.wait()


def main() -> None:
    """Work on snapshots until the training closes its end, behind everything else that wants the processor."""
    os.nice(19)
    channel = Connection(int(sys.argv[1]))
    buffer = memoryview(mmap.mmap(int(sys.argv[2]), 0, access=mmap.ACCESS_READ))
    with suppress(EOFError, ConnectionError):
        job: Job = channel.recv()
        while True:
            channel.send(perform(job, channel.recv(), buffer))


def perform(job: Job, step: int, buffer: memoryview) -> Outcome:
    """Rows of one snapshot; an error is a line of its outcome, its traceback is printed, and the next snapshot is tried."""
    start = time.perf_counter()
    features: weights.Features = {}
    error = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            matrices = memory.matrices(buffer, job.slots)
            features = records.write_snapshot(job.folder, step, matrices, job.settings, job.metadata)
        except Exception as problem:
            traceback.print_exc()
            error = " ".join(f"{type(problem).__name__}: {problem}".split())
    messages = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    return Outcome(step, time.perf_counter() - start, features, messages, error)
