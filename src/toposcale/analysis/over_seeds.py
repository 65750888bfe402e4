"""Tests over the seeds of a cell: run permutation, and what tells which run of a cell ends lower."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from toposcale.analysis.controls import CONTROLS
from toposcale.analysis.series import (
    SERIES_KEY,
    Aligned,
    aligned_series,
    cells_of,
    warmups_of,
    whole_model,
)
from toposcale.features.registry import WEIGHT_NORM
from toposcale.io import schemas
from toposcale.statistics.between_runs import between_runs
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.innovations import innovations, lagged, with_squares
from toposcale.statistics.run_permutation import MIN_SEEDS, run_permutation
from toposcale.statistics.testable import MIN_POINTS

NO_SEEDS = f"no cell has {MIN_SEEDS} seeds"
EARLY, SHARE = 0.2, 0.3
"""Shares of training at which the losses, and at the later one the features, are read."""
NEARLY = 0.99
"""Share of its steps at which a run has a loss of its end."""


def run_permutation_table(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, *, metric: str, seed: int
) -> pd.DataFrame:
    """Innovations of whole-model features with the losses of their own run against those of its sister runs.

    Cells of at least `MIN_SEEDS` runs count, on the testable stretch or, where there is none, on all checkpoints: what
    the runs of a cell share cancels. A row for each feature that has the same checkpoints in all of these runs.
    """
    parts = []
    for paired in paired_innovations(features, metrics, models, metric=metric):
        test = run_permutation(paired.x, paired.y, paired.cells, paired.controls, seed=seed)
        found = {"by_chance": test.by_chance[:, 0], "correlation": test.correlation[:, 0], "p": test.p[:, 0]}
        known = {"n": paired.n, "n_permutations": test.n_pairings, "exact": test.exact}
        parts.append(_rows(paired.keys, metric, paired.cells, found | known))
    return schemas.TABLES["over_seeds"].frame(pd.concat(parts) if parts else [])


def _rows(
    keys: Sequence[tuple[str, ...]], metric: str, cells: Sequence[str], found: Mapping[str, Any]
) -> pd.DataFrame:
    """A row for each of S keys; found: a column each, (S,) or one value. cells: that of each run."""
    table = pd.DataFrame(keys, columns=SERIES_KEY)
    return table.assign(metric=metric, n_runs=len(cells), n_cells=len(set(cells)), **found)


class Paired(NamedTuple):
    """Innovations of the features x (R runs of S, m) and of the metric y (R of 1, m) on the same n checkpoints, the cell
    and the controls of each run, and the S keys."""

    keys: list[tuple[str, ...]]
    x: list[Floats]
    y: list[Floats]
    cells: list[str]
    controls: list[Floats]
    n: int


def paired_innovations(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, *, metric: str
) -> Iterator[Paired]:
    """What `run_permutation_table` permutes: the features that all runs of full cells have on the same checkpoints."""
    warmups, cells = warmups_of(models), full_cells(features, metrics, models, metric)
    whole = whole_model(features)
    chosen = metrics[metrics["metric"] == metric]
    runs: dict[str, dict[tuple[float, ...], Aligned]] = {}
    inside, losses = whole[whole["model"].isin(cells)], chosen[chosen["model"].isin(cells)]
    for group in aligned_series(inside, losses, CONTROLS["weight_norm"]):
        cut, reason = group.testable(warmups)
        used = group if reason else cut
        if used.n >= MIN_POINTS and not used.missing:
            grids = runs.setdefault(group.model, {})
            # Series that differ before the stretch alone, such as distances from the checkpoint before, come in groups.
            earlier = grids.get(tuple(used.steps))
            grids[tuple(used.steps)] = used if earlier is None else earlier.beside(used)
    for steps in sorted({steps for grids in runs.values() for steps in grids}):
        own = {model: grids[steps] for model, grids in runs.items() if steps in grids}
        if set(own) == set(cells):
            yield from _paired(own, cells)


def _paired(runs: Mapping[str, Aligned], cells: Mapping[str, str]) -> Iterator[Paired]:
    names = sorted(runs)
    keys = sorted(set.intersection(*({tuple(key) for key in runs[name].keys.to_numpy()} for name in names)))
    if not keys:
        return
    places = {
        name: [list(map(tuple, runs[name].keys.to_numpy())).index(key) for key in keys] for name in names
    }
    controls = {name: with_squares(run.controls) for name, run in runs.items()}
    yield Paired(
        keys,
        [innovations(runs[name].values[places[name]], controls[name]).values for name in names],
        [innovations(runs[name].targets, controls[name]).values for name in names],
        [cells[name] for name in names],
        [lagged(controls[name]) for name in names],
        runs[names[0]].n,
    )


def between_runs_table(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    *,
    metric: str,
    seed: int,
    own_slopes: bool = False,
) -> pd.DataFrame:
    """Final value of the metric against each whole-model feature at `SHARE` of training, over finished runs of full cells.

    Given: the metric at `EARLY` and `SHARE`, the square of the latter, the weight norm, and the cell. own_slopes: with
    slopes of each cell for all four, at the cost of as many degrees of freedom a cell.
    """
    ends = dict(zip(models["model"], models["final_step"], strict=True)) if "final_step" in models else {}
    last = metrics[metrics["metric"] == metric].groupby("model")["step"].max()
    finished = [model for model, step in last.items() if not step < NEARLY * ends.get(model, np.nan)]
    cells = full_cells(features, metrics[metrics["model"].isin(finished)], models, metric)
    chosen = metrics[(metrics["metric"] == metric) & metrics["model"].isin(cells)]
    whole = whole_model(features)
    whole = whole[whole["model"].isin(cells)]
    losses = {share: value_at_share(chosen, ["metric"], share, ends) for share in (EARLY, SHARE, 1.0)}
    early = value_at_share(whole, SERIES_KEY, SHARE, ends)
    if not cells or WEIGHT_NORM not in early.index or any(table.empty for table in losses.values()):
        return schemas.TABLES["over_seeds"].frame([])
    names = sorted(cells)
    final, now, before = (losses[share].reindex(columns=names).to_numpy()[0] for share in (1.0, SHARE, EARLY))
    norm = early.reindex(columns=names).loc[WEIGHT_NORM, :].to_numpy(np.float64)
    controls = np.vstack([before, now, (now - now.mean()) ** 2, norm])
    if not (np.isfinite(controls).all() and np.isfinite(final).all()):
        return schemas.TABLES["over_seeds"].frame([])
    values = early.reindex(columns=names).dropna()
    labels = [cells[name] for name in names]
    if own_slopes:
        inside = np.array([[label == cell for label in labels] for cell in sorted(set(labels))])
        controls = (inside[:, None] * controls).reshape(-1, len(names))
    test = between_runs(values.to_numpy(np.float64), final, labels, controls, seed=seed)
    return schemas.TABLES["over_seeds"].frame(_rows(list(values.index), metric, labels, vars(test)))


def full_cells(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, metric: str
) -> dict[str, str]:
    """The cell of each run with features and the metric, of cells that have `MIN_SEEDS` such runs."""
    measured = set(features["model"]) & set(metrics.loc[metrics["metric"] == metric, "model"])
    cells = sorted((cell, model) for model, cell in cells_of(models).items() if model in measured)
    grouped = [(cell, [model for _, model in own]) for cell, own in groupby(cells, key=lambda pair: pair[0])]
    return {model: cell for cell, own in grouped if len(own) >= MIN_SEEDS for model in own}


def value_at_share(
    table: pd.DataFrame, key: list[str], share: float, ends: Mapping[str, float]
) -> pd.DataFrame:
    """Value of every series at the last checkpoint within a share of its training: rows by key, a column a model."""
    last = table.groupby("model")["step"].max()
    end = table["model"].map({model: ends.get(model, np.nan) for model in last.index}).astype(float)
    end = end.fillna(table["model"].map(last))
    rows = table[table["step"] <= share * end + 1e-6].sort_values("step", kind="stable")
    rows = rows.groupby(["model", *key], sort=True).tail(1)
    return rows.pivot(index=key, columns="model", values="value")
