"""Topology of language models in training, beside the plain baselines it has to beat.

`describe` tells the features of one checkpoint, `compare` what changed between two, and `advise` from a loss curve
whether to finish a training run or to start a larger one.
"""

from importlib import import_module
from typing import Any

__version__ = "0.3.0.dev0"
__all__ = ["advise", "compare", "describe"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # By name and when it is asked for: no rule of the workflow depends on what it does not use.
    module = "decision.curve" if name == "advise" else "features.description"
    return getattr(import_module(f"{__name__}.{module}"), name)
