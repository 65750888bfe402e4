"""Simulated features (the metric with noise), to measure the power of the tests over runs."""

import numpy as np
import pandas as pd

from toposcale.analysis.aligned import Aligned, aligned_series, warmups_of
from toposcale.analysis.controls import Control
from toposcale.analysis.correlations import run_test, run_weights
from toposcale.analysis.series import configurations_of, whole_model
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.prewhitening import Prewhitened, SharedFlips, prewhiten, residual_test, with_squares


class SimulatedFeatures:
    """Simulated features for the test of prewhitened residuals; runs: the longest testable segment of each of `names`."""

    def __init__(
        self, features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, *, control: Control
    ) -> None:
        warmups = warmups_of(models)
        best: dict[str, Aligned] = {}
        for group in aligned_series(whole_model(features), metrics, control):
            test, cut, _ = run_test(group, warmups)
            if test is None or np.isnan(_prewhitened(cut).values).any():
                continue
            if group.model not in best or cut.n > best[group.model].n:
                best[group.model] = cut
        self.names = sorted(best)
        self.runs = [best[model] for model in self.names]
        self._weights = run_weights(set(best), configurations_of(models))

    @property
    def n_points(self) -> int:
        """Median number of checkpoints of a run."""
        return int(np.median([run.n for run in self.runs]))

    def test(self, effects: Floats, seed: int, purpose: int) -> tuple[Floats, Floats]:
        """Test one feature per correlation of residuals in `effects`; return measured correlations and p-values."""
        pool = SharedFlips(len(effects), np.concatenate([run.steps for run in self.runs]))
        measured, total = np.zeros(len(effects)), 0.0
        for index, run in enumerate(self.runs):
            new = _prewhitened(run)
            size = np.sqrt((new.values**2).sum(axis=1) / (new.values.shape[1] - new.n_fitted))[:, None]
            random = np.random.default_rng([seed, purpose, index])
            scale = run.targets.std() * size * np.sqrt(1.0 / effects[:, None] ** 2 - 1.0)
            noisy = run.targets + scale * random.standard_normal((len(effects), run.n))
            test = residual_test(noisy, run.targets, with_squares(run.controls))
            weight = self._weights[run.model]
            pool.add(test, run.steps, weight=weight)
            measured += weight * np.nan_to_num(test.correlation[:, 0])
            total += weight
        return measured / total, pool.p_values()


def _prewhitened(run: Aligned) -> Prewhitened:
    """Prewhiten the metric as `residual_test` does."""
    return prewhiten(run.targets, with_squares(run.controls), half_cosine=True)
