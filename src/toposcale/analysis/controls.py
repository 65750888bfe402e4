"""What a partial correlation or a test holds fixed. A new control is one entry of `CONTROLS`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from toposcale.features.registry import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.io.schemas import ALL_LAYERS

NOTHING = "nothing"
"""The control of a plain correlation."""
VARIANCE = "weight_variance"
"""The feature of weights that explains most of neural persistence (Girrbach et al. 2023)."""


@dataclass(frozen=True)
class Control:
    """One control.

    name: as in the column `control` of the tables. of_model, of_layer: the features of the weights that are held fixed, of
    the whole model, and of the layer that a feature is of. step: whether a partial correlation holds the step fixed too;
    an innovation test always takes out the trend in the step. untested: why no innovation test given it is made, "" where
    one is. asked_of: the features of the weights that have this control,
    () for all. shares: the control on whose resamples it is computed, where that holds the same series. missing: what is
    said where a series to hold fixed is not there.
    """

    name: str
    of_model: tuple[str, ...] = ()
    of_layer: tuple[str, ...] = ()
    step: bool = False
    untested: str = ""
    asked_of: tuple[str, ...] = ()
    shares: str = ""
    missing: str = ""

    def is_asked_of(self, keys: pd.DataFrame) -> np.ndarray:
        """Which rows of source, layer and feature have this control."""
        known = (keys["source"] == WEIGHT_NORM.source) & keys["feature"].isin(self.asked_of)
        return known.to_numpy() if self.asked_of else np.ones(len(keys), dtype=bool)

    def keys(self, layer: str) -> dict[tuple[str, str, str], bool]:
        """The series that are held fixed for the features of a layer, and whether each must be there.

        The layer's own norm is held where there is one: the layers of embeddings have none.
        """
        source = WEIGHT_NORM.source
        needed = dict.fromkeys(((source, ALL_LAYERS, name) for name in self.of_model), True)
        for name in self.of_layer:
            needed.setdefault((source, layer, name), name not in self.of_model)
        return needed


_NORM = WEIGHT_NORM.feature
_NO_NORM = "no weight norm at these checkpoints"

CONTROLS = {
    control.name: control
    for control in (
        Control("weight_norm", (_NORM,), (_NORM,), missing=_NO_NORM),
        # Unrelated runs share a course that the trend does not take up: docs/statistics.md, "Withdrawn".
        Control("step", step=True, untested="the runs share a course", shares="weight_norm"),
        Control(
            "weight_norm_and_step", (_NORM,), (_NORM,), step=True, shares="weight_norm", missing=_NO_NORM
        ),
        Control(
            "weight_norm_and_variance",
            (_NORM,),
            (_NORM, VARIANCE),
            asked_of=(NEURAL_PERSISTENCE.feature, "neural_persistence_p2"),
            missing="no norm or variance of the weights at these checkpoints",
        ),
    )
}
"""Every control by name. The squares of what is held fixed are held fixed by the innovation tests, too."""
