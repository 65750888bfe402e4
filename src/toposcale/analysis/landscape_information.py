"""Which features of the landscape tell checkpoints apart, and which are noise of their draws or constant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from toposcale.features.registry import is_uncertainty
from toposcale.io import schemas
from toposcale.io.schemas import ALL_LAYERS

INFORMATIVE, UNINFORMATIVE, NOT_TESTED = "informative", "uninformative", "not tested"
LEAST_CORRELATION = 0.5
"""Intraclass correlation below which more than half of the variance is noise of the draws."""
_FEWEST_CHECKPOINTS = 3


def landscape_information_tables(all_features: pd.DataFrame, *, repeats: int) -> dict[str, pd.DataFrame]:
    """The table landscape_information: a row for each model and feature of the landscape.

    all_features: the features table with its spreads; a value is the mean over 1 + `repeats` draws of a probe batch and
    directions. `intraclass_correlation` is that of one draw by one-way analysis of variance, over all checkpoints and
    `intraclass_correlation_trained` over those after the first. `verdict`: uninformative where the feature is constant
    or the correlation is below 0.5, not tested where it cannot be known, and the reason.
    """
    landscape = all_features[(all_features["source"] == "landscape") & (all_features["layer"] == ALL_LAYERS)]
    rows = []
    for model, of_model in landscape.groupby("model", sort=True):
        table = of_model.pivot(index="step", columns="feature", values="value").sort_index()
        rows += [
            {"model": model, "feature": feature, **_row(table, feature, 1 + repeats)}
            for feature in table.columns
            if not is_uncertainty(feature)
        ]
    return {"landscape_information": schemas.TABLES["landscape_information"].frame(rows)}


def _row(table: pd.DataFrame, feature: str, draws: int) -> dict[str, Any]:
    means = table[feature].to_numpy(dtype=float)
    unknown = np.full(len(means), np.nan)
    spreads = table.get(f"{feature}_spread", pd.Series(unknown)).to_numpy(dtype=float)
    correlation = intraclass_correlation(means, spreads, draws)
    return {
        "n_checkpoints": len(means),
        "n_draws": draws,
        "mean": means.mean(),
        "spread_over_draws": np.sqrt((spreads**2).mean()),
        "spread_over_training": means.std(ddof=1) if len(means) > 1 else np.nan,
        "intraclass_correlation": correlation,
        "intraclass_correlation_trained": intraclass_correlation(means[1:], spreads[1:], draws),
        **_verdict(means, spreads, correlation, draws),
    }


def _verdict(means: np.ndarray, spreads: np.ndarray, correlation: float, draws: int) -> dict[str, str]:
    if not np.isfinite(means).all():
        return {"verdict": NOT_TESTED, "reason": "a value is not finite"}
    if len(means) < _FEWEST_CHECKPOINTS:
        return {"verdict": NOT_TESTED, "reason": f"fewer than {_FEWEST_CHECKPOINTS} checkpoints"}
    if draws < 2:
        return {"verdict": NOT_TESTED, "reason": "one draw: set landscape.repeats"}
    if np.ptp(means) == 0 and not spreads.any():
        return {"verdict": UNINFORMATIVE, "reason": "constant"}
    if correlation < LEAST_CORRELATION:
        return {"verdict": UNINFORMATIVE, "reason": "differs as much between draws as between checkpoints"}
    return {"verdict": INFORMATIVE, "reason": ""}


def intraclass_correlation(means: np.ndarray, spreads: np.ndarray, draws: int) -> float:
    """How much of the variance of one draw is between groups: ICC(1) of one-way analysis of variance.

    means, spreads: float64 (g,), mean and standard deviation (divisor n - 1) of `draws` values in each of g groups.
    (between - within) / (between + (draws - 1) within) of the mean squares; at most 1, negative where the groups differ
    less than chance would have it, and NaN for a constant, fewer than two groups or draws, or what is not finite.
    Shrout and Fleiss (1979).
    """
    if len(means) < 2 or draws < 2 or not (np.isfinite(means).all() and np.isfinite(spreads).all()):
        return float("nan")
    between, within = draws * means.var(ddof=1), float((spreads**2).mean())
    total = between + (draws - 1) * within
    return float((between - within) / total) if total > 0 else float("nan")
