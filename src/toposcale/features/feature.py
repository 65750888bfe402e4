"""What is said of a feature: title, unit, group, aggregation over layers, and what it is a rescaling of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

TOPOLOGY, SPECTRUM, NORM, CURVATURE, OTHER = "topology", "spectrum", "norm", "curvature", "other"
UNREGISTERED = "unregistered"  # the group of a name that nobody described
GROUPS = (TOPOLOGY, SPECTRUM, NORM, CURVATURE, OTHER, UNREGISTERED)

FROBENIUS_NORM = "frobenius_norm"
OF_SOURCE = "of the source"  # a unit that depends on what the points are: see `SOURCE_UNITS`

OVER_LAYERS: dict[str, Callable[..., Any]] = {"mean": np.mean, "sum": np.sum, "norm": np.linalg.norm, "max": np.max}
"""Aggregations of the layers' values to that of the model; `norm` is the root of the summed squares."""


@dataclass(frozen=True)
class Feature:
    """One feature, or several that differ in a part of their names.

    name: as in the features table; `{k}` stands for a homology dimension, `{plane}` and `{graph}` for the plane and the
    graph of a loss surface. title: display name. unit: text, "" for none, `OF_SOURCE`. group: one of `GROUPS`.
    over_layers: a key of `OVER_LAYERS`. rescaling_of: the same feature in another unit, "" for none. when_nan: the remedy
    for a NaN, if a healthy checkpoint can have one. `registry.lookup` fills in the rest: statistic, the name without plane,
    graph and suffix; plane and plane_kind, "negative_0.3" and "negative"; graph; suffix, "_spread". "" for what a name has
    not.
    """

    name: str
    title: str
    unit: str = ""
    group: str = OTHER
    over_layers: str = "mean"
    rescaling_of: str = ""
    when_nan: str = ""
    statistic: str = ""
    plane: str = ""
    plane_kind: str = ""
    graph: str = ""
    suffix: str = ""

    def __post_init__(self) -> None:
        if self.group not in GROUPS or self.over_layers not in OVER_LAYERS:
            raise ValueError(
                f"{self.name}: group is one of {', '.join(GROUPS)}, and over_layers one of {', '.join(OVER_LAYERS)}"
            )
