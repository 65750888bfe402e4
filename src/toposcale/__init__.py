"""Topology of language models in training, beside the plain baselines it has to beat.

`describe` tells the features of one checkpoint, `compare` what changed between two.
"""

from importlib import import_module
from typing import Any

__version__ = "0.3.0.dev0"
__all__ = ["compare", "describe"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # By name and when it is asked for: no rule of the workflow depends on what it does not use.
    return getattr(import_module(f"{__name__}.features.description"), name)
