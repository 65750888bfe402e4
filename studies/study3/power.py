"""What the third study can find: `python -m studies.study3.power 400` prints its power, and the coverage of its intervals.

Its 17 configurations are simulated from the 15 configurations of the second study, two of them drawn twice, the last
one with 24 runs. Controls that the second study's tables do not have are random. The tests are those of the study with
999 permutations.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies import small_tables
from studies.norms import NORMS
from studies.simulation import Between, table
from studies.study2.__main__ import read
from studies.study3.questions import PRIMARY, SHAPE
from toposcale.analysis.over_seeds import early_values
from toposcale.io.metrics import VALIDATION_LOSS

SECOND = Path("studies/study2/tables")
LAST = 24
"""Runs of the smallest configuration of the plan."""
FEATURES = {VALIDATION_LOSS: ("h0_total", "h0_mean"), "generalisation_gap": (SHAPE,)}
"""The features in which effects are planted, by outcome: those of the primary questions that the tables have."""


def between(folder: Path, metric: str, extra: int) -> Between:
    """Studies of an outcome given the norms and so many controls more."""
    models, series, early = read(folder)
    values = early_values(*small_tables.long_tables(series, early), models, metric, NORMS)
    assert values is not None
    configurations = np.array(values.configurations)
    indices = [np.flatnonzero(configurations == name) for name in dict.fromkeys(values.configurations)]

    def drawn(random: np.random.Generator) -> list[NDArray[np.int64]]:
        larger, largest = random.choice(len(indices), 2, replace=False)
        return [*indices, indices[larger], random.choice(indices[largest], LAST, replace=False)]

    return Between(values, FEATURES[metric], random_controls=extra, drawn=drawn)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    shown = set()
    for question in PRIMARY:
        outcome = VALIDATION_LOSS if question.outcome == VALIDATION_LOSS else "generalisation_gap"
        more = len(question.given) - len(NORMS)
        if (outcome, more) not in shown:
            shown.add((outcome, more))
            study = between(SECOND, outcome, more)
            power = small_tables.markdown(table(study.study, study.effects, count))
            print(
                f"\n{outcome}, {more} controls beside the norms, {count} simulated studies an effect\n\n{power}",
                flush=True,
            )
