"""Correlations of every feature with every metric: plain, given a control, and over runs.

Plain: as published, and with moving blocks. They are not evidence of a relation: all series that drift correlate. Given a
control: partial Spearman correlations, and the test of prewhitened residuals, which uses the testable segment and always
takes out the trend in the step. Over runs: median and range over configurations, and one test for all runs together, in
which a configuration weighs as one run does. Five runs carry no interval.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis import series
from toposcale.analysis.aligned import Aligned, MeasuredSeries, join_rows, measured_series, warmups_of
from toposcale.analysis.controls import CONTROLS, NOTHING, PLAIN, Control
from toposcale.analysis.series import PAIR_KEY
from toposcale.io import schemas
from toposcale.statistics import coefficients, resampling
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.prewhitening import ResidualTest, SharedFlips, residual_test, with_squares

RESAMPLES = 1000
COEFFICIENTS = {
    "spearman": (coefficients.spearman, resampling.bootstrap_spearman),
    "pearson": (coefficients.pearson, resampling.bootstrap_pearson),
}
INDEPENDENT = 0
BLOCKS = 1
"""Purposes of random numbers: each has its own stream."""
NO_VARIATION_LEFT = "fully explained by its past, the trend or the control, or too few checkpoints for these controls"
POOLED_KEY = [*PAIR_KEY, "control"]


@dataclass(frozen=True)
class ControlledRun:
    """Series of a run, given a control, and their test on the testable segment; reason: why there is none."""

    group: Aligned
    segment: Aligned
    test: ResidualTest | None
    reason: str
    control: Control

    def reasons(self) -> np.ndarray:
        """Return why each pair (S, M) has no test; "" if it has one."""
        untested = np.where(np.isnan(self.test.p), NO_VARIATION_LEFT, "") if self.test else self.reason
        reasons = self.group.reasons()
        return np.where(reasons != "", reasons, untested)


def controlled_runs(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, control: Control
) -> list[ControlledRun]:
    """Return the series of every run given a control, tested if the control is."""
    return _controlled_runs(measured_series(features, metrics), models, control)


def _controlled_runs(measured: Sequence[MeasuredSeries], models: pd.DataFrame, control: Control) -> list[ControlledRun]:
    """Return the measured series given a control, tested if the control is."""
    series.require(models=models)
    warmups, runs = warmups_of(models), []
    for group in chain.from_iterable(of_model.aligned(control) for of_model in measured):
        segment, reason = group.testable(warmups) if control.is_tested else (group, "")
        test = segment_test(segment, segment.values, control) if control.is_tested and not reason else None
        runs.append(ControlledRun(group, segment, test, reason, control))
    return runs


def segment_test(segment: Aligned, values: Floats, control: Control) -> ResidualTest:
    """Test values (S, T) at the checkpoints of a segment with its metrics."""
    covariates = with_squares(segment.controls)
    return residual_test(values, segment.targets, covariates, own_past_of_y=control.past_of_metric)


def correlation_tables(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, *, seed: int, resamples: int = RESAMPLES
) -> dict[str, pd.DataFrame]:
    """Make the tables correlations and pooled_correlations: every pair given every control, by run and over runs."""
    measured = measured_series(features, metrics)
    rows, tests = [], []
    for control in (PLAIN, *CONTROLS.values()):
        runs = _controlled_runs(measured, models, control)
        rows += [run.group.rows(_columns(run, control, seed, resamples)) for run in runs]
        if control.is_tested and runs:
            tests.append(joint_test(runs, models).assign(control=control.name))
    correlations = schemas.TABLES["correlations"].frame(join_rows(rows))
    pooled = _pooled(correlations, pd.concat(tests), models)
    return {"correlations": correlations, "pooled_correlations": pooled}


def _columns(run: ControlledRun, control: Control, seed: int, resamples: int) -> dict[str, Any]:
    """Return the columns of the pairs of a run, given a control."""
    group, test, reasons = run.group, run.test, run.reasons()
    columns: dict[str, Any] = {"control": control.name, "n_tested": run.segment.n if test else 0}
    if test:
        columns |= {"residual_correlation": test.correlation, "residual_p": test.p}
    if group.n >= series.MIN_FOR_CORRELATION and not group.missing:
        columns |= (_published if control is PLAIN else partial(_partial, control=control))(group, seed, resamples)
        spanned = (group.reasons() == "") & np.isnan(columns["spearman"])
        reasons = np.where(spanned, f"moves exactly with {control.name.replace('_', ' ')}", reasons)
    return columns | {"reason": reasons}


def _published(group: Aligned, seed: int, resamples: int) -> dict[str, Any]:
    """Compute correlations with their intervals, and Spearman's p-values under independence."""
    columns: dict[str, Any] = {}
    counts = {
        "": resampling.independent_counts(group.n, resamples, group.generator(seed, INDEPENDENT)),
        "_block": resampling.moving_block_counts(group.n, resamples, group.generator(seed, BLOCKS)),
    }
    for name, (correlate, bootstrap) in COEFFICIENTS.items():
        columns[name] = correlate(group.values, group.targets)
        for kind, multiplicities in counts.items():
            interval = resampling.percentile_interval(bootstrap(group.values, group.targets, multiplicities))
            columns[f"{name}{kind}_low"], columns[f"{name}{kind}_high"] = interval
    if group.n > coefficients.MAX_PERMUTED:
        return columns | {"spearman_p": coefficients.correlation_p_value(columns["spearman"], group.n)}
    ranks = (coefficients.average_ranks(coefficients.flattened(rows)) for rows in (group.values, group.targets))
    return columns | {"spearman_p": coefficients.permutation_p_value(*ranks)}


