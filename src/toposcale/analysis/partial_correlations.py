"""What is left of a correlation given the norm, the step, or both, and the innovation test of each run.

Neural persistence is also held against the norm and the variance of the weights, which explains most of it.

The partial Spearman correlations describe; the innovation test (`toposcale.statistics.innovations`) judges, on the testable
stretch alone. It always takes out the trend in the step, so its p-value given the norm is that given norm and step. Given
the norm: the norm of the weights and its square, and for a layer that layer's own norm too. Columns:
`schemas.TABLES["partial_correlations"]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toposcale.analysis.correlations import BLOCKS, RESAMPLES
from toposcale.analysis.series import MIN_POINTS, Aligned, aligned_series, joined, warmups_of
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

CONTROLS = ("weight_norm", "step", "weight_norm_and_step")
"""What a partial correlation is given."""
NORM_AND_VARIANCE = "weight_norm_and_variance"
"""What that of neural persistence is given too."""
NO_NORM = "no weight norm at these checkpoints"
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
    """Partial Spearman correlations and innovation tests, a row for each run, pair and control."""
    warmups = warmups_of(models)
    rows = []
    for variance in (False, True):
        for group in aligned_series(features, metrics, variance=variance):
            estimates = _estimates(group, seed, resamples)
            tests = {
                given_norm: _test_columns(group, warmups, given_norm=given_norm)
                for given_norm in ((True,) if variance else (True, False))
            }
            for given in ("weight_norm",) if variance else CONTROLS:
                columns = {**estimates[given], **tests[given != "step"]}
                tested = columns.pop("test_reason")
                columns["reason"] = np.where(columns["reason"] != "", columns["reason"], tested)
                rows.append(group.rows(columns | {"given": NORM_AND_VARIANCE if variance else given}))
    return schemas.TABLES["partial_correlations"].frame(joined(rows))


def run_test(
    group: Aligned, warmups: Mapping[str, float], *, given_norm: bool, alone: bool = True
) -> tuple[InnovationTest | None, Aligned, str]:
    """The innovation test of a run on its testable stretch, that stretch, and why there is no test, else "".

    alone: whether the run needs p-values of its own.
    """
    cut, reason = group.testable(warmups)
    if not reason and given_norm and cut.norms is None:
        reason = NO_NORM
    if reason:
        return None, cut, reason
    controls = with_squares(cut.norms) if given_norm and cut.norms is not None else None
    test = innovation_test if alone else innovation_products
    return test(cut.values, cut.targets, controls), cut, ""


def _test_columns(group: Aligned, warmups: Mapping[str, float], *, given_norm: bool) -> dict[str, Column]:
    shape = (len(group.values), len(group.metrics))
    test, cut, reason = run_test(group, warmups, given_norm=given_norm)
    if test is None:
        nothing = np.full(shape, np.nan)
        return {
            "n_tested": np.zeros(shape, dtype=np.int64),
            "innovation_correlation": nothing,
            "p_surrogate": nothing,
            "test_reason": np.full(shape, reason, dtype=object),
        }
    return {
        "n_tested": np.full(shape, cut.n),
        "innovation_correlation": test.correlation,
        "p_surrogate": test.p_value,
        "test_reason": np.where(np.isnan(test.p_value), NO_VARIATION_LEFT, "").astype(object),
    }


def _estimates(group: Aligned, seed: int, resamples: int) -> dict[str, dict[str, Column]]:
    """Partial Spearman correlations with their moving-block intervals, by control."""
    shape = (len(group.values), len(group.metrics))
    nothing = np.full(shape, np.nan)
    if group.n < MIN_POINTS:
        names = (
            "partial_spearman",
            "partial_spearman_low",
            "partial_spearman_high",
            "p_naive",
            "n_effective",
        )
        known = {"coincides": np.full(shape, False), "reason": group.reasons()}
        return dict.fromkeys(CONTROLS, dict.fromkeys(names, nothing) | known)
    # A missing norm is stood in for by the step; its columns are blanked below.
    norms = group.steps[None] if group.norms is None else group.norms
    controls = np.vstack([norms, group.steps])
    monotone = bool(np.abs(spearman(controls[:1], group.steps)[0, 0]) > 1.0 - 1e-12) and len(norms) == 1
    columns = {
        "weight_norm": slice(0, -1), "step": slice(-1, None), "weight_norm_and_step": slice(None),
    }  # fmt: skip
    counts = moving_block_counts(group.n, resamples, group.generator(seed, BLOCKS))
    point = _correlations(spearman, group, controls)
    drawn = _correlations(lambda x, y: bootstrap_spearman(x, y, counts), group, controls)
    n_effective = effective_sample_size(group.values, group.targets)
    found = {}
    for given in CONTROLS:
        estimate = _partial(point, columns[given])
        low, high = _interval(drawn, columns[given])
        n_controls = 1 if group.norms is None or given == "step" else len(group.norms)
        reasons = group.reasons()
        if given != "step" and group.norms is None:
            estimate = low = high = nothing
            reasons[reasons == ""] = NO_NORM
        copy = (reasons == "") & np.isnan(estimate)
        reasons[copy] = f"moves exactly with {given.replace('_', ' ')}"
        found[given] = {
            "partial_spearman": estimate,
            "partial_spearman_low": low,
            "partial_spearman_high": high,
            "p_naive": correlation_p_value(estimate, group.n, n_controls + (given == "weight_norm_and_step")),
            "n_effective": np.where(np.isnan(estimate), np.nan, n_effective),
            "coincides": np.full(shape, monotone and group.norms is not None),
            "reason": reasons,
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
