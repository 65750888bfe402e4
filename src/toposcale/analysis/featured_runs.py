"""Training runs with the features of their checkpoints, which early forecasts read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toposcale.forecasting.runs.series import read_only
from toposcale.forecasting.runs.training_run import TrainingRun


@dataclass(frozen=True)
class FeaturedRun(TrainingRun):
    """A training run with features "source/feature" at its checkpoints.

    features: (n_checkpoints,) each, or (n_checkpoints, length) for vectorised diagrams.
    """

    features: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "features", {name: read_only(values) for name, values in self.features.items()})
        for name, values in self.features.items():
            if len(values) != len(self.checkpoint_steps):
                raise ValueError(
                    f"{name}: one for each of the {len(self.checkpoint_steps)} checkpoints of {self.model}"
                )

    def rows_until(self, last: float) -> dict[str, Any]:
        """Return the arrays of a run without the rows of later steps, and its features."""
        kept = self.checkpoint_steps <= last
        return super().rows_until(last) | {"features": {name: values[kept] for name, values in self.features.items()}}


def features_of(run: TrainingRun) -> Mapping[str, np.ndarray]:
    """Return the features of a run by name; none of one that has none."""
    return run.features if isinstance(run, FeaturedRun) else {}
