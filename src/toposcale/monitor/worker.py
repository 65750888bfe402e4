"""Background process: wait for snapshots in shared memory and write their rows.

It is a Python interpreter of its own that inherits a channel to the training and the shared memory as open files: no
process that uses a GPU is forked, and the user's program is not imported again. It ends when the training does.
"""

import math
import mmap
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from toposcale.features import weights
from toposcale.features.weight_changes import relative_changes
from toposcale.io.errors import reason_of
from toposcale.io.tensor_files import exact
from toposcale.monitor import records
from toposcale.monitor.alerts import Outlook
from toposcale.monitor.folder import Folder
from toposcale.monitor.locks import Handle, Locks

_SOURCES = Path(__file__).resolve().parents[2]
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_ALIGNMENT = 64
_IN_MEMORY = Path("/dev/shm")


class Slot(NamedTuple):
    """A matrix in the buffer: its layer, dtype, shape (n_out, n_in), and offset in bytes."""

    layer: str
    dtype: str
    shape: tuple[int, int]
    offset: int

    @property
    def n_bytes(self) -> int:
        """Size of the matrix in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Job(NamedTuple):
    """Description of the work, the same for all snapshots."""

    folder: Folder
    slots: tuple[Slot, ...]
    settings: weights.WeightSettings
    metadata: Mapping[str, str]


class Snapshot(NamedTuple):
    """A copy of the weights in the buffer."""

    step: int
    largest_elsewhere: float  # largest |weight| of those that were not copied
    forecast: bool = False  # True if a forecast is due


class Outcome(NamedTuple):
    """Result of a snapshot: the features of the whole model, or an error; and the outlook, where it was due."""

    step: int
    seconds: float
    features: weights.Features
    warnings: tuple[str, ...] = ()
    error: str = ""
    outlook: Outlook = Outlook()


def lay_out(matrices: Iterable[tuple[str, str, tuple[int, int]]]) -> tuple[Slot, ...]:
    """Return one slot for each (layer, dtype, shape), aligned, one after the other."""
    slots, offset = [], 0
    for layer, dtype, shape in matrices:
        slot = Slot(layer, dtype, shape, offset)
        slots.append(slot)
        offset += -(-slot.n_bytes // _ALIGNMENT) * _ALIGNMENT
    return tuple(slots)


class Worker:
    """Handle of the background process: write one snapshot at a time to `buffer`, `submit` it, and get its `outcome`."""

    def __init__(self, job: Job, log: Path, locks: Locks | None = None) -> None:
        self.slots = job.slots
        self.busy = False
        self.step = -1
        file = _nameless_file(job.slots[-1].offset + job.slots[-1].n_bytes)
        self.buffer = memoryview(mmap.mmap(file.fileno(), 0))
        self._channel, theirs = Pipe()
        # The process ends when the channel closes, which a forked worker of a data loader would keep open.
        self.handle = Handle(self._channel, self.buffer)
        log.parent.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(filter(None, [str(_SOURCES), os.environ.get("PYTHONPATH")]))
        # The process inherits the lock, too, which another training so gets after its last write.
        descriptors = theirs.fileno(), file.fileno(), *([] if locks is None else [locks.rows.file.fileno()])
        with file, theirs, log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {__name__} import main; main()", *map(str, descriptors[:2])],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=os.environ | _ONE_THREAD | {"PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is for the training, which then tells this process to end
            )
        self._channel.send(job)

    def submit(self, snapshot: Snapshot) -> None:
        """Hand over the snapshot in the buffer. `outcome` notices if the process is gone."""
        self.step, self.busy = snapshot.step, True
        with suppress(OSError):
            self._channel.send(snapshot)

    def outcome(self, timeout: float = 0) -> Outcome | None:
        """Return the outcome of the snapshot in work, None if there is none yet. EOFError, OSError: the process is gone."""
        if not self.busy or not self._channel.poll(timeout):
            return None
        outcome = self._channel.recv()
        self.busy = False
        return outcome

    def let_go(self) -> None:
        """Let the process end by itself, once the snapshot in work is written."""
        self.handle.close()

    def end(self) -> int | None:
        """Let the process end, kill it if it does not within seconds, and return its exit status."""
        self.let_go()
        for seconds in (5.0, 1.0):
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(seconds)
            self._process.kill()
        return None  # nothing ends a process that waits for a disk that is gone


def _nameless_file(size: int, folder: Path | None = _IN_MEMORY) -> IO[bytes]:
    """Open a nameless file of `size` bytes, in memory if that has room, else in the folder for temporary files."""
    where = folder if folder and os.access(folder, os.W_OK) else None
    file = tempfile.TemporaryFile(dir=where)  # noqa: SIM115
    try:
        if hasattr(os, "posix_fallocate"):
            # Reserves the space now: if the disk were full later, writing to the map would kill the training by SIGBUS.
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            os.ftruncate(file.fileno(), size)
        return file
    except OSError:
        file.close()
        if folder is None:
            raise
    return _nameless_file(size, None)


def _matrices(buffer: memoryview, slots: Iterable[Slot]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield layer and values of every slot, in a dtype that NumPy can compute with."""
    for slot in slots:
        values = np.frombuffer(buffer, np.dtype(slot.dtype), math.prod(slot.shape), slot.offset)
        yield slot.layer, exact(values.reshape(slot.shape))


def main() -> None:
    """Measure snapshots at the lowest priority until the training closes its end of the channel."""
    os.nice(19)
    channel = Connection(int(sys.argv[1]))
    buffer = memoryview(mmap.mmap(int(sys.argv[2]), 0, access=mmap.ACCESS_READ))
    with suppress(EOFError, ConnectionError):
        job: Job = channel.recv()
        before = None
        while True:
            outcome = perform(job, channel.recv(), buffer, before)
            before = memoryview(bytes(buffer))  # the next snapshot is compared with this one
            channel.send(outcome)


def perform(job: Job, snapshot: Snapshot, buffer: memoryview, before: memoryview | None = None) -> Outcome:
    """Write the rows of one snapshot; an error is part of its outcome, and its traceback is printed.

    before: the weights of the snapshot before.
    """
    start = time.perf_counter()
    features: weights.Features = {}
    error = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            weights_of = partial(_matrices, slots=job.slots)
            changes = {} if before is None else relative_changes(weights_of(before), weights_of(buffer))
            features = records.write_snapshot(
                job.folder,
                snapshot.step,
                weights_of(buffer),
                job.settings,
                job.metadata,
                snapshot.largest_elsewhere,
                changes,
            )
        except Exception as problem:
            traceback.print_exc()
            error = reason_of(problem)
    messages = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    ahead = Outlook()
    if snapshot.forecast:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                if job.folder.can_forecast():
                    from toposcale.monitor.outlook import outlook  # the optimisers of SciPy, slow to import

                    ahead = outlook(job.folder)
            except Exception as problem:
                traceback.print_exc()
                messages += (f"no forecast ({reason_of(problem)})",)
    return Outcome(snapshot.step, time.perf_counter() - start, features, messages, error, ahead)
