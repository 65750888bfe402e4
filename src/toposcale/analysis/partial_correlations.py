"""What is left of a correlation given a control, and the innovation test of each run.

The partial Spearman correlations describe; the innovation test (`toposcale.statistics.innovations`) judges, on the testable
stretch alone. It always takes out the trend in the step, so its p given the norm is that given norm and step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toposcale.analysis.controls import CONTROLS, Control
from toposcale.analysis.correlations import BLOCKS, RESAMPLES
from toposcale.analysis.series import MIN_POINTS, Aligned, Columns, aligned_series, joined, warmups_of
from toposcale.io import schemas
from toposcale.statistics.coefficients import (
    Floats,
    correlation_p_value,
    effective_sample_size,
    partial_correlation,
    spearman,
)
from toposcale.statistics.innovations import (
    InnovationTest,
    innovation_products,
    innovation_test,
    with_squares,
)
from toposcale.statistics.resampling import bootstrap_spearman, moving_block_counts, percentile_interval

NO_VARIATION_LEFT = (
    "fully explained by its past, the trend or the control, or too few checkpoints for these controls"
)
_ROWS = 16
"""Series whose resamples are put together at a time."""
Column = NDArray[Any]


def partial_correlation_table(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    *,
    seed: int,
    resamples: int = RESAMPLES,
) -> pd.DataFrame:
    """Partial Spearman correlations and innovation tests, a row of `correlations` for each run, pair and control."""
    warmups = warmups_of(models)
    rows: list[Columns] = []
    for first in (control for control in CONTROLS.values() if not control.shares):
        alike = [control for control in CONTROLS.values() if first.name in (control.name, control.shares)]
        for group in aligned_series(features, metrics, first):
            estimates = _estimates(group, alike, seed, resamples)
            tests = {
                holds: _tested(_given(group, holds), warmups)
                for holds in {bool(control.of_model) for control in alike if not control.untested}
            }
            for control in alike:
                own = _no_test(group, control.untested) if control.untested else tests[bool(control.of_model)]
                columns = estimates[control.name] | own
                said = columns.pop("test_reason")
                columns["reason"] = np.where(columns["reason"] != "", columns["reason"], said)
                rows.append(group.rows(columns | {"control": control.name}))
    return schemas.TABLES["correlations"].frame(joined(rows))


def _given(group: Aligned, holds: bool) -> Aligned:
    return group if holds else group.without_controls()


def run_test(
    group: Aligned, warmups: Mapping[str, float], *, alone: bool = True
) -> tuple[InnovationTest | None, Aligned, str]:
    """The innovation test of a run on its testable stretch, that stretch, and why there is no test, else "".

    alone: whether the run needs p-values of its own.
    """
    cut, reason = group.testable(warmups)
    reason = reason or cut.missing
    if reason:
        return None, cut, reason
    test = innovation_test if alone else innovation_products
    return test(cut.values, cut.targets, with_squares(cut.controls)), cut, ""


def _tested(group: Aligned, warmups: Mapping[str, float]) -> dict[str, Column]:
    test, cut, reason = run_test(group, warmups)
    if test is None:
        return _no_test(group, reason)
    return {
        "n_tested": np.full(test.p.shape, cut.n),
        "innovation_correlation": test.correlation,
        "innovation_p": test.p,
        "test_reason": np.where(np.isnan(test.p), NO_VARIATION_LEFT, "").astype(object),
    }


def _no_test(group: Aligned, reason: str) -> dict[str, Column]:
    shape = (len(group.values), len(group.metrics))
    nothing = np.full(shape, np.nan)
    return {
        "n_tested": np.zeros(shape, dtype=np.int64),
        "innovation_correlation": nothing,
        "innovation_p": nothing,
        "test_reason": np.full(shape, reason, dtype=object),
    }


def _estimates(
    group: Aligned, controls: list[Control], seed: int, resamples: int
) -> dict[str, dict[str, Column]]:
    """Partial Spearman correlations with their moving-block intervals, by control."""
    shape = (len(group.values), len(group.metrics))
    nothing = np.full(shape, np.nan)
    names = ("spearman", "spearman_block_low", "spearman_block_high", "spearman_p", "n_effective")
    if group.n < MIN_POINTS:
        unknown = dict.fromkeys(names, nothing) | {"reason": group.reasons()}
        return {control.name: dict(unknown) for control in controls}
    held = np.vstack([group.controls, group.steps])
    counts = moving_block_counts(group.n, resamples, group.generator(seed, BLOCKS))
    point = _correlations(spearman, group, held)
    drawn = _correlations(lambda x, y: bootstrap_spearman(x, y, counts), group, held)
    n_effective = effective_sample_size(group.values, group.targets)
    found = {}
    for control in controls:
        # The step is the last of what is held.
        chosen = slice(None if control.of_model else -1, None if control.step else -1)
        if control.of_model and group.missing:
            estimate = low = high = nothing
            without = group.missing
        else:
            estimate, (low, high) = _partial(point, chosen), _interval(drawn, chosen)
            without = f"moves exactly with {control.name.replace('_', ' ')}"
        reasons = group.reasons()
        reasons[(reasons == "") & np.isnan(estimate)] = without
        p = correlation_p_value(estimate, group.n, len(held[chosen]))
        known = np.where(np.isnan(estimate), np.nan, n_effective)
        found[control.name] = dict(zip(names, (estimate, low, high, p, known), strict=True)) | {
            "reason": reasons
        }
    return found


def _interval(drawn: list[Floats], chosen: slice) -> tuple[Floats, Floats]:
    """Bounds (S, M) of the partial correlations of all resamples, some series at a time to spare memory."""
    xy, xz, yz, zz = drawn
    bounds = [
        percentile_interval(_partial([xy[:, rows], xz[:, rows], yz, zz], chosen))
        for rows in (slice(start, start + _ROWS) for start in range(0, xy.shape[1], _ROWS))
    ]
    return np.concatenate([low for low, _ in bounds]), np.concatenate([high for _, high in bounds])


def _correlations(correlate: Any, group: Aligned, controls: Floats) -> list[Floats]:
    """Correlations of values with targets, and of values, of targets and of the controls themselves with the controls."""
    n_metrics, others = len(group.targets), np.vstack([group.targets, controls])
    first, second = correlate(group.values, others), correlate(others, controls)
    return [
        first[..., :n_metrics],
        first[..., n_metrics:],
        second[..., :n_metrics, :],
        second[..., n_metrics:, :],
    ]


def _partial(parts: list[Floats], chosen: slice) -> Floats:
    xy, xz, yz, zz = parts
    return partial_correlation(xy, xz[..., chosen], yz[..., chosen], zz[..., chosen, chosen])
