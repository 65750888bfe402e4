"""Description of a feature: title, unit, group, aggregation over layers, and the feature that it rescales."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from toposcale.forecasting.runs.metrics import LOSS_UNIT
from toposcale.io.schemas import ALL_LAYERS

TOPOLOGY = "topology"
SPECTRUM = "spectrum"
NORM = "norm"
CURVATURE = "curvature"
OTHER = "other"
UNREGISTERED = "unregistered"  # the group of a name that nobody described
GROUPS = (TOPOLOGY, SPECTRUM, NORM, CURVATURE, OTHER, UNREGISTERED)

FROBENIUS_NORM = "frobenius_norm"
RELATIVE_CHANGE = "relative_change"
COSINE = "cosine_similarity"
SUBSPACE_OVERLAP = "subspace_overlap"
OF_SOURCE = "of the source"  # a unit that depends on what the points are: see `SOURCE_UNITS`

NAMED_AS_MODEL = (
    f"a matrix is named {ALL_LAYERS!r}, which stands for the whole model in the tables: rename it or leave it out"
)
OF_ZEROS = "a matrix of zeros has none: leave it out with weights.layers.exclude"

OVER_LAYERS: dict[str, Callable[..., Any]] = {"mean": np.mean, "sum": np.sum, "norm": np.linalg.norm, "max": np.max}
"""Aggregations of the layers' values to that of the model; `norm` is the root of the summed squares."""


@dataclass(frozen=True)
class Feature:
    """One feature, or several that differ in a part of their names.

    name: as in the features table; `{k}` stands for a homology dimension, `{plane}` and `{graph}` for those of a surface.
    title: display name.
    unit: text, "" for none, or `OF_SOURCE`.
    group: one of `GROUPS`.
    over_layers: a key of `OVER_LAYERS`.
    rescaling_of: the same feature in another unit, "" for none.
    when_nan: the remedy for a NaN, if a healthy checkpoint can have one.
    statistic: the name without plane, graph and suffix. This and the rest are filled in by `registry.lookup`.
    plane: such as "negative_0.3"; "" for a part that the name does not have.
    plane_kind: such as "negative".
    suffix: such as "_spread".
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
    suffix: str = ""

    def __post_init__(self) -> None:
        if self.group not in GROUPS or self.over_layers not in OVER_LAYERS:
            raise ValueError(
                f"{self.name}: group is one of {', '.join(GROUPS)}, and over_layers one of {', '.join(OVER_LAYERS)}"
            )


SOURCE_UNITS = {
    "weights": "weight units",
    "gradients": "gradient units",
    "embeddings": "embedding units",
    "landscape": LOSS_UNIT,
    "trajectory": "weight units",
}


class SeriesKey(NamedTuple):
    """Key of a series in the features table: source, layer and feature."""

    source: str
    layer: str
    feature: str

    @property
    def name(self) -> str:
        """Return the name of the series in a history of forecasts: "weights/frobenius_norm"."""
        return f"{self.source}/{self.feature}"


WEIGHT_NORM = SeriesKey("weights", ALL_LAYERS, FROBENIUS_NORM)  # of the whole model, not of one layer
NEURAL_PERSISTENCE = SeriesKey("weights", ALL_LAYERS, "neural_persistence")

SUMMARY = {
    WEIGHT_NORM.feature: "norm",
    "powerlaw_alpha": "alpha",
    "stable_rank": "rank",
    NEURAL_PERSISTENCE.feature: "NP",
    "h0_total_scaled": "H0",
    "h1_total_scaled": "H1",
}
"""Features that represent all others in short tables, one per kind of measurement, and their short names."""

OF_COMPARISON = {RELATIVE_CHANGE: "change", **SUMMARY}
"""Features of the short table of two checkpoints, and their short names."""

UNCERTAINTIES = ("_spread", "_standard_error")
"""Suffixes of the names of uncertainties."""


def is_uncertainty(name: str) -> bool:
    """Return whether a row is the uncertainty of a feature."""
    return name.endswith(UNCERTAINTIES)
