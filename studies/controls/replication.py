"""The replication: `PYTHONPATH=workflow python -m studies.controls.replication TABLES` (question 2 of the plans).

It writes `replicated.csv`, the correlations of the primary questions of study 4 in fresh runs, by size and text;
`size_difference.csv`, how far the sizes differ; and, not planned, `together.csv`, what study 4 and the fresh runs have of
topology beyond the spectrum.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm

from studies import small_tables
from studies.controls.study_4 import POWER, SCORE_BEYOND, STUDY_4, runs_of_study_4
from studies.over_seeds import MIN_SEEDS, STUDY_DRAWS, fisher_interval
from studies.study4.questions import (
    BEYOND_NUCLEAR,
    BEYOND_SURROGATES,
    LEVEL,
    LOW_RATE,
    PRIMARY,
    SEED,
    Question,
    read_of,
    tables_of,
)
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.freedman_lane import fitted_configurations, permuted_correlations
from toposcale.statistics.multiple_testing import holm

SEEN_SEEDS = 18
"""Seeds of each setting of 3K that were seen before the second plan."""
FIRST, SECOND, BOTH = "first plan", "second plan", "both plans"


class Hypothesis(NamedTuple):
    """Hypothesis of a plan on the correlation of H0 given the nuclear norm with the final loss.

    entry: models whose fresh runs test it. n_parameters: their size, by which study 4 has the correlation. sign: that of
    the correlation. in_family: whether Holm's correction is over it and the others of the family.
    """

    entry: str
    n_parameters: int
    sign: int
    in_family: bool

    @property
    def level(self) -> float:
        """Level of the test that power is computed for; in the family, that of the strictest step of Holm's correction."""
        return LEVEL / 2 if self.in_family else LEVEL


HYPOTHESES = (
    Hypothesis("tiny-3k-fifth", 2936, -1, in_family=True),
    Hypothesis("small-7k-fifth", 7408, 1, in_family=True),
    Hypothesis("tiny-3k-wikitext-fifth", 2936, -1, in_family=False),
)


def samples(runs: pd.DataFrame, hypothesis: Hypothesis) -> dict[str, pd.DataFrame]:
    """Return the runs of a hypothesis by the plan that they belong to, and all, where the first plan has some."""
    own = runs[runs["entry"] == hypothesis.entry]
    number = own["seed"] - own.groupby("configuration")["seed"].transform("min")
    if hypothesis.entry != HYPOTHESES[0].entry:
        return {SECOND: own}
    return {FIRST: own[number < SEEN_SEEDS], SECOND: own[number >= SEEN_SEEDS], BOTH: own}


def tested(question: Question, models: pd.DataFrame, sign: int, draws: int) -> tuple[float, int, float]:
    """Return the mean partial correlation of a question, the degrees of freedom of its Fisher z, and the one-sided p that
    it has the sign."""
    read = read_of(question, tables_of(models))
    values = read.features.xs(question.feature, level="feature").to_numpy(np.float64)
    fits = fitted_configurations(values, read.outcome[None], read.controls, read.configurations)
    degrees = np.array([fit.degrees_of_freedom for fit in fits])
    blocks = permuted_correlations(fits, draws=draws, seed=SEED)
    means: Floats = np.concatenate([np.hstack(correlations) for correlations, _ in blocks]) @ degrees / degrees.sum()
    return float(means[0]), int(degrees.sum() - len(fits)), float(np.mean(sign * means >= sign * means[0] - 1e-12))


def rows(runs: pd.DataFrame, expected: pd.DataFrame, draws: int = STUDY_DRAWS) -> Iterator[dict[str, Any]]:
    """Yield a row for each hypothesis, sample with enough runs, and primary question of study 4."""
    for hypothesis in HYPOTHESES:
        for sample, models in samples(runs, hypothesis).items():
            if models.empty or models["configuration"].value_counts().min() < MIN_SEEDS:
                continue
            for question in PRIMARY:
                name = f"{question.name}, {hypothesis.n_parameters} parameters"
                before = expected[(expected["question"] == name) & (expected["rate"] == LOW_RATE)].iloc[0].to_dict()
                key = {"entry": hypothesis.entry, "sample": sample, "question": question.name, "runs": len(models)}
                yield key | compared(question, hypothesis, models, before, draws if sample != BOTH else 1)


