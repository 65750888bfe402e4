"""Surrogates that also keep the norms of the rows: H0 of a few newly trained models against both kinds of surrogates.

`PYTHONPATH=workflow python -m studies.study4.row_norms FOLDER WORK` trains `RUNS` runs of each configuration of the fourth
study to 30%, with seeds that no study has, and writes `row_norms.csv` into FOLDER (WORK keeps the text). Not planned: the
weights of the study were not kept, so its tests cannot be repeated with these surrogates without training it again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from studies import small_tables
from studies.over_seeds import SHARE
from studies.study4.configurations import Configuration, planned
from studies.study4.runs import begin, checkpoint_at, matrices_of, text_of
from toposcale import homology
from toposcale.homology.sampling import SeedPart
from toposcale.statistics.coefficients import Floats
from toposcale.training import trainer

RUNS, DRAWS = 5, 20
ROUNDS = 100
"""Rounds of random rotations, each of all rows in pairs."""


def surrogate_with_row_norms(weight: ArrayLike, *, seed: tuple[SeedPart, ...]) -> Floats:
    """Return a random matrix with the singular values, right singular vectors and row norms of `weight` (n_out, n_in).

    Two rows a and b can be rotated into each other by two angles that keep both norms: 0, and the one whose tangent is
    2 a.b / (a.a - b.b). Random pairs are rotated by the latter, and random signs drawn. On the circle of all rotations of
    two rows this is a reflection. So these steps leave the uniform distribution on left rotations as it is, also given
    the row norms, and a matrix of rows in random directions has the distribution of its surrogates.
    """
    drawn = np.array(weight, dtype=np.float64)
    generator = homology.seeded_generator(seed)
    for _ in range(ROUNDS):
        drawn *= generator.choice([-1.0, 1.0], size=(len(drawn), 1))
        pairs = generator.permutation(len(drawn))[: len(drawn) // 2 * 2].reshape(2, -1)
        one, other = drawn[pairs]
        angle = np.arctan2(2 * (one * other).sum(axis=1), (one**2).sum(axis=1) - (other**2).sum(axis=1))
        cosine, sine = np.cos(angle)[:, None], np.sin(angle)[:, None]
        drawn[pairs] = cosine * one + sine * other, cosine * other - sine * one
    return drawn


def score(weight: Floats, surrogate: Callable[..., Floats], *, draws: int = DRAWS, seed: tuple[SeedPart, ...]) -> float:
    """Return the z-score of the total H0 persistence of the rows of a matrix among its surrogates."""
    own, *drawn = (
        float(homology.h0_lifetimes(matrix).sum())
        for matrix in (weight, *(surrogate(weight, seed=(*seed, draw)) for draw in range(draws)))
    )
    return homology.z_score(own, drawn)


def measured(configuration: Configuration, work: Path, runs: int = RUNS, draws: int = DRAWS) -> pd.DataFrame:
    """Return the scores of each matrix of so many new runs of a configuration at 30%."""
    text, planned_run = text_of(configuration, work), next(iter(configuration.runs.values()))
    rows = []
    for run in range(runs):
        start = begin(replace(planned_run, seed=run), text)
        trainer.train(start.state, start.schedule, start.tokens, checkpoint_at(planned_run, SHARE))
        for layer, parameters in matrices_of(start.state).items():
            weight, seed = np.asarray(parameters, np.float64), (run, layer)
            rows.append(
                {
                    "entry": planned_run.entry,
                    "layer": layer,
                    "spectrum": score(weight, homology.spectrum_surrogate, draws=draws, seed=seed),
                    "row norms too": score(weight, surrogate_with_row_norms, draws=draws, seed=seed),
                }
            )
    return pd.DataFrame(rows)


def main(folder: Path, work: Path) -> None:
    """Write and print the mean scores over runs by size and matrix, and their standard deviations."""
    scores = pd.concat([measured(configuration, work) for configuration in planned(Path())])
    groups = scores.groupby(["entry", "layer"], sort=False)
    table = groups.mean().join(groups.std().add_suffix(", sd")).assign(runs=groups.size()).reset_index()
    small_tables.write(table, folder / "row_norms.csv")
    print(small_tables.markdown(table))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
