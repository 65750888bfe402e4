"""Correlations of every feature with every metric: as published, robust to autocorrelation, and given norm and step.

The published part ignores that checkpoints of one training are not independent. The other part does not: moving
blocks, first differences, and the innovation test (`toposcale.statistics.innovations`). That test takes the trend in
the step out always, so its p-value given the step is that of the plain pair, and that given the norm is that given
both. Columns: `schemas.CORRELATIONS` and `schemas.PARTIAL_CORRELATIONS`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toposcale.analysis.series import MIN_POINTS, SERIES_KEY, Aligned, aligned_series
from toposcale.io import schemas
from toposcale.statistics.correlation import (
    Floats,
    correlation_p_value,
    effective_sample_size,
    pearson,
    spearman,
)
from toposcale.statistics.innovations import MIN_POINTS as MIN_SURROGATE_POINTS
from toposcale.statistics.innovations import innovation_test
from toposcale.statistics.multiple_testing import benjamini_hochberg, bonferroni
from toposcale.statistics.partial import partial_correlation, partial_correlation_given_two
from toposcale.statistics.resampling import (
    bootstrap_pearson,
    bootstrap_spearman,
    independent_counts,
    moving_block_counts,
    percentile_interval,
)

RESAMPLES = 1000
CONTROLS = {"weight_norm": 1, "step": 1, "weight_norm_and_step": 2}
"""What a partial correlation is given, and how many control series that is."""
Column = NDArray[Any]
PAIR_KEY = ["model", *SERIES_KEY, "metric"]

_INDEPENDENT, _BLOCKS, _DIFFERENCES = range(3)  # purposes of random numbers: each has its own stream
_CORRECTIONS = {"bonferroni": bonferroni, "bh": benjamini_hochberg}


def correlation_table(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Correlations of every feature with every metric, per model."""
    rows = [
        group.rows(
            {
                **_plain(group, seed, resamples, confidence),
                **_autocorrelation_robust(group, seed, resamples, confidence),
            }
        )
        for group in aligned_series(features, metrics)
    ]
    table = _joined(rows)
    for name in ("p_spearman", "p_pearson", "p_surrogate"):
        for suffix, correct in _CORRECTIONS.items():
            table[f"{name}_{suffix}"] = correct(table[name].to_numpy())
    return schemas.CORRELATIONS.frame(table)


