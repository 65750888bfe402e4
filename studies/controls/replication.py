"""The replication: `PYTHONPATH=workflow python -m studies.controls.replication TABLES` (question 2 of the plan).

It writes `replicated.csv`: the correlations of the primary questions of study 4 in its fresh runs, by size.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from studies import small_tables
from studies.over_seeds import MIN_SEEDS, STUDY_DRAWS, fisher_interval
from studies.study4.questions import BEYOND_NUCLEAR, LEVEL, LOW_RATE, PRIMARY, SEED, Question, read_of, tables_of
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.freedman_lane import fitted_configurations, permuted_correlations

STUDY_4 = Path("studies/study4/tables")
EXPECTED = {"tiny-3k-fifth": 2936, "small-7k-fifth": 7408}
"""The number of parameters of each size, by which study 4 has the correlation that is expected."""


def tested(question: Question, models: pd.DataFrame, draws: int) -> tuple[float, int, float]:
    """Return the mean partial correlation of a question, the degrees of freedom of its Fisher z, and the one-sided p that
    it is below 0."""
    read = read_of(question, tables_of(models))
    values = read.features.xs(question.feature, level="feature").to_numpy(np.float64)
    fits = fitted_configurations(values, read.outcome[None], read.controls, read.configurations)
    degrees = np.array([fit.degrees_of_freedom for fit in fits])
    blocks = permuted_correlations(fits, draws=draws, seed=SEED)
    means: Floats = np.concatenate([np.hstack(correlations) for correlations, _ in blocks]) @ degrees / degrees.sum()
    return float(means[0]), int(degrees.sum() - len(fits)), float(np.mean(means <= means[0] + 1e-12))


def power(expected: float, degrees_of_freedom: int) -> float:
    """Return the power of the one-sided test if the correlation is that of study 4."""
    return float(norm.cdf(abs(np.arctanh(expected)) * np.sqrt(degrees_of_freedom) - norm.ppf(1 - LEVEL)))


def rows(replication: pd.DataFrame, expected: pd.DataFrame, draws: int = STUDY_DRAWS) -> Iterator[dict[str, Any]]:
    """Yield a row for each size with enough runs and each primary question."""
    for entry, models in replication.groupby("entry", sort=False):
        if models["configuration"].value_counts().min() < MIN_SEEDS:
            continue
        for question in PRIMARY:
            name = f"{question.name}, {EXPECTED[str(entry)]} parameters"
            before = expected[(expected["question"] == name) & (expected["rate"] == LOW_RATE)].iloc[0]
            is_primary = question == BEYOND_NUCLEAR and entry == "tiny-3k-fifth"
            estimate, degrees, p = tested(question, models, draws if is_primary else 1)
            low, high = fisher_interval(np.array(estimate), degrees)
            row = {"entry": entry, "question": question.name, "runs": len(models), "estimate": estimate}
            row |= {"low": float(low), "high": float(high), "one_sided_p": p if is_primary else float("nan")}
            row |= {"study_4": before["estimate"], "study_4_low": before["low"], "study_4_high": before["high"]}
            z = np.arctanh(estimate) - np.arctanh(before["estimate"])
            of_study_4 = ((np.arctanh(before["high"]) - np.arctanh(before["low"])) / 2 / norm.ppf(0.975)) ** 2
            row["difference_p"] = float(2 * norm.sf(abs(z) / np.sqrt(1 / degrees + of_study_4)))
            yield row | {"power": power(before["estimate"], degrees)}


def main(folder: Path) -> None:
    """Write and print the table."""
    table = pd.DataFrame(rows(pd.read_csv(folder / "replication.csv.gz"), pd.read_csv(STUDY_4 / "secondary.csv")))
    small_tables.write(table, folder / "replicated.csv")
    print(small_tables.markdown(table))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
