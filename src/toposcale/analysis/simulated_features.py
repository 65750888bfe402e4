"""Features that are the metric and noise: what a test of all runs together finds of a relation that is known."""

from __future__ import annotations

import numpy as np
import pandas as pd

from toposcale.analysis.controls import Control
from toposcale.analysis.false_positives import TOGETHER
from toposcale.analysis.partial_correlations import run_test
from toposcale.analysis.pooled import run_weights
from toposcale.analysis.series import Aligned, aligned_series, cells_of, warmups_of, whole_model
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.innovations import Innovations, innovation_products, innovations, with_squares
from toposcale.statistics.shared_flips import SharedFlips


class SimulatedFeatures:
    """Simulated features in the runs whose metric the innovation test given a control can use.

    runs: the testable stretch of each, by the group of features that has the most points.
    """

    most_runs = TOGETHER

    def __init__(
        self, features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, *, control: Control
    ) -> None:
        warmups = warmups_of(models)
        best: dict[str, Aligned] = {}
        for group in aligned_series(whole_model(features), metrics, control):
            test, cut, _ = run_test(group, warmups, alone=False)
            if test is None or np.isnan(_innovations(cut).values).any():
                continue
            if group.model not in best or cut.n > best[group.model].n:
                best[group.model] = cut
        self.runs = [best[model] for model in sorted(best)]
        self._weights = run_weights(set(best), cells_of(models))

    @property
    def names(self) -> list[str]:
        """The models that are tested."""
        return [run.model for run in self.runs]

    @property
    def n_points(self) -> int:
        """Checkpoints of a run, median over runs."""
        return int(np.median([run.n for run in self.runs]))

    def test(self, effects: Floats, seed: int, purpose: int) -> tuple[Floats, Floats]:
        """One feature for each of `effects`, the correlation of its innovations with those of the metric that the noise is
        chosen for: the correlations that the test measures, mean over runs, and its p-values."""
        pool = SharedFlips(len(effects), np.concatenate([run.steps for run in self.runs]))
        measured, total = np.zeros(len(effects)), 0.0
        for place, run in enumerate(self.runs):
            new = _innovations(run)
            size = np.sqrt((new.values**2).sum(axis=1) / (new.values.shape[1] - new.n_fitted))[:, None]
            random = np.random.default_rng([seed, purpose, place])
            scale = run.targets.std() * size * np.sqrt(1.0 / effects[:, None] ** 2 - 1.0)
            noisy = run.targets + scale * random.standard_normal((len(effects), run.n))
            test = innovation_products(noisy, run.targets, with_squares(run.controls))
            weight = self._weights[run.model]
            pool.add(test, run.steps, weight=weight)
            measured += weight * np.nan_to_num(test.correlation[:, 0])
            total += weight
        return measured / total, pool.p_values()


def _innovations(run: Aligned) -> Innovations:
    """Those of the metric, as `innovation_test` takes them."""
    return innovations(run.targets, with_squares(run.controls), half_cosine=True)
