"""Features that are the final metric and noise: what the test between runs finds of a relation that is known."""

from __future__ import annotations

import numpy as np
import pandas as pd

from toposcale.analysis.false_positives import BETWEEN
from toposcale.analysis.over_seeds import early_values
from toposcale.features.registry import WEIGHT_NORM
from toposcale.statistics.between_runs import between_runs, fit_of_cell
from toposcale.statistics.coefficients import Floats, orthogonal_to

DRAWS = 2_000


class SimulatedEarlyFeatures:
    """Simulated features at 30% of training, of the finished runs in cells of enough seeds.

    names: the models; none where a control is not there.
    """

    n_points = 1
    most_runs = BETWEEN

    def __init__(self, features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame) -> None:
        [metric] = set(metrics["metric"]) or {""}
        self._read = early_values(features, metrics, models, metric, [WEIGHT_NORM.feature])
        self.names = [] if self._read is None else list(self._read.features.columns)

    def test(self, effects: Floats, seed: int, purpose: int) -> tuple[Floats, Floats]:
        """One feature for each of `effects`, its partial correlation with the final metric in each cell before chance: the
        correlations that the test measures, and its p-values."""
        assert self._read is not None
        _, outcome, controls, cells = self._read
        random = np.random.default_rng([seed, purpose])
        values = random.standard_normal((len(effects), len(outcome)))
        for cell in dict.fromkeys(cells):
            members = np.flatnonzero([one == cell for one in cells])
            fit = fit_of_cell(values, outcome[None], controls, members)
            noise, _ = orthogonal_to(values[:, members], fit.design)
            signal = fit.residuals * np.sqrt(fit.freedom / np.maximum(fit.residuals @ fit.residuals, 1e-300))
            values[:, members] = effects[:, None] * signal + np.sqrt(1 - effects[:, None] ** 2) * noise
        test = between_runs(values, outcome, cells, controls, draws=DRAWS, seed=seed)
        return test.correlation, test.p
