"""Matrices in shared memory: the training writes them, the background process reads them."""

import math
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from toposcale.checkpoints.matrices import exact

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


def lay_out(matrices: Iterable[tuple[str, str, tuple[int, int]]]) -> tuple[Slot, ...]:
    """Return one slot for each (layer, dtype, shape), aligned, one after the other."""
    slots, offset = [], 0
    for layer, dtype, shape in matrices:
        slot = Slot(layer, dtype, shape, offset)
        slots.append(slot)
        offset += -(-slot.n_bytes // _ALIGNMENT) * _ALIGNMENT
    return tuple(slots)


def nameless_file(size: int, folder: Path | None = _IN_MEMORY) -> IO[bytes]:
    """Open a nameless file of `size` bytes, in memory if that has room, else in the folder for temporary files.

    It is gone with the last process that has it open. OSError: no room.
    """
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
    return nameless_file(size, None)


def matrices(buffer: memoryview, slots: Iterable[Slot]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield layer and values of every slot, in a dtype that NumPy can compute with."""
    for slot in slots:
        values = np.frombuffer(buffer, np.dtype(slot.dtype), math.prod(slot.shape), slot.offset)
        yield slot.layer, exact(values.reshape(slot.shape))
