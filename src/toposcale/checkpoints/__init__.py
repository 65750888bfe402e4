"""Checkpoints in files, folders and on the Hub: their location, their size and their weight matrices, one at a time."""

from toposcale.checkpoints.checkpoint import Checkpoint, Sizes, locate
from toposcale.checkpoints.sources import FolderSource, Inspection, content_hash, files_of, inspect, missing_parts
