"""Partial Spearman correlations given a control, and the test of prewhitened residuals of each run.

The test uses the testable segment and always takes out the trend in the step.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.controls import CONTROLS, Control
from toposcale.analysis.correlations import BLOCKS, RESAMPLES
from toposcale.analysis.series import MIN_FOR_CORRELATION, Aligned, Columns, aligned_series, joined, warmups_of
from toposcale.io import schemas
from toposcale.statistics import coefficients
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.prewhitening import ResidualTest, residual_test, with_squares
from toposcale.statistics.resampling import bootstrap_spearman, moving_block_counts, percentile_interval

NO_VARIATION_LEFT = "fully explained by its past, the trend or the control, or too few checkpoints for these controls"
_ROWS = 16  # series whose resamples are put together at a time


def partial_correlation_table(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, *, seed: int, resamples: int = RESAMPLES
) -> pd.DataFrame:
    """Return partial correlations and tests: a row for each run, pair and control."""
    warmups = warmups_of(models)
    rows: list[Columns] = []
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
    if group.n < MIN_FOR_CORRELATION or group.missing:
        reasons[reasons == ""] = group.missing
        return dict.fromkeys(names, nothing) | {"reason": reasons}
    regressors = np.vstack([group.controls, group.steps]) if control.step else group.controls
    counts = moving_block_counts(group.n, resamples, group.generator(seed, BLOCKS))
    estimate = coefficients.partial_correlation(*_correlations(coefficients.spearman, group, regressors))
    low, high = _interval(*_correlations(lambda x, y: bootstrap_spearman(x, y, counts), group, regressors))
    reasons[(reasons == "") & np.isnan(estimate)] = f"moves exactly with {control.name.replace('_', ' ')}"
    p = coefficients.correlation_p_value(estimate, group.n, len(regressors))
    n_effective = np.where(np.isnan(estimate), np.nan, coefficients.effective_sample_size(group.values, group.targets))
    return dict(zip(names, (estimate, low, high, p, n_effective), strict=True)) | {"reason": reasons}


def _interval(xy: Floats, xz: Floats, yz: Floats, zz: Floats) -> tuple[Floats, Floats]:
    """Return bounds (S, M) of the partial correlations of all resamples, in chunks of series to spare memory."""
    bounds = [
        percentile_interval(coefficients.partial_correlation(xy[:, rows], xz[:, rows], yz, zz))
        for rows in (slice(start, start + _ROWS) for start in range(0, xy.shape[1], _ROWS))
    ]
    return np.concatenate([low for low, _ in bounds]), np.concatenate([high for _, high in bounds])


def _correlations(correlate: Any, group: Aligned, controls: Floats) -> list[Floats]:
    """Correlate values with targets, and values, targets and controls with the controls."""
    n_metrics, others = len(group.targets), np.vstack([group.targets, controls])
    first, second = correlate(group.values, others), correlate(others, controls)
    return [first[..., :n_metrics], first[..., n_metrics:], second[..., :n_metrics, :], second[..., n_metrics:, :]]
