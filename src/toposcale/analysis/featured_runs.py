"""Training runs with the features of their checkpoints, which early forecasts read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.metadata import RunMetadata
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

    @classmethod
    def of_series(
        cls,
        metadata: RunMetadata,
        schedule: LearningRateSchedule,
        log: Mapping[str, ArrayLike],
        metrics: Mapping[str, Series],
        features: Mapping[str, Series],
    ) -> Self:
        """Return the run of these columns; of vectors only those at steps at which something else was measured."""
        series = {name: in_order(pair) for name, pair in features.items()}
        scalars = [steps for steps, values in series.values() if values.ndim == 1]
        run = cls.of(metadata, schedule, log, metrics, np.concatenate([np.empty(0), *scalars]))
        return replace(run, features={name: on_grid(run.checkpoint_steps, *pair) for name, pair in series.items()})

    def rows_until(self, last: float) -> dict[str, Any]:
        """Return the arrays of a run without the rows of later steps, and its features."""
        kept = self.checkpoint_steps <= last
        return super().rows_until(last) | {"features": {name: values[kept] for name, values in self.features.items()}}


def features_of(run: TrainingRun) -> Mapping[str, np.ndarray]:
    """Return the features of a run by name; none of one that has none."""
    return run.features if isinstance(run, FeaturedRun) else {}
