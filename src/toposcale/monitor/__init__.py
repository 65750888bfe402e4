"""Topology of a model while it trains.

Every k steps the weights are copied, and a background process computes from the copy the rows that the workflow would
have computed from a checkpoint. The overhead is measured and printed. An error ends the monitoring, never the training.
No library is imported before it is needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toposcale.monitor.alerts import Alert, AlertKind
    from toposcale.monitor.callback import TopologyCallback
    from toposcale.monitor.lightning import LightningTopologyCallback
    from toposcale.monitor.loop import Cost, TopologyMonitor

__all__ = ["Alert", "AlertKind", "Cost", "LightningTopologyCallback", "TopologyCallback", "TopologyMonitor"]

_MODULES = {
    "Alert": "alerts",
    "AlertKind": "alerts",
    "LightningTopologyCallback": "lightning",
    "TopologyCallback": "callback",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'loop')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
