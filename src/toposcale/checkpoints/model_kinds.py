"""Registry of the kinds of models in a run; the schema of the configuration has the same kinds under `models:`."""

from typing import NamedTuple


class ModelKind(NamedTuple):
    """Origin of a model, and what can be measured of it.

    `name` is the kind in the configuration, and `origin` describes it in the report. With `has_features` its checkpoints
    have features, otherwise at most losses; with `has_weights` its checkpoints can be read.
    """

    name: str
    origin: str
    has_features: bool = False
    has_weights: bool = False


GPT = ModelKind("gpt", "trained here", has_features=True, has_weights=True)
HUB = ModelKind("hub", "downloaded from the Hugging Face Hub", has_features=True, has_weights=True)
FOLDER = ModelKind("folder", "read from a folder", has_features=True, has_weights=True)
MONITOR = ModelKind("monitor", "measured by a monitor while they were trained", has_features=True)
TABLE = ModelKind("table", "known only by their loss curves")
PLANNED = ModelKind("planned", "planned and not yet started")

MODEL_KINDS = {kind.name: kind for kind in (GPT, HUB, FOLDER, MONITOR, TABLE, PLANNED)}
"""Kinds by name, in the order of the report."""