def compared(
    question: Question, hypothesis: Hypothesis, models: pd.DataFrame, before: Mapping[Any, Any], draws: int
) -> dict[str, Any]:
    """Return the estimate of a question with its 95% interval, what study 4 has, and how far both differ.

    The hypothesis has one_sided_p, detectable (what is found in 80% of cases) and power (if the correlation is that of
    study 4); other questions, and samples with one draw, have NaN.
    """
    is_hypothesis = question == BEYOND_NUCLEAR and draws > 1
    estimate, degrees, p = tested(question, models, hypothesis.sign, draws if is_hypothesis else 1)
    low, high = map(float, fisher_interval(np.array(estimate), degrees))
    row: dict[str, Any] = {"estimate": estimate, "low": low, "high": high}
    critical, expected = norm.isf(hypothesis.level), abs(np.arctanh(before["estimate"])) * np.sqrt(degrees)
    of_test = {
        "one_sided_p": p,
        "detectable": float(np.tanh((critical + norm.ppf(POWER)) / np.sqrt(degrees))),
        "power": float(norm.cdf(expected - critical)),
    }
    row |= of_test if is_hypothesis else dict.fromkeys(of_test, float("nan"))
    row |= {f"study_4{name}": before[column] for name, column in (("", "estimate"), ("_low", "low"), ("_high", "high"))}
    difference = np.arctanh(estimate) - np.arctanh(before["estimate"])
    error = np.hypot(z_error(row), z_error(before))
    return row | {"difference_p": float(2 * norm.sf(abs(difference) / error))}


def z_error(row: Mapping[Any, Any]) -> float:
    """Return the standard error of Fisher's z of a correlation from its 95% interval."""
    return float((np.arctanh(row["high"]) - np.arctanh(row["low"])) / 2 / norm.ppf(0.975))


def corrected(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with Holm's correction over the primary hypotheses, those of the second plan on the first text."""
    family = [hypothesis.entry for hypothesis in HYPOTHESES if hypothesis.in_family]
    primary = table["entry"].isin(family) & (table["sample"] == SECOND) & (table["question"] == BEYOND_NUCLEAR.name)
    return table.assign(corrected_p=pd.Series(holm(table.loc[primary, "one_sided_p"]), table.index[primary]))


def size_difference(table: pd.DataFrame) -> pd.DataFrame:
    """Return how far 3K and 7K differ in the second plan, in Fisher's z, with its 95% interval."""
    own = table[(table["sample"] == SECOND) & (table["question"] == BEYOND_NUCLEAR.name)]
    by_entry = own.set_index("entry").to_dict("index")
    small, large = (by_entry[hypothesis.entry] for hypothesis in HYPOTHESES[:2])
    z = np.arctanh(small["estimate"]) - np.arctanh(large["estimate"])
    half = norm.ppf(0.975) * np.hypot(z_error(small), z_error(large))
    return pd.DataFrame([{"less": "3K less 7K", "difference": z, "low": z - half, "high": z + half}])


def together(runs: pd.DataFrame, before: pd.DataFrame) -> pd.DataFrame:
    """Return by size the correlations of topology beyond the spectrum in study 4, in the fresh runs, and their
    common-effect mean, with 95% intervals."""
    rows = []
    for hypothesis in HYPOTHESES[:2]:
        parts = {
            "study 4": before[before["n_parameters"] == hypothesis.n_parameters],
            "fresh": runs[runs["entry"] == hypothesis.entry],
        }
        for question in (BEYOND_SURROGATES, SCORE_BEYOND):
            estimates = {name: tested(question, part, hypothesis.sign, draws=1)[:2] for name, part in parts.items()}
            correlations, degrees = zip(*estimates.values(), strict=True)
            mean = np.tanh(np.average(np.arctanh(correlations), weights=degrees))
            estimates["together"] = float(mean), sum(degrees)
            for name, (estimate, degrees_of_freedom) in estimates.items():
                low, high = map(float, fisher_interval(np.array(estimate), degrees_of_freedom))
                key = {"n_parameters": hypothesis.n_parameters, "question": question.name, "runs": name}
                rows.append(key | {"estimate": estimate, "low": low, "high": high})
    return pd.DataFrame(rows)


def main(folder: Path) -> None:
    """Write and print the tables."""
    runs, expected = pd.read_csv(folder / "replication.csv.gz"), pd.read_csv(STUDY_4 / "secondary.csv")
    table = corrected(pd.DataFrame(rows(runs, expected)))
    before = runs_of_study_4()
    results = {
        "replicated": table,
        "size_difference": size_difference(table),
        "together": together(runs, before[before["learning_rate"] == LOW_RATE]),
    }
    print(small_tables.sections(results, folder, "##"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
