"""Correlations over runs: median and range over configurations, and one test for all runs together.

Seeds are averaged within their configuration, which weighs in the test as one run does. Five runs carry no interval.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd

from toposcale.analysis.controls import CONTROLS, NOTHING, Control
from toposcale.analysis.partial_correlations import NO_VARIATION_LEFT, run_test
from toposcale.analysis.series import PAIR_KEY, aligned_series, configurations_of, joined, require, warmups_of
from toposcale.io import schemas
from toposcale.statistics.prewhitening import SharedFlips

POOLED_KEY = [*PAIR_KEY, "control"]


def pooled_table(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, correlations: pd.DataFrame
) -> pd.DataFrame:
    """Return median and range over configurations of each correlation, given each control."""
    labels, estimates = correlations["model"].map(configurations_of(models)), ["spearman", "residual_correlation"]
    labelled = correlations.assign(configuration=labels.fillna(correlations["model"]))
    by_configuration = labelled.groupby([*POOLED_KEY, "configuration"], sort=True)[estimates].mean().reset_index()
    grouped = by_configuration.groupby(POOLED_KEY, sort=True)
    table = labelled.groupby(POOLED_KEY, sort=True)["spearman"].count().rename("n_runs").to_frame()
    table["n_configurations"] = grouped["spearman"].count()
    for column in estimates:
        table[column] = grouped[column].median()
        table[f"{column}_lowest"], table[f"{column}_highest"] = grouped[column].min(), grouped[column].max()
    tests = pd.concat(
        joint_test(features, metrics, models, control).assign(control=control.name) for control in CONTROLS.values()
    )
    table = table.reset_index().merge(tests, on=POOLED_KEY, how="left", validate="one_to_one")
    table.loc[(table["control"] == NOTHING) & table["spearman"].isna(), "reason"] = "no run has a correlation"
    return schemas.TABLES["pooled_correlations"].frame(table)


def joint_test(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, control: Control) -> pd.DataFrame:
    """Test prewhitened residuals of all runs together, given a control: p, n_tested and reason for each feature and metric.

    n_tested counts the runs that could test the pair; a control that is never tested has NaN without a reason.
    """
    require(models=models)
    warmups, configurations = warmups_of(models), configurations_of(models)
    groups = list(aligned_series(features, metrics, control))
    if not groups:
        return pd.DataFrame(columns=[*PAIR_KEY, "p", "n_tested", "reason"])
    keys = [group.pairs() for group in groups]
    pairs = joined(keys)[PAIR_KEY].drop_duplicates(ignore_index=True)
    if not control.is_tested:
        return pairs.assign(p=np.nan, n_tested=0, reason="")
    index = {pair: row for row, pair in enumerate(pairs.itertuples(index=False, name=None))}
    pool = SharedFlips(len(pairs), np.concatenate([group.steps for group in groups]))
    weights = run_weights({group.model for group in groups}, configurations)
    n_tested, reasons = np.zeros(len(pairs), dtype=np.int64), [Counter[str]() for _ in index]
    for group, key in zip(groups, keys, strict=True):
        rows = np.array([index[pair] for pair in zip(*(key[name] for name in PAIR_KEY), strict=True)])
        test, cut, reason = run_test(group, warmups)
        untested = np.ones(len(rows), dtype=bool)
        if test is not None:
            pool.add(test, cut.steps, rows=rows, weight=weights[group.model])
            untested = np.isnan(test.correlation).ravel()
            n_tested[rows] += ~untested
        for row, words in zip(rows[untested], group.reasons().ravel()[untested], strict=True):
            reasons[row][words or reason or NO_VARIATION_LEFT] += 1
    why = [
        "" if n else max(counted, key=lambda words: (counted[words], words), default="")
        for n, counted in zip(n_tested, reasons, strict=True)
    ]
    return pairs.assign(p=pool.p_values(), n_tested=n_tested, reason=why)


def run_weights(names: set[str], configurations: Mapping[str, str]) -> dict[str, float]:
    """Return the weight of each run; those of a configuration add up to one."""
    counted = Counter(configurations.get(name, name) for name in names)
    return {name: 1.0 / counted[configurations.get(name, name)] for name in names}
