"""Landscape features that tell checkpoints apart, and those that are constant or noise of their draws."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.questions import NOT_TESTED
from toposcale.analysis.series import whole_model
from toposcale.features.registry import is_uncertainty
from toposcale.io import schemas

INFORMATIVE, UNINFORMATIVE = "informative", "uninformative"
LEAST_CORRELATION = 0.5
"""Intraclass correlation below which more than half of the variance is noise of the draws."""
_FEWEST_CHECKPOINTS = 3


def landscape_information_tables(all_features: pd.DataFrame, *, repeats: int) -> dict[str, pd.DataFrame]:
    """Make the table landscape_information: a row for each model and feature of the landscape.

    A value is the mean over 1 + `repeats` draws of probe batch and directions. Uninformative: constant, or an intraclass
    correlation below 0.5.
    """
    rows = [
        {"model": model, "feature": feature, **_row(table, feature, 1 + repeats)}
        for model, table in landscape_by_model(all_features)
        for feature in table.columns
        if not is_uncertainty(feature)
    ]
    return {"landscape_information": schemas.TABLES["landscape_information"].frame(rows)}


def landscape_by_model(all_features: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each model with its whole-landscape features: a row a checkpoint, a column a feature."""
    landscape = whole_model(all_features[all_features["source"] == "landscape"])
    for model, rows in landscape.groupby("model", sort=True):
        yield str(model), rows.pivot(index="step", columns="feature", values="value").sort_index()


def _row(table: pd.DataFrame, feature: str, draws: int) -> dict[str, Any]:
    spread = f"{feature}_spread"
    means = table[feature].to_numpy(dtype=float)
    spreads = table[spread].to_numpy(dtype=float) if spread in table else np.full(len(means), np.nan)
    correlation = intraclass_correlation(means, spreads, draws)
    verdict, reason = INFORMATIVE, ""
    if not np.isfinite(means).all():
        verdict, reason = NOT_TESTED, "a value is not finite"
    elif len(means) < _FEWEST_CHECKPOINTS:
        verdict, reason = NOT_TESTED, f"fewer than {_FEWEST_CHECKPOINTS} checkpoints"
    elif draws < 2:
        verdict, reason = NOT_TESTED, "one draw: set landscape.repeats"
    elif np.ptp(means) == 0 and not spreads.any():
        verdict, reason = UNINFORMATIVE, "constant"
    elif correlation < LEAST_CORRELATION:
        verdict, reason = UNINFORMATIVE, "differs as much between draws as between checkpoints"
    return {
        "n_checkpoints": len(means),
        "n_draws": draws,
        "mean": means.mean(),
        "spread_over_draws": np.sqrt((spreads**2).mean()),
        "spread_over_training": means.std(ddof=1) if len(means) > 1 else np.nan,
        "intraclass_correlation": correlation,
        "intraclass_correlation_trained": intraclass_correlation(means[1:], spreads[1:], draws),
        "verdict": verdict,
        "reason": reason,
    }


def intraclass_correlation(means: np.ndarray, spreads: np.ndarray, draws: int) -> float:
    """Return ICC(1) of one-way analysis of variance: the share of a draw's variance that is between groups.

    (between - within) / (between + (draws - 1) within) of the mean squares, from means and standard deviations (g,) of
    `draws` values each; NaN for a constant, or fewer than two groups or draws. Shrout and Fleiss (1979).
    """
    if len(means) < 2 or draws < 2 or not (np.isfinite(means).all() and np.isfinite(spreads).all()):
        return float("nan")
    between, within = draws * means.var(ddof=1), float((spreads**2).mean())
    total = between + (draws - 1) * within
    return float((between - within) / total) if total > 0 else float("nan")
