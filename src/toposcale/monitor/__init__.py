"""Topology of a model while it trains: `TopologyMonitor` for a plain loop, `TopologyCallback` for transformers' Trainer,
`LightningTopologyCallback` for the Trainer of Lightning.

Every k steps the weights are copied, and a process in the background turns the copy into the rows that the workflow
would have computed of a checkpoint. What it costs is measured and said. No library is imported before it is needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toposcale.monitor.callback import TopologyCallback
    from toposcale.monitor.lightning import LightningTopologyCallback
    from toposcale.monitor.loop import Cost, TopologyMonitor

_MODULES = {
    "Cost": "loop",
    "LightningTopologyCallback": "lightning",
    "TopologyCallback": "callback",
    "TopologyMonitor": "loop",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
