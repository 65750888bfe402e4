"""Matrices in memory that two processes share: the training writes them, the background process reads them."""

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
    """Where one matrix lies: its layer, the name of its type, its shape (n_out, n_in), and the first byte."""

    layer: str
    dtype: str
    shape: tuple[int, int]
    offset: int

    @property
    def n_bytes(self) -> int:
        """Bytes that the matrix takes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def lay_out(matrices: Iterable[tuple[str, str, tuple[int, int]]]) -> tuple[Slot, ...]:
    """A slot for each (layer, name of the type, shape), one after the other."""
    slots, offset = [], 0
    for layer, dtype, shape in matrices:
        slot = Slot(layer, dtype, shape, offset)
        slots.append(slot)
        offset += -(-slot.n_bytes // _ALIGNMENT) * _ALIGNMENT
    return tuple(slots)


def nameless_file(size: int, folder: Path | None = _IN_MEMORY) -> IO[bytes]:
    """A file of `size` bytes without a name, in memory where that has room, else in the folder for temporary files.

    Nothing is left of it when the processes that hold it are gone, however they end. OSError: no room.
    """
    place = folder if folder and os.access(folder, os.W_OK) else None
    file = tempfile.TemporaryFile(dir=place)  # noqa: SIM115
    try:
        if hasattr(os, "posix_fallocate"):
            # Takes the room at once: a folder that filled up later would end the process that writes with a signal.
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
    """Layer and values of every slot, one after the other, in types that NumPy can compute with."""
    for slot in slots:
        values = np.frombuffer(buffer, np.dtype(slot.dtype), math.prod(slot.shape), slot.offset)
        yield slot.layer, exact(values.reshape(slot.shape))
