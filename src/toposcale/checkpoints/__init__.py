"""Checkpoints from anywhere: where they are, their weight matrices one at a time, and models made of them."""

from toposcale.checkpoints.matrices import (
    choose_weight_files,
    count_parameters,
    iterate_matrices,
    weight_files,
)
from toposcale.checkpoints.sources import FolderSource, Source, locate, open_source

__all__ = [
    "FolderSource",
    "Source",
    "choose_weight_files",
    "count_parameters",
    "iterate_matrices",
    "locate",
    "open_source",
    "weight_files",
]
