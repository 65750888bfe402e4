"""Training runs with the features of their checkpoints, which early forecasts read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from toposcale.forecasting.runs.series import Series, in_order, on_grid, read_only
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

    def with_features(self, features: Mapping[str, Series]) -> Self:
        """Return the run with these features at its checkpoints, NaN where one was not measured."""
        on_checkpoints = {name: on_grid(self.checkpoint_steps, *in_order(pair)) for name, pair in features.items()}
        return replace(self, features=on_checkpoints)

    def rows_until(self, last: float) -> dict[str, Any]:
        """Return the arrays of a run without the rows of later steps, and its features."""
        kept = self.checkpoint_steps <= last
        return super().rows_until(last) | {"features": {name: values[kept] for name, values in self.features.items()}}


def checkpoints_of(features: Mapping[str, Series]) -> np.ndarray:
    """Return the steps at which a number was measured; vectors are read only where something else was."""
    scalars = [np.asarray(steps, np.float64) for steps, values in features.values() if np.ndim(values) == 1]
    return np.concatenate([np.empty(0), *scalars])


def features_of(run: TrainingRun) -> Mapping[str, np.ndarray]:
    """Return the features of a run by name; none of one that has none."""
    return run.features if isinstance(run, FeaturedRun) else {}
