"""Checkpoints in files, folders and on the Hub: their location, their size and their weight matrices, one at a time."""

from toposcale.checkpoints.locations import locate
from toposcale.checkpoints.matrices import (
    Sizes,
    empty_matrices,
    frozen_tensors,
    iterate_matrices,
    not_measured,
    stored_sizes,
)
from toposcale.checkpoints.sources import FolderSource, Inspection, files_of, inspect, missing_parts

__all__ = [
    *("FolderSource", "Inspection", "Sizes", "empty_matrices", "files_of", "frozen_tensors", "inspect"),
    *("iterate_matrices", "locate", "missing_parts", "not_measured", "stored_sizes"),
]
