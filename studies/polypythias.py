"""What nine seeds can show: `python -m studies.polypythias 200` prints the power that docs/polypythias.md has.

Simulated are configurations of nine runs, drawn from the configurations of the first study. Within runs: prewhitened
residuals of a feature and of the losses of other runs, with an effect. Between runs: the feature and the controls of a
run stay together; the final loss is what the controls tell, and permuted residuals with an effect. A test finds an
effect where p is at most 0.05, and, the strictest that Holm asks for among four, 0.0125.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pandas as pd

from studies import small_tables
from studies.simulation import Between, seed_of
from studies.study2.power import FIRST, Within
from studies.study2.power import between as between_of_first
from toposcale.statistics.coefficients import average_ranks, pearson
from toposcale.statistics.freedman_lane import between_runs, fit_of_configuration
from toposcale.statistics.run_permutation import permute_pairs

RUNS, DRAWS = 9, 999
LEVELS = (0.05, 0.0125)
WITHIN_EFFECTS, BETWEEN_EFFECTS = (0.0, 0.1, 0.15, 0.2, 0.3), (0.0, 0.5, 0.7, 0.9)


def within(configurations: Within, effect: float, random: np.random.Generator) -> float:
    """p of the run permutation of nine runs with an effect in one feature."""
    own = random.choice(
        np.flatnonzero(configurations.configurations == random.choice(np.unique(configurations.configurations))),
        RUNS,
        False,
    )
    index = random.integers(len(configurations.features))
    x = _standard(np.array([configurations.x[run][index] for run in own]))
    y = _standard(np.array([configurations.y[run] for run in random.permutation(own)]))
    y = effect * x + np.sqrt(1 - effect**2) * y
    table = pearson(average_ranks(x), average_ranks(y))
    return float(permute_pairs(table, ["one"] * RUNS, draws=DRAWS, seed=seed_of(random)).p)


def between(configurations: Between, effect: float, random: np.random.Generator) -> float:
    """p of the test between nine runs with an effect in one feature."""
    own = random.choice(
        np.flatnonzero(configurations.configurations == random.choice(np.unique(configurations.configurations))),
        RUNS,
        False,
    )
    feature = configurations.features[random.integers(len(configurations.features))][None, own]
    controls, outcome = configurations.read.controls[:, own], configurations.read.outcome[own].copy()
    fit = fit_of_configuration(feature, outcome[None], controls, np.arange(RUNS))
    rest = random.permutation(fit.residuals)
    told = effect * fit.features[0] * np.sqrt(rest @ rest)
    outcome += told + np.sqrt(1 - effect**2) * rest - fit.residuals
    test = between_runs(feature, outcome, ["one"] * RUNS, controls, draws=DRAWS, seed=seed_of(random))
    return float(test.p[0])


def _standard(rows: np.ndarray) -> np.ndarray:
    return (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)


def main(studies: int) -> None:
    """Print the share of simulated studies that find each effect."""
    tables = [pd.read_csv(FIRST / name) for name in ("models.csv", "series.csv.gz", "early.csv.gz")]
    inside, early = Within(*tables), between_of_first(*tables)
    rows = []
    for words, study, effects in (
        ("within runs", partial(within, inside), WITHIN_EFFECTS),
        ("between runs", partial(between, early), BETWEEN_EFFECTS),
    ):
        for effect in effects:
            random = np.random.default_rng([42, int(1000 * effect)])
            p = np.array([study(effect, random) for _ in range(studies)])
            found = {f"found at {level:g}": f"{100 * np.mean(p <= level):.1f}%" for level in LEVELS}
            rows.append({"question": words, "effect": effect, **found})
    print(small_tables.markdown(pd.DataFrame(rows)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
