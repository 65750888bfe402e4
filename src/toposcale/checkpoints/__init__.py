"""Checkpoints from anywhere: where they are, their weight matrices one at a time, and models made of them."""

from toposcale.checkpoints.matrices import Sizes, count_parameters, empty_matrices, iterate_matrices, stored_sizes
from toposcale.checkpoints.sources import FolderSource, locate, missing_parts, state_of_files, trainer_facts
