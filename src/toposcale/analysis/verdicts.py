"""One verdict per feature: follows the loss / beyond the norm / beyond the step / survives correction."""

from __future__ import annotations

import numpy as np
import pandas as pd

from toposcale.analysis.correlations import PAIR_KEY, RESAMPLES, correlation_table, partial_correlation_table
from toposcale.analysis.pooled import NOTHING, pooled_table
from toposcale.io import schemas

POOLED = "pooled"
"""Value of the `model` column in the verdict over all models."""

_QUESTIONS = {"beyond_the_norm": "weight_norm", "beyond_the_step": "step"}


def verdict_tables(
    features: pd.DataFrame, metrics: pd.DataFrame, *, seed: int, resamples: int = RESAMPLES
) -> dict[str, pd.DataFrame]:
    """The tables correlations, partial_correlations, pooled_correlations and verdicts."""
    if set(features["model"]).isdisjoint(metrics["model"]):
        return {}
    plain = correlation_table(features, metrics, seed=seed, resamples=resamples)
    partial = partial_correlation_table(features, metrics, seed=seed, resamples=resamples)
    pooled = pooled_table(features, metrics, plain, partial)
    return {
        "correlations": plain,
        "partial_correlations": partial,
        "pooled_correlations": pooled,
        "verdicts": verdict_table(plain, partial, pooled),
    }


def verdict_table(
    correlations: pd.DataFrame, partials: pd.DataFrame, pooled: pd.DataFrame, *, alpha: float = 0.05
) -> pd.DataFrame:
    """Verdicts, one row per (model or "pooled", source, layer, feature, metric), each with its number.

    - follows_the_loss: the interval of the Spearman correlation excludes 0 (moving blocks; pooled: random
      effects). Drifting together is enough.
    - beyond_the_norm, beyond_the_step: the surrogate test, given the weight norm and the trend (the trend
      alone), has p <= alpha. The partial Spearman correlation beside it still holds the memory of the series, so that
      the two may differ.
    - survives_correction: the surrogate p-value, after Benjamini-Hochberg over the table, is <= alpha.

    What could not be tested is "no", and `reason` says why.
    """
    intervals = {"spearman": "rho", "spearman_block_low": "low", "spearman_block_high": "high"}
    per_model = _verdicts(
        correlations.rename(columns=intervals),
        partials.rename(columns={name: name.replace("partial_", "") for name in partials.columns}).assign(
            innovation_low=np.nan, innovation_high=np.nan
        ),
        alpha,
    )
    over_models = pooled.assign(model=POOLED, reason="")
    over_models.loc[over_models["p_surrogate"].isna(), "reason"] = "no model allows the surrogate test"
    names = {"spearman": "rho", "spearman_low": "low", "spearman_high": "high"}
    together = _verdicts(
        over_models[over_models["given"] == NOTHING].rename(columns=names),
        over_models[over_models["given"] != NOTHING],
        alpha,
    )
    return schemas.VERDICTS.frame(pd.concat([per_model, together], ignore_index=True))


def _verdicts(plain: pd.DataFrame, partial: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """plain: rho, low, high, p_surrogate_bh, reason; partial: given, spearman and innovation_correlation
    with bounds, p_surrogate, reason."""
    table = plain[PAIR_KEY].copy()
    table["follows_the_loss"] = (plain["low"] > 0) | (plain["high"] < 0)
    for name in ("rho", "low", "high"):
        table[f"follows_the_loss_{name}"] = plain[name]
    table["survives_correction"] = plain["p_surrogate_bh"] <= alpha
    table["survives_correction_p"] = plain["p_surrogate_bh"]
    table["reason"] = plain["reason"]
    for question, given in _QUESTIONS.items():
        columns = {
            "spearman": f"{question}_rho",
            "spearman_low": f"{question}_low",
            "spearman_high": f"{question}_high",
            "innovation_correlation": f"{question}_innovation",
            "innovation_low": f"{question}_innovation_low",
            "innovation_high": f"{question}_innovation_high",
            "p_surrogate": f"{question}_p",
            "reason": f"{question}_reason",
        }
        answers = partial[partial["given"] == given].rename(columns=columns)
        table = table.merge(
            answers[[*PAIR_KEY, *columns.values()]], on=PAIR_KEY, how="left", validate="one_to_one"
        )
        table[question] = table[f"{question}_p"] <= alpha
    return table
