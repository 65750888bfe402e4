"""The kinds of models that a run may have: a kind is one entry here, and one of `models:` in the configuration's schema."""

from typing import NamedTuple


class ModelKind(NamedTuple):
    """Where a model of the run comes from, and what of it can be measured.

    name: as the configuration says it. origin: what the report says behind the number of such models.
    has_features: its checkpoints have features; else it has losses at the most. has_weights: its checkpoints can be read.
    """

    name: str
    origin: str
    has_features: bool = False
    has_weights: bool = False


GPT = ModelKind("gpt", "trained here", has_features=True, has_weights=True)
HUB = ModelKind("hub", "downloaded from the Hugging Face Hub", has_features=True, has_weights=True)
FOLDER = ModelKind("folder", "read from a folder", has_features=True, has_weights=True)
MONITOR = ModelKind("monitor", "measured by a monitor while they were trained", has_features=True)
TABLE = ModelKind("table", "known by their loss curves alone")
PLANNED = ModelKind("planned", "planned and not yet started")

MODEL_KINDS = {kind.name: kind for kind in (GPT, HUB, FOLDER, MONITOR, TABLE, PLANNED)}
"""Every kind by its name, in the order in which a report names them."""
