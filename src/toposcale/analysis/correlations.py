"""Correlations of every feature with every metric: plain, given a control, and over runs.

Plain: as published, with moving blocks, and of first differences. They are not evidence of a relation: all series that
drift correlate. Given a control: partial Spearman correlations, and the test of prewhitened residuals, which uses the
testable segment and always takes out the trend in the step. Over runs: median and range over configurations, and one test
for all runs together, in which a configuration weighs as one run does. Five runs carry no interval.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis import series
from toposcale.analysis.aligned import Aligned, aligned_series, joined, warmups_of
from toposcale.analysis.controls import CONTROLS, NOTHING, Control
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
INDEPENDENT, BLOCKS, DIFFERENCES = range(3)  # purposes of random numbers: each has its own stream
NO_VARIATION_LEFT = "fully explained by its past, the trend or the control, or too few checkpoints for these controls"
POOLED_KEY = [*PAIR_KEY, "control"]


def correlation_table(
    features: pd.DataFrame, metrics: pd.DataFrame, *, seed: int, resamples: int = RESAMPLES
) -> pd.DataFrame:
    """Correlate every feature with every metric, per model, with nothing held fixed."""
    rows = []
    for group in aligned_series(features, metrics):
        columns = {"control": NOTHING, "n_tested": 0, "reason": group.reasons()}
        for name in COEFFICIENTS:
            columns |= _as_published(group, name, seed, resamples)
        rows.append(group.rows(columns | _differences(group, seed, resamples)))
    return schemas.TABLES["correlations"].frame(joined(rows))


def _as_published(group: Aligned, name: str, seed: int, resamples: int) -> dict[str, Any]:
    """Compute a correlation with its intervals and its p-value under independence."""
    names = [f"{name}{part}" for part in ("", "_low", "_high", "_block_low", "_block_high", "_p")]
    if group.n < series.MIN_FOR_CORRELATION:
        return dict.fromkeys(names, np.nan)
    correlate, bootstrap = COEFFICIENTS[name]
    correlation = correlate(group.values, group.targets)
    intervals = [
        resampling.percentile_interval(bootstrap(group.values, group.targets, counts))
        for counts in (
            resampling.independent_counts(group.n, resamples, group.generator(seed, INDEPENDENT)),
            resampling.moving_block_counts(group.n, resamples, group.generator(seed, BLOCKS)),
        )
    ]
    if group.n > coefficients.MAX_PERMUTED:
        p = coefficients.correlation_p_value(correlation, group.n)
    else:
        pair = [group.values, group.targets]
        if name == "spearman":
            pair = [coefficients.average_ranks(coefficients.flattened(rows)) for rows in pair]
        p = coefficients.permutation_p_value(*pair)
    return dict(zip(names, (correlation, *intervals[0], *intervals[1], p), strict=True))


def _differences(group: Aligned, seed: int, resamples: int) -> dict[str, Any]:
    """Compute the correlation of first differences, and the effective number of points."""
    names = ("spearman_differences", "spearman_differences_low", "spearman_differences_high", "differences_p")
    if group.n <= series.MIN_FOR_CORRELATION:
        return dict.fromkeys([*names, "n_effective"], np.nan)
    x, y = np.diff(group.values, axis=1), np.diff(group.targets, axis=1)
    counts = resampling.moving_block_counts(group.n - 1, resamples, group.generator(seed, DIFFERENCES))
    interval = resampling.percentile_interval(resampling.bootstrap_spearman(x, y, counts))
    correlation = coefficients.spearman(x, y)
    p = coefficients.correlation_p_value(correlation, group.n - 1)
    n_effective = coefficients.effective_sample_size(group.values, group.targets)
    return dict(zip(names, (correlation, *interval, p), strict=True)) | {"n_effective": n_effective}


def partial_correlation_table(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, *, seed: int, resamples: int = RESAMPLES
) -> pd.DataFrame:
    """Return partial correlations and tests: a row for each run, pair and control."""
    warmups = warmups_of(models)
    rows = []
    for control in CONTROLS.values():
        for group in aligned_series(features, metrics, control):
            estimates, test = _estimates(group, control, seed, resamples), _tested(group, control, warmups)
            untested = test.pop("untested")
            columns = estimates | test | {"control": control.name}
            columns["reason"] = np.where(columns["reason"] != "", columns["reason"], untested)
            rows.append(group.rows(columns))
    return schemas.TABLES["correlations"].frame(joined(rows))


def run_test(group: Aligned, warmups: Mapping[str, float]) -> tuple[ResidualTest | None, Aligned, str]:
    """Test a run on its testable segment; return the test or None, the segment, and the reason for None."""
    cut, reason = group.testable(warmups)
    if reason := reason or cut.missing:
        return None, cut, reason
    return residual_test(cut.values, cut.targets, with_squares(cut.controls)), cut, ""


def _tested(group: Aligned, control: Control, warmups: Mapping[str, float]) -> dict[str, Any]:
    """Return the columns of the test, and `untested`: why a pair has no p, else ""."""
    test, cut, reason = run_test(group, warmups) if control.is_tested else (None, group, "")
    if test is None:
        return {"n_tested": 0, "residual_correlation": np.nan, "residual_p": np.nan, "untested": reason}
    p = test.p
    untested = np.where(np.isnan(p), NO_VARIATION_LEFT, "")
    return {"n_tested": cut.n, "residual_correlation": test.correlation, "residual_p": p, "untested": untested}


def _estimates(group: Aligned, control: Control, seed: int, resamples: int) -> dict[str, Any]:
    """Compute partial Spearman correlations with their moving-block intervals."""
    names = ("spearman", "spearman_block_low", "spearman_block_high", "spearman_p", "n_effective")
    nothing = np.full((len(group.values), len(group.metrics)), np.nan)
    reasons = group.reasons()
    if group.n < series.MIN_FOR_CORRELATION or group.missing:
        reasons[reasons == ""] = group.missing
        return dict.fromkeys(names, nothing) | {"reason": reasons}
    regressors = np.vstack([group.controls, group.steps]) if control.step else group.controls
    counts = resampling.moving_block_counts(group.n, resamples, group.generator(seed, BLOCKS))
    estimate = _partial(coefficients.spearman, group, regressors)
    resampled = _partial(partial(resampling.bootstrap_spearman, counts=counts), group, regressors)
    low, high = resampling.percentile_interval(resampled)
    reasons[(reasons == "") & np.isnan(estimate)] = f"moves exactly with {control.name.replace('_', ' ')}"
    p = coefficients.correlation_p_value(estimate, group.n, len(regressors))
    n_effective = np.where(np.isnan(estimate), np.nan, coefficients.effective_sample_size(group.values, group.targets))
    return dict(zip(names, (estimate, low, high, p, n_effective), strict=True)) | {"reason": reasons}


def _partial(correlate: Callable[[Floats, Floats], Floats], group: Aligned, controls: Floats) -> Floats:
    """Return the partial correlations (..., S, M) of values and targets given the controls (C, T)."""
    n_metrics, others = len(group.targets), np.vstack([group.targets, controls])
    first, second = correlate(group.values, others), correlate(others, controls)
    xy, xz, yz, zz = (
        first[..., :n_metrics],
        first[..., n_metrics:],
        second[..., :n_metrics, :],
        second[..., n_metrics:, :],
    )
    return coefficients.partial_correlation(xy, xz, yz, zz)


def pooled_table(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, correlations: pd.DataFrame
) -> pd.DataFrame:
    """Return median and range over configurations of each correlation, given each control."""
    labels = correlations["model"].map(series.configurations_of(models))
    estimates = ["spearman", "residual_correlation"]
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
    series.require(models=models)
    warmups, configurations = warmups_of(models), series.configurations_of(models)
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
