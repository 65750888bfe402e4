"""Correlations over runs: median and range over cells, and one innovation test for all runs together.

A cell is what runs share but for their seed. Seeds are averaged within their cell before anything is put together, and
weigh in the test as one run does. No interval: five runs do not carry one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd

from toposcale.analysis.partial_correlations import NO_VARIATION_LEFT, NORM_AND_VARIANCE, run_test
from toposcale.analysis.series import SERIES_KEY, aligned_series, cells_of, joined, warmups_of
from toposcale.io import schemas
from toposcale.statistics.shared_flips import SharedFlips

NOTHING = "nothing"
TESTED_KEY = [*SERIES_KEY, "metric"]
POOLED_KEY = [*TESTED_KEY, "given"]
_TESTS = {
    "weight_norm": "weight_norm",
    "step": "step",
    "weight_norm_and_step": "weight_norm",
    NORM_AND_VARIANCE: NORM_AND_VARIANCE,
}
"""The innovation test behind each control: that given the norm takes out the trend in the step too."""


def pooled_table(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    correlations: pd.DataFrame,
    partials: pd.DataFrame,
) -> pd.DataFrame:
    """Correlations over runs, one row per (source, layer, feature, metric, given).

    correlations, partials: the tables of `correlations` and `partial_correlations` from the same tables.
    """
    cells = cells_of(models)
    columns = ["spearman", "innovation_correlation"]
    wanted = ["model", *POOLED_KEY, *columns]
    plain = correlations.assign(given=NOTHING).reindex(columns=wanted)
    partial = partials.rename(columns={"partial_spearman": "spearman"})[wanted]
    table = over_cells(pd.concat([plain, partial], ignore_index=True), POOLED_KEY, columns, cells)
    tests = {
        given: pooled_test(
            features, metrics, models, given_norm=given != "step", variance=given == NORM_AND_VARIANCE
        )
        for given in set(_TESTS.values())
    }
    judged = pd.concat([tests[test].assign(given=given) for given, test in _TESTS.items()], ignore_index=True)
    table = table.merge(judged, on=POOLED_KEY, how="left", validate="one_to_one")
    return schemas.TABLES["pooled_correlations"].frame(table)


def over_cells(
    rows: pd.DataFrame, key: list[str], columns: list[str], cells: Mapping[str, str]
) -> pd.DataFrame:
    """Median, lowest and highest over cells of the mean over the runs of a cell; with the number of both that have any."""
    named = rows.assign(cell=rows["model"].map(cells).fillna(rows["model"]))
    by_cell = named.groupby([*key, "cell"], sort=True)[columns].mean().reset_index()
    grouped = by_cell.groupby(key, sort=True)
    found = named.groupby(key, sort=True)[columns[0]].count().rename("n_runs").to_frame()
    found["n_cells"] = grouped[columns[0]].count()
    for column in columns:
        found[column] = grouped[column].median()
        found[f"{column}_lowest"], found[f"{column}_highest"] = grouped[column].min(), grouped[column].max()
    return found.reset_index()


def pooled_test(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    *,
    given_norm: bool,
    variance: bool = False,
) -> pd.DataFrame:
    """The innovation test of all runs together, a row per (source, layer, feature, metric): p_surrogate, n_tested, reason.

    variance: neural persistence alone, given the norm and the variance of the weights.
    n_tested: runs that could test the pair. reason: why none could, in the words of most of them.
    """
    warmups, cells = warmups_of(models), cells_of(models)
    groups = list(aligned_series(features, metrics, variance=variance))
    columns = [*TESTED_KEY, "p_surrogate", "n_tested", "reason"]
    if not groups:
        return pd.DataFrame(columns=columns)
    keys = [group.pairs() for group in groups]
    pairs = joined(keys)[TESTED_KEY].drop_duplicates(ignore_index=True)
    place = {pair: row for row, pair in enumerate(pairs.itertuples(index=False, name=None))}
    pool = SharedFlips(len(pairs), np.concatenate([group.steps for group in groups]))
    weights = run_weights({group.model for group in groups}, cells)
    n_tested, reasons = np.zeros(len(pairs), dtype=np.int64), [Counter[str]() for _ in place]
    for group, key in zip(groups, keys, strict=True):
        rows = np.array([place[pair] for pair in zip(*(key[name] for name in TESTED_KEY), strict=True)])
        test, cut, reason = run_test(group, warmups, given_norm=given_norm, alone=False)
        said = group.reasons().ravel()
        if test is None:
            for row, own in zip(rows, said, strict=True):
                reasons[row][own or reason] += 1
            continue
        pool.add(test, cut.steps, rows=rows, weight=weights[group.model])
        known = np.isfinite(test.correlation).ravel()
        n_tested[rows] += known
        for row, own in zip(rows[~known], said[~known], strict=True):
            reasons[row][own or NO_VARIATION_LEFT] += 1
    why = [
        "" if n else max(counted, key=lambda words: (counted[words], words), default="")
        for n, counted in zip(n_tested, reasons, strict=True)
    ]
    return pairs.assign(p_surrogate=pool.p_values(), n_tested=n_tested, reason=why)


def run_weights(names: set[str], cells: Mapping[str, str]) -> dict[str, float]:
    """The weight of each run: those of a cell add up to one."""
    counted = Counter(cells.get(name, name) for name in names)
    return {name: 1.0 / counted[cells.get(name, name)] for name in names}
