"""Studies between runs, simulated from the configurations of a finished one: which effects their tests find."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from studies.over_seeds import fisher_interval
from toposcale.analysis.over_seeds import EarlyValues
from toposcale.statistics.freedman_lane import between_runs, fit_of_configuration

LEVELS = (0.05, 0.05 / 6)
"""The level of one test, and the strictest that Holm asks for among six."""
DRAWS = 999
Found = tuple[float, bool]
"""The p of a simulated study, and whether its interval holds the effect."""


class Between:
    """Studies between runs, of configurations of a finished one.

    Features, losses and controls stay together, and each configuration keeps its spread: the outcomes are what the
    controls of a configuration tell, and permuted residuals with an effect. random_controls: so many stand for controls
    that the tables do not have. drawn: the runs of each configuration of a study, as indices in `read`.
    """

    effects = (0.0, 0.10, 0.15, 0.20, 0.25)

    def __init__(
        self,
        read: EarlyValues,
        features: Sequence[str],
        *,
        random_controls: int,
        drawn: Callable[[np.random.Generator], list[NDArray[np.int64]]],
    ) -> None:
        self.read, self.configurations, self.drawn = read, np.array(read.configurations), drawn
        self.random_controls = random_controls
        self.features = read.features.droplevel(["source", "layer"]).loc[list(features)].to_numpy(np.float64)

    def study(self, effect: float, random: np.random.Generator) -> Found:
        """One study with an effect in one of the features: its p, and whether the interval holds the effect."""
        configurations = self.drawn(random)
        runs = np.concatenate(configurations)
        labels = np.repeat(np.arange(len(configurations)), [len(own) for own in configurations])
        noise = random.normal(size=(self.random_controls, len(runs)))
        feature = self.features[random.integers(len(self.features))][None, runs]
        controls = np.vstack([self.read.controls[:, runs], noise])
        outcome = self.read.outcome[runs].copy()
        for label in range(len(configurations)):
            own = np.flatnonzero(labels == label)
            fit = fit_of_configuration(feature, outcome[None], controls, own)
            rest = random.permutation(fit.residuals)
            told = effect * fit.features[0] * np.sqrt(rest @ rest)
            outcome[own] += told + np.sqrt(1 - effect**2) * rest - fit.residuals
        test = between_runs(feature, outcome, labels.tolist(), controls, draws=DRAWS, seed=seed_of(random))
        low, high = fisher_interval(test.correlation, test.degrees_of_freedom - test.n_configurations)
        return float(test.p[0]), bool(low[0] <= effect <= high[0])


def seed_of(random: np.random.Generator) -> int:
    """A seed for the permutations of one study."""
    return int(random.integers(2**31))


def table(study: Callable[[float, np.random.Generator], Found], effects: Sequence[float], studies: int) -> pd.DataFrame:
    """Share of simulated studies that find each effect at each level, and whose interval holds it."""
    rows = []
    for effect in effects:
        random = np.random.default_rng([42, int(1000 * effect)])
        found = [study(effect, random) for _ in range(studies)]
        p = np.array([value for value, _ in found])
        rows.append({"effect": effect, **{f"found at {level:.3g}": np.mean(p <= level) for level in LEVELS}})
        rows[-1]["interval holds it"] = np.mean([holds for _, holds in found])
    return pd.DataFrame(rows)
