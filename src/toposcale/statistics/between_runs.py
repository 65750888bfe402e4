"""Does a feature early in training tell which run of a cell ends lower, beyond what its loss tells by then?

Partial correlation of an outcome with a feature over runs, given controls and the cell, with permutations of the residuals
within cells (Freedman and Lane 1983): the outcome is fitted by controls and cells alone, its residuals are permuted among
the runs of a cell, and the partial correlation is computed anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from toposcale.statistics.coefficients import Floats, as_series, orthogonal_to
from toposcale.statistics.permutations import DRAWS, share_as_extreme, within_cells

MIN_FREEDOM = 3
"""Degrees of freedom that controls and cells must leave."""


@dataclass(frozen=True)
class BetweenRuns:
    """Partial correlations (S,) and two-sided p-values (S,), NaN where nothing is left of a feature or of the outcome.

    freedom: runs less cells, controls and one; n_permutations: those counted; exact: whether these are all.
    """

    correlation: Floats
    p: Floats
    freedom: int
    n_permutations: int
    exact: bool


def between_runs(
    x: ArrayLike,
    y: ArrayLike,
    cells: Sequence[object],
    controls: ArrayLike | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> BetweenRuns:
    """The test of S features x (S, R) against an outcome y (R,) of R runs, given their cells and controls (C, R).

    Fewer than `MIN_FREEDOM` degrees of freedom give NaN. ValueError where the arguments do not name the same runs.
    """
    features, outcome = as_series(x, "x"), as_series(y, "y")
    given = as_series(controls, "controls") if controls is not None else np.zeros((0, outcome.shape[1]))
    runs = outcome.shape[1]
    if features.shape[1] != runs or given.shape[1] != runs or len(cells) != runs:
        raise ValueError(
            f"x, y, cells and controls: {features.shape[1]}, {runs}, {len(cells)} and {given.shape[1]} runs"
        )
    distinct = list(dict.fromkeys(cells))
    dummies = np.array([[cell == one for cell in cells] for one in distinct], dtype=np.float64)
    # Without the mean of each cell, so that the fit is well conditioned.
    inside = given - (given @ dummies.T / dummies.sum(axis=1)) @ dummies
    design = np.vstack([dummies, inside])
    left, _ = orthogonal_to(features, design)
    rest, rank = orthogonal_to(outcome, design)
    freedom = runs - rank - 1
    nothing = np.full(len(features), np.nan)
    if freedom < MIN_FREEDOM or not rest.any():
        return BetweenRuns(nothing, nothing.copy(), freedom, 0, False)
    orders, exact = within_cells(cells, draws=draws, seed=seed)
    # What the fit holds of the permuted outcome is removed again, so the residuals alone need to be permuted.
    permuted, _ = orthogonal_to(rest[0][orders], design)
    correlations = _unit(permuted) @ _unit(left).T
    return BetweenRuns(correlations[0], share_as_extreme(correlations), freedom, len(orders), exact)


def _unit(rows: Floats) -> Floats:
    length = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return np.where(length > 0, rows / np.where(length > 0, length, 1.0), np.nan)
