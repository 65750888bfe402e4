"""Checkpoints from anywhere: where they are, their weight matrices one at a time, and models made of them."""

from toposcale.checkpoints.matrices import (
    choose_weight_files,
    count_parameters,
    iterate_matrices,
    weight_files,
)
from toposcale.checkpoints.sources import FolderSource, locate, missing_parts, readable, trainer_facts

__all__ = [
    "FolderSource",
    "choose_weight_files",
    "count_parameters",
    "iterate_matrices",
    "locate",
    "missing_parts",
    "readable",
    "trainer_facts",
    "weight_files",
]
