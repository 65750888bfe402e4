"""Topology of a model while it trains.

Every k steps the weights are copied, and a background process computes from the copy the rows that the workflow would
have computed from a checkpoint. The overhead is measured and printed. An error ends the monitoring, never the training.
No library is imported before it is needed.
"""

from typing import TYPE_CHECKING

from toposcale.io.lazy_names import lazy_names

if TYPE_CHECKING:
    from toposcale.monitor.alerts import Alert, AlertKind
    from toposcale.monitor.callback import TopologyCallback
    from toposcale.monitor.cost import Cost
    from toposcale.monitor.lightning import LightningTopologyCallback
    from toposcale.monitor.loop import TopologyMonitor

__all__ = ["Alert", "AlertKind", "Cost", "LightningTopologyCallback", "TopologyCallback", "TopologyMonitor"]

_MODULES = {
    **dict.fromkeys(("Alert", "AlertKind"), "alerts"),
    "Cost": "cost",
    "LightningTopologyCallback": "lightning",
    "TopologyCallback": "callback",
    "TopologyMonitor": "loop",
}
__getattr__, __dir__ = lazy_names(
    __name__, _MODULES, {"torch": "monitor", "lightning": "lightning", "transformers": "hub"}
)
