"""Checkpoints in files, folders and on the Hub: their location, their size and their weight matrices, one at a time."""

from toposcale.checkpoints.locations import locate
from toposcale.checkpoints.matrices import Sizes, count_parameters, empty_matrices, iterate_matrices, stored_sizes
from toposcale.checkpoints.sources import FolderSource, missing_parts, sample_of_files, trainer_facts

__all__ = [
    *("FolderSource", "Sizes", "count_parameters", "empty_matrices", "iterate_matrices", "locate"),
    *("missing_parts", "sample_of_files", "stored_sizes", "trainer_facts"),
]