def _partial(group: Aligned, seed: int, resamples: int, *, control: Control) -> dict[str, Any]:
    """Compute partial Spearman correlations with their moving-block intervals."""
    covariates = np.vstack([group.controls, group.steps]) if control.step else group.controls
    counts = resampling.moving_block_counts(group.n, resamples, group.generator(seed, BLOCKS))

    def correlations(correlate: Callable[[Floats, Floats], Floats]) -> Floats:
        n_metrics, series_and_covariates = len(group.targets), np.vstack([group.targets, covariates])
        first, second = correlate(group.values, series_and_covariates), correlate(series_and_covariates, covariates)
        xy, xz = first[..., :n_metrics], first[..., n_metrics:]
        return coefficients.partial_correlation(xy, xz, second[..., :n_metrics, :], second[..., n_metrics:, :])

    estimate = correlations(coefficients.spearman)
    low, high = resampling.percentile_interval(correlations(partial(resampling.bootstrap_spearman, counts=counts)))
    p = coefficients.correlation_p_value(estimate, group.n, len(covariates))
    return {"spearman": estimate, "spearman_block_low": low, "spearman_block_high": high, "spearman_p": p}


def joint_test(runs: Sequence[ControlledRun], models: pd.DataFrame) -> pd.DataFrame:
    """Test prewhitened residuals of all runs together: p, n_tested (runs) and reason for each feature and metric."""
    rows = join_rows([run.group.rows({"reason": run.reasons()}) for run in runs])
    pairs = rows.groupby(PAIR_KEY, sort=False).ngroup().to_numpy()
    keys = rows[PAIR_KEY].drop_duplicates(ignore_index=True)
    weights = run_weights({run.group.model for run in runs}, models)
    pool = SharedFlips(len(keys), np.concatenate([run.group.steps for run in runs]))
    for run, pairs_of_run in zip(runs, np.split(pairs, np.cumsum([run.group.n_pairs for run in runs])), strict=False):
        if run.test:
            pool.add(run.test, run.segment.steps, rows=pairs_of_run, weight=weights[run.group.model])
    n_tested = np.bincount(pairs, weights=rows["reason"] == "").astype(int)
    commonest = [reason for _, reason in rows.groupby([pairs, "reason"]).size().groupby(level=0).idxmax()]
    return keys.assign(p=pool.p_values(), n_tested=n_tested, reason=np.where(n_tested > 0, "", commonest))


def run_weights(names: set[str], models: pd.DataFrame) -> dict[str, float]:
    """Return the weight of each run; those of a configuration add up to one."""
    configurations = series.configurations_of(models)
    runs_of_configuration = Counter(configurations.get(name, name) for name in names)
    return {name: 1.0 / runs_of_configuration[configurations.get(name, name)] for name in names}


def _pooled(runs: pd.DataFrame, tests: pd.DataFrame, models: pd.DataFrame) -> pd.DataFrame:
    """Return median and range over configurations of the correlations of runs, and the tests of all runs together."""
    labels = runs["model"].map(series.configurations_of(models)).fillna(runs["model"])
    estimates = ["spearman", "residual_correlation"]
    by_configuration = runs.groupby([*POOLED_KEY, labels.rename("configuration")])[estimates].mean()
    grouped = by_configuration.groupby(POOLED_KEY)
    table = runs.groupby(POOLED_KEY)["spearman"].count().rename("n_runs").to_frame()
    table["n_configurations"] = grouped["spearman"].count()
    for column in estimates:
        table[column] = grouped[column].median()
        table[f"{column}_lowest"], table[f"{column}_highest"] = grouped[column].min(), grouped[column].max()
    table = table.reset_index().merge(tests, on=POOLED_KEY, how="left", validate="one_to_one")
    table.loc[(table["control"] == NOTHING) & table["spearman"].isna(), "reason"] = "no run has a correlation"
    return schemas.TABLES["pooled_correlations"].frame(table.fillna({"n_tested": 0}))
