"""What the second study can find: `python -m studies.study2.power 200` prints its power, and the coverage of its intervals.

Its 15 configurations of 40 runs are simulated from the configurations of the first study, which keep what features,
losses and controls have to do with each other, and how far each configuration spreads: the outcomes are what the
controls of a configuration tell, and permuted residuals with an effect. The tests are those of the study with 999
permutations. A test finds an effect where p is at most 0.05, and, the strictest that Holm asks for among six, 0.05 / 6.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from studies import small_tables
from studies.over_seeds import own_surplus
from studies.simulation import DRAWS, Between, Found, seed_of, table
from studies.study2.questions import CONFIGURATIONS, PRIMARY
from toposcale.analysis.over_seeds import early_values
from toposcale.features.feature import WEIGHT_NORM
from toposcale.io.metrics import VALIDATION_LOSS
from toposcale.statistics.coefficients import Floats, average_ranks, pearson
from toposcale.statistics.prewhitening import prewhiten, testable_segment, with_squares
from toposcale.statistics.run_permutation import permute_pairs

FIRST = Path("studies/study/tables/study")


def between(models: pd.DataFrame, series: pd.DataFrame, early: pd.DataFrame) -> Between:
    """The test between runs. Two random controls stand for the norms that the first study's tables do not have."""
    read = early_values(*small_tables.long_tables(series, early), models, VALIDATION_LOSS, [WEIGHT_NORM.feature])
    assert read is not None
    configurations = np.array(read.configurations)

    def drawn(random: np.random.Generator) -> list[NDArray[np.int64]]:
        return [np.flatnonzero(configurations == name) for name in drawn_configurations(configurations, random)]

    return Between(read, PRIMARY, random_controls=2, drawn=drawn)


class Within:
    """The run permutation of prewhitened residuals. The norm of a sister run stands for the mean norm of layers."""

    effects = (0.0, 0.02, 0.03, 0.04, 0.05)
    features = ("neural_persistence", "h0_total_scaled")

    def __init__(self, models: pd.DataFrame, series: pd.DataFrame, early: pd.DataFrame) -> None:
        names, self.configurations = models["model"], models["configuration"].to_numpy()
        warmup = {*models["warmup_steps"]}.pop()
        wide = {
            name: series.pivot(index="model", columns="step", values=name).loc[names]
            for name in (*self.features, WEIGHT_NORM.feature, VALIDATION_LOSS)
        }
        segment = testable_segment(wide[VALIDATION_LOSS].columns, warmup)
        values = {name: table.to_numpy()[:, segment.start : segment.stop] for name, table in wide.items()}
        norms = values[WEIGHT_NORM.feature]
        self.x, self.y = [], []
        for run, configuration in enumerate(self.configurations):
            sisters = np.flatnonzero(self.configurations == configuration)
            sister = sisters[(np.flatnonzero(sisters == run)[0] + 1) % len(sisters)]
            given = with_squares(norms[[run, sister]])
            of_run = np.stack([values[name][run] for name in self.features])
            self.x.append(prewhiten(of_run, given).values)
            self.y.append(prewhiten(values[VALIDATION_LOSS][run], given).values[0])

    def study(self, effect: float, random: np.random.Generator) -> Found:
        """One study with an effect in one feature: its p, and whether the interval holds the effect.

        What the statistic estimates under an effect is a little smaller, since it correlates ranks.
        """
        names, index = drawn_configurations(self.configurations, random), random.integers(len(self.features))
        blocks = []
        for name in names:
            own = np.flatnonzero(self.configurations == name)
            x = _standard(np.array([self.x[run][index] for run in own]))
            y = _standard(np.array([self.y[run] for run in random.permutation(own)]))
            y = effect * x + np.sqrt(1 - effect**2) * y
            blocks.append(pearson(average_ranks(x), average_ranks(y)))
        labels = np.repeat(np.arange(len(names)), [len(block) for block in blocks])
        table = np.zeros((len(labels), len(labels)))
        for label, block in enumerate(blocks):
            own = np.flatnonzero(labels == label)
            table[np.ix_(own, own)] = block
        test = permute_pairs(table, labels.tolist(), draws=DRAWS, seed=seed_of(random))
        surplus = own_surplus(table, labels.tolist())
        holds = abs(surplus.mean() - effect) <= 1.959964 * surplus.std(ddof=1) / np.sqrt(len(surplus))
        return float(test.p), bool(holds)


def drawn_configurations(configurations: np.ndarray, random: np.random.Generator) -> list[str]:
    """The configurations of a simulated study: all of the first one, and some of them again until there are enough."""
    names = list(dict.fromkeys(configurations))
    return [*names, *random.choice(names, CONFIGURATIONS - len(names), replace=False)]


def _standard(rows: Floats) -> Floats:
    return (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    tables = [pd.read_csv(FIRST / name) for name in ("models.csv", "series.csv.gz", "early.csv.gz")]
    for kind, simulated in (("Between", between(*tables)), ("Within", Within(*tables))):
        shown = table(simulated.study, simulated.effects, count)
        print(f"\n{kind} runs, {count} simulated studies an effect\n\n{small_tables.markdown(shown)}", flush=True)