def partial_correlation_table(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Partial Spearman correlations given the weight norm, the step, and both."""
    rows = []
    for group in aligned_series(features, metrics):
        for given, columns in _partials(group, seed, resamples, confidence).items():
            rows.append(group.rows(columns).assign(given=given))
    table = _joined(rows)
    p_values = table["p_surrogate"].to_numpy()
    corrected = np.full(len(table), np.nan)
    for given in CONTROLS:
        chosen = (table["given"] == given).to_numpy()
        corrected[chosen] = benjamini_hochberg(p_values[chosen])
    table["p_surrogate_bh"] = corrected
    return schemas.PARTIAL_CORRELATIONS.frame(table)


def _surrogate_columns(group: Aligned, controls: Floats | None = None) -> dict[str, Column]:
    """innovation_correlation, p_surrogate and reason of each pair of a group, arrays (S, M)."""
    shape = (len(group.values), len(group.metrics))
    nothing = np.full(shape, np.nan)
    if group.n < MIN_SURROGATE_POINTS:
        text = f"{group.n} checkpoints; the surrogate test needs {MIN_SURROGATE_POINTS}"
        reason = np.full(shape, text, dtype=object)
        return {"innovation_correlation": nothing, "p_surrogate": nothing, "reason": reason}
    test = innovation_test(group.values, group.targets, controls)
    foretold = np.where(np.isnan(test.p_value), "wholly foretold by its past, the trend or the control", "")
    return {
        "innovation_correlation": test.correlation,
        "p_surrogate": test.p_value,
        "reason": foretold.astype(object),
    }


def _plain(group: Aligned, seed: int, resamples: int, confidence: float) -> dict[str, Floats]:
    """The part as published."""
    kinds = {"spearman": (spearman, bootstrap_spearman), "pearson": (pearson, bootstrap_pearson)}
    columns = {}
    shape = (len(group.values), len(group.metrics))
    for name, (correlate, bootstrap) in kinds.items():
        names = [name, f"{name}_low", f"{name}_high", f"{name}_block_low", f"{name}_block_high", f"p_{name}"]
        columns.update({column: np.full(shape, np.nan) for column in names})
        if group.n < MIN_POINTS:
            continue
        columns[name] = correlate(group.values, group.targets)
        for infix, counts in (
            ("", independent_counts(group.n, resamples, group.generator(seed, _INDEPENDENT))),
            ("block_", moving_block_counts(group.n, resamples, group.generator(seed, _BLOCKS))),
        ):
            drawn = bootstrap(group.values, group.targets, counts)
            low, high = percentile_interval(drawn, confidence)
            columns[f"{name}_{infix}low"], columns[f"{name}_{infix}high"] = low, high
        columns[f"p_{name}"] = correlation_p_value(columns[name], group.n)
    return columns


def _autocorrelation_robust(
    group: Aligned, seed: int, resamples: int, confidence: float
) -> dict[str, Column]:
    """First differences, the surrogate test, the effective number of points, and what could not be done."""
    shape = (len(group.values), len(group.metrics))
    names = ["spearman_differences", "spearman_differences_low", "spearman_differences_high", "p_differences"]
    columns: dict[str, Column] = dict.fromkeys(names, np.full(shape, np.nan))
    columns["n_effective"] = np.full(shape, np.nan)
    if group.n > MIN_POINTS:
        x, y = np.diff(group.values, axis=1), np.diff(group.targets, axis=1)
        counts = moving_block_counts(group.n - 1, resamples, group.generator(seed, _DIFFERENCES))
        low, high = percentile_interval(bootstrap_spearman(x, y, counts), confidence)
        correlation = spearman(x, y)
        p_value = correlation_p_value(correlation, group.n - 1)
        columns.update(zip(names, (correlation, low, high, p_value), strict=True))
        columns["n_effective"] = effective_sample_size(group.values, group.targets)
    surrogates = _surrogate_columns(group)
    reasons = group.reasons()
    return {**columns, **surrogates, "reason": np.where(reasons != "", reasons, surrogates["reason"])}


def _partials(group: Aligned, seed: int, resamples: int, confidence: float) -> dict[str, dict[str, Column]]:
    """Columns per control."""
    shape = (len(group.values), len(group.metrics))
    nothing = np.full(shape, np.nan)
    estimates = dict.fromkeys(CONTROLS, (nothing, nothing, nothing))
    if group.n >= MIN_POINTS:
        # A missing norm is stood in for by the step; its columns are blanked below.
        controls = np.vstack([group.steps if group.norm is None else group.norm, group.steps])
        targets = np.vstack([group.targets, controls])
        counts = moving_block_counts(group.n, resamples, group.generator(seed, _BLOCKS))
        point = _given_each(spearman(group.values, targets), spearman(targets, targets))
        drawn = _given_each(
            bootstrap_spearman(group.values, targets, counts), bootstrap_spearman(targets, targets, counts)
        )
        estimates = {
            given: (point[given], *percentile_interval(drawn[given], confidence)) for given in CONTROLS
        }
    n_effective = effective_sample_size(group.values, group.targets) if group.n >= MIN_POINTS else nothing
    given_trend = _surrogate_columns(group)
    given_norm = given_trend if group.norm is None else _surrogate_columns(group, group.norm)
    columns: dict[str, dict[str, Column]] = {}
    for given, n_controls in CONTROLS.items():
        estimate, low, high = estimates[given]
        test = given_trend if given == "step" else given_norm
        table = {
            "partial_spearman": estimate,
            "partial_spearman_low": low,
            "partial_spearman_high": high,
            "p_naive": correlation_p_value(estimate, group.n, n_controls),
            "innovation_correlation": test["innovation_correlation"],
            "p_surrogate": test["p_surrogate"],
            "n_effective": n_effective,
        }
        reasons = group.reasons()
        if given != "step" and group.norm is None:
            table = dict.fromkeys(table, nothing)
            reasons[reasons == ""] = "no weight norm at these checkpoints"
        copy = (reasons == "") & np.isnan(table["partial_spearman"])
        reasons[copy] = f"moves exactly with {given.replace('_', ' ')}"
        columns[given] = {**table, "reason": np.where(reasons != "", reasons, test["reason"])}
    return columns


def _given_each(with_targets: Floats, among_targets: Floats) -> dict[str, Floats]:
    """Partial correlations from those of series and targets (..., S, M + 2) and among targets (..., M + 2, M
    + 2).

    The last two targets are the weight norm and the step.
    """
    xy, x_norm, x_step = with_targets[..., :-2], with_targets[..., -2, None], with_targets[..., -1, None]
    y_norm, y_step = among_targets[..., None, :-2, -2], among_targets[..., None, :-2, -1]
    norm_step = among_targets[..., -2, -1][..., None, None]
    return {
        "weight_norm": partial_correlation(xy, x_norm, y_norm),
        "step": partial_correlation(xy, x_step, y_step),
        "weight_norm_and_step": partial_correlation_given_two(xy, x_norm, y_norm, x_step, y_step, norm_step),
    }


def _joined(rows: list[pd.DataFrame]) -> pd.DataFrame:
    if not rows:
        raise ValueError("features: no model has both features and metrics")
    return pd.concat(rows, ignore_index=True)
