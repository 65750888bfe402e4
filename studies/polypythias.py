"""What nine seeds can show: `python -m studies.polypythias 200` prints the power that studies/polypythias.md has.

Simulated are configurations of nine runs, drawn from the configurations of study 1 (studies/nulls/runs). Within runs:
prewhitened residuals of a feature and of the losses of other runs, with an effect. Between runs: the feature and the
controls of a run stay together; the final loss is what the controls tell, and permuted residuals with an effect. A test
finds an effect where p is at most 0.05, and, the strictest that Holm asks for among four, 0.0125.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from studies import small_tables
from studies.nulls.configurations import RUNS, table_of
from studies.over_seeds import EarlyValues, early_values
from studies.run_permutation import permute_pairs
from toposcale.features.feature import WEIGHT_NORM
from toposcale.forecasting.runs.metrics import VALIDATION_LOSS
from toposcale.statistics.coefficients import Floats, average_ranks, pearson
from toposcale.statistics.freedman_lane import between_runs, fit_of_configuration
from toposcale.statistics.prewhitening import prewhiten, testable_segment, with_squares

SEEDS, DRAWS = 9, 999
LEVELS = (0.05, 0.0125)
WITHIN_EFFECTS, BETWEEN_EFFECTS = (0.0, 0.1, 0.15, 0.2, 0.3), (0.0, 0.5, 0.7, 0.9)
FOLLOWED = ("neural_persistence", "h0_total_scaled")
"""The features of study 1 at every checkpoint."""
AT_30_PERCENT = ("h0_total", "h0_mean", "neural_persistence")


class Residuals(NamedTuple):
    """Prewhitened residuals of R runs at T checkpoints: of features (R, F, T) and losses (R, T); configurations (R,)."""

    features: Floats
    losses: Floats
    configurations: NDArray


def residuals(models: pd.DataFrame, series: pd.DataFrame) -> Residuals:
    """Return the residuals of all runs given two norms: its own, and that of the next run of its configuration.

    The latter stands for the mean norm of layers, which study 1 does not have at every checkpoint.
    """
    names, configurations = models["model"], models["configuration"].to_numpy()
    warmup = {*models["warmup_steps"]}.pop()
    wide = {
        name: series.pivot(index="model", columns="step", values=name).loc[names]
        for name in (*FOLLOWED, WEIGHT_NORM.feature, VALIDATION_LOSS)
    }
    segment = testable_segment(wide[VALIDATION_LOSS].columns, warmup)
    values = {name: table.to_numpy()[:, segment.start : segment.stop] for name, table in wide.items()}
    norms = values[WEIGHT_NORM.feature]
    features, losses = [], []
    for run, configuration in enumerate(configurations):
        sisters = np.flatnonzero(configurations == configuration)
        sister = sisters[(np.flatnonzero(sisters == run)[0] + 1) % len(sisters)]
        given = with_squares(norms[[run, sister]])
        features.append(prewhiten(np.stack([values[name][run] for name in FOLLOWED]), given).values)
        losses.append(prewhiten(values[VALIDATION_LOSS][run], given).values[0])
    return Residuals(np.array(features), np.array(losses), configurations)


def within(runs: Residuals, effect: float, random: np.random.Generator) -> float:
    """p of the run permutation of nine runs with an effect in one feature."""
    drawn = _drawn(runs.configurations, random)
    x = _standard(runs.features[drawn, random.integers(len(FOLLOWED))])
    y = _standard(runs.losses[random.permutation(drawn)])
    y = effect * x + np.sqrt(1 - effect**2) * y
    table = pearson(average_ranks(x), average_ranks(y))
    return float(permute_pairs(table, ["one"] * SEEDS, draws=DRAWS, seed=_seed(random)).p)


def between(runs: EarlyValues, effect: float, random: np.random.Generator) -> float:
    """p of the test between nine runs with an effect in one feature."""
    drawn = _drawn(np.array(runs.configurations), random)
    features = runs.features.droplevel(["source", "layer"]).loc[list(AT_30_PERCENT)].to_numpy(np.float64)
    feature = features[random.integers(len(features))][None, drawn]
    controls, outcome = runs.controls[:, drawn], runs.outcome[drawn].copy()
    fit = fit_of_configuration(feature, outcome[None], controls, np.arange(SEEDS))
    rest = random.permutation(fit.residuals)
    planted = effect * fit.features[0] * np.sqrt(rest @ rest)
    outcome += planted + np.sqrt(1 - effect**2) * rest - fit.residuals
    test = between_runs(feature, outcome, ["one"] * SEEDS, controls, draws=DRAWS, seed=_seed(random))
    return float(test.p[0])


def _drawn(configurations: NDArray, random: np.random.Generator) -> NDArray[np.int64]:
    """Return nine runs of one configuration."""
    return random.choice(np.flatnonzero(configurations == random.choice(np.unique(configurations))), SEEDS, False)


def _standard(rows: Floats) -> Floats:
    return np.asarray((rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True))


def _seed(random: np.random.Generator) -> int:
    return int(random.integers(2**31))


def main(studies: int) -> None:
    """Print the share of simulated studies that find each effect."""
    models, series, early = (table_of(RUNS / "study-1", name) for name in ("models", "series", "early"))
    at_30_percent = early_values(
        *small_tables.long_tables(series, early), models, VALIDATION_LOSS, [WEIGHT_NORM.feature]
    )
    assert at_30_percent is not None
    rows = []
    for words, study, effects in (
        ("within runs", partial(within, residuals(models, series)), WITHIN_EFFECTS),
        ("between runs", partial(between, at_30_percent), BETWEEN_EFFECTS),
    ):
        for effect in effects:
            random = np.random.default_rng([42, int(1000 * effect)])
            p = np.array([study(effect, random) for _ in range(studies)])
            power = {f"found at {level:g}": f"{100 * np.mean(p <= level):.1f}%" for level in LEVELS}
            rows.append({"question": words, "effect": effect, **power})
    print(small_tables.markdown(pd.DataFrame(rows)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
