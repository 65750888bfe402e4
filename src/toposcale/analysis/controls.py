"""Controls: what a partial correlation or a test holds fixed. A new control is one entry of `CONTROLS`."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from toposcale.features.feature import NEURAL_PERSISTENCE, WEIGHT_NORM
from toposcale.io.schemas import ALL_LAYERS

NOTHING = "nothing"
"""The control of a plain correlation."""
NUCLEAR_NORM, VARIANCE = "nuclear_norm", "weight_variance"
"""Features of weights: that which stands for their spectrum, the sum of the singular values (docs/research.md), and that
which explains most of neural persistence (Girrbach et al. 2023)."""


@dataclass(frozen=True)
class Control:
    """One control: features of the weights, of the model or of the layer, and maybe the step, that are held fixed."""

    name: str
    of_model: tuple[str, ...] = ()
    of_layer: tuple[str, ...] = ()
    step: bool = False  # in the partial rank correlation alone
    asked_of: tuple[str, ...] = ()  # the only features that have this control; none for all
    missing: str = ""  # the reason if a series to hold fixed was not measured

    @property
    def is_tested(self) -> bool:
        """True if the test of prewhitened residuals is made given this control."""
        # Given the trend in the step alone it has false positives: runs share it (docs/statistics.md).
        return bool(self.of_model)

    def is_asked_of(self, keys: pd.DataFrame) -> np.ndarray:
        """Return which rows of source, layer and feature have this control."""
        is_named = (keys["source"] == WEIGHT_NORM.source) & keys["feature"].isin(self.asked_of)
        return is_named.to_numpy() if self.asked_of else np.ones(len(keys), dtype=bool)

    def keys(self, layer: str) -> dict[tuple[str, str, str], bool]:
        """Return the series that are held fixed for a layer, and whether each is required; a layer may have no norm."""
        source = WEIGHT_NORM.source
        needed = dict.fromkeys(((source, ALL_LAYERS, name) for name in self.of_model), True)
        for name in self.of_layer:
            needed.setdefault((source, layer, name), name not in self.of_model)
        return needed


_NORM = WEIGHT_NORM.feature

CONTROLS = {
    control.name: control
    for control in (
        Control("step", step=True),
        Control("weight_norm", (_NORM,), (_NORM,), missing="no weight norm at these checkpoints"),
        Control(
            "weight_norm_and_spectrum",
            (_NORM, NUCLEAR_NORM),
            (_NORM, NUCLEAR_NORM),
            missing="no norm or nuclear norm of the weights at these checkpoints",
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
"""Every control by name. The squares of what is held fixed are held fixed by the tests of prewhitened residuals, too."""
