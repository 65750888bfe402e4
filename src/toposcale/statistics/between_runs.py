"""Does a feature early in training tell which run of a cell ends lower, beyond what its loss tells by then?

Each cell is fitted by itself, with a mean and slopes of its own for the controls, and gives one partial correlation of the
outcome with the feature. So the runs of a cell are told apart in units of their own spread, and no cell decides because it
spreads more. The statistic is the mean over cells, weighted by the degrees of freedom.

Permutations of the residuals within cells (Freedman and Lane 1983): the outcome is fitted by the controls of its cell, its
residuals are permuted among the runs of the cell, and the partial correlations are computed anew.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toposcale.statistics.coefficients import Floats, as_series, is_constant, orthogonal_to, unit_rows
from toposcale.statistics.permutations import DRAWS, blocks_within_cells, share_as_extreme

MIN_FREEDOM = 3
"""Degrees of freedom that the controls must leave in a cell; a cell with fewer is left out."""


@dataclass(frozen=True)
class BetweenRuns:
    """Mean partial correlations (S,) and two-sided p-values (S,), NaN where nothing is left of a feature in any cell.

    freedom: runs less controls, mean and one, summed over the n_cells cells that were tested, which have n_runs runs;
    n_permutations: those counted; exact: whether these are all.
    """

    correlation: Floats
    p: Floats
    freedom: int
    n_runs: int
    n_cells: int
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

    A control that is constant within a cell costs no degree of freedom there. ValueError where the arguments do not name
    the same runs.
    """
    features, outcome = as_series(x, "x"), as_series(y, "y")
    runs = outcome.shape[1]
    controls_of_runs = as_series(controls, "controls") if controls is not None else np.zeros((0, runs))
    counts = features.shape[1], runs, len(cells), controls_of_runs.shape[1]
    if len(set(counts)) > 1:
        raise ValueError("x, y, cells and controls: {}, {}, {} and {} runs".format(*counts))
    tested = fitted_cells(features, outcome, controls_of_runs, cells)
    if not tested:
        nothing = np.full((2, len(features)), np.nan)
        return BetweenRuns(nothing[0], nothing[1], 0, 0, 0, 0, False)
    weights = sum(cell.freedom * cell.features.any(axis=1) for cell in tested)
    parts, exact = [], False
    for by_cell, all_of_them in permuted_correlations(tested, draws=draws, seed=seed):
        total = np.zeros_like(by_cell[0])
        for cell, correlations in zip(tested, by_cell, strict=True):
            total += cell.freedom * correlations
        parts.append(total)
        exact = all_of_them
    statistics = np.concatenate(parts)
    with np.errstate(invalid="ignore", divide="ignore"):
        statistics = statistics / weights
    p, freedom = share_as_extreme(statistics), sum(cell.freedom for cell in tested)
    n_runs = sum(len(cell.residuals) for cell in tested)
    return BetweenRuns(statistics[0], p, freedom, n_runs, len(tested), len(statistics), exact)


class CellFit(NamedTuple):
    """One cell of n runs: the fit by its mean and controls (k, n), and what that leaves.

    features (S, n): of length 1, zeros where nothing is left; residuals (n,) of the outcome; freedom: n less rank and one.
    """

    design: Floats
    features: Floats
    residuals: Floats
    freedom: int

    def correlations(self, outcomes: Floats) -> Floats:
        """Partial correlations (P, S) of outcomes (P, n), of which the fit takes its part first."""
        return unit_rows(orthogonal_to(outcomes, self.design)[0]) @ self.features.T


def fitted_cells(features: Floats, outcome: Floats, controls: Floats, cells: Sequence[object]) -> list[CellFit]:
    """The fits of the cells that are tested: features (S, R), outcome (1, R), controls (C, R)."""
    fits = (
        fit_of_cell(features, outcome, controls, np.flatnonzero([cell == other for other in cells]))
        for cell in dict.fromkeys(cells)
    )
    return [fit for fit in fits if fit.freedom >= MIN_FREEDOM and fit.residuals.any()]


def permuted_correlations(tested: Sequence[CellFit], *, draws: int, seed: int) -> Iterator[tuple[list[Floats], bool]]:
    """Some permutations at a time: the partial correlations (P, S) of each cell, and whether all are counted.

    The first permutation of all is the identity.
    """
    labels = np.repeat(np.arange(len(tested)), [len(cell.residuals) for cell in tested])
    members = [np.flatnonzero(labels == place) for place in range(len(tested))]
    for orders, all_of_them in blocks_within_cells(labels.tolist(), draws=draws, seed=seed):
        by_cell = zip(tested, (orders[:, own] - own[0] for own in members), strict=True)
        yield [cell.correlations(cell.residuals[order]) for cell, order in by_cell], all_of_them


def fit_of_cell(features: Floats, outcome: Floats, controls: Floats, runs: NDArray[np.int64]) -> CellFit:
    """The fit of the runs of one cell: features (S, R), outcome (1, R), controls (C, R)."""
    kept = controls[:, runs]
    kept = kept[~is_constant(kept)]
    # Without their mean, so that the fit is well conditioned.
    design = np.vstack([np.ones((1, len(runs))), kept - kept.mean(axis=1, keepdims=True)])
    rest, rank = orthogonal_to(outcome[:, runs], design)
    left, _ = orthogonal_to(features[:, runs], design)
    left[is_constant(features[:, runs])] = 0.0
    return CellFit(design, unit_rows(left), rest[0], len(runs) - rank - 1)
