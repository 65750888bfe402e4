"""What studies over seeds share: the run permutation as rows of results, intervals, and what must be found between runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import ndtri

from studies.norms import NORMS
from toposcale.analysis.over_seeds import EarlyValues, early_values, value_at_share
from toposcale.forecasting.runs.metrics import VALIDATION_LOSS
from toposcale.io.errors import UserError
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.freedman_lane import fit_of_configuration

LATER = 0.5
"""Share of the training at which the loss tells the final one so well that every test between runs must find it."""
STUDY_DRAWS = 200_000
"""Permutations of a test between runs that a study was planned with."""
_HALF = float(ndtri(0.975))


def between_rows(
    question: str,
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    *,
    seed: int,
    draws: int = STUDY_DRAWS,
    norms: Sequence[str] = NORMS,
    metric: str = VALIDATION_LOSS,
) -> pd.DataFrame:
    """A row for each feature: does it tell at 30% of training how the metric of the runs of a configuration will end?

    norms: the features that are given at 30%, beside the metric at 20 and 30% and the square of the latter. The interval is
    Fisher's. UserError: a control is not there.
    """
    read = early_values(features, metrics, models, metric, norms)
    if read is None:
        raise UserError(f"{metric}: its values or those of {', '.join(norms)} are not there")
    test = read.test(seed=seed, draws=draws)
    # The z of each configuration has one degree of freedom less than its test.
    low, high = fisher_interval(test.correlation, test.degrees_of_freedom - test.n_configurations)
    return pd.DataFrame(
        {
            "question": question,
            "feature": read.features.index.get_level_values("feature"),
            "n_models": test.n_runs,
            "n_configurations": test.n_configurations,
            "estimate": test.correlation,
            "low": low,
            "high": high,
            "p": test.p,
        }
    ).dropna(subset=["estimate"])


def partial_correlations(read: EarlyValues, features: Sequence[str]) -> dict[str, dict[str, float]]:
    """By configuration and feature: the correlation of what mean and controls of the configuration leave of feature and
    outcome."""
    values = read.features.droplevel(["source", "layer"]).loc[list(features)].to_numpy(np.float64)
    found = {}
    for configuration in dict.fromkeys(read.configurations):
        runs = np.flatnonzero([own == configuration for own in read.configurations])
        fit = fit_of_configuration(values, read.outcome[None], read.controls, runs)
        found[configuration] = dict(zip(features, fit.correlations(fit.residuals[None])[0].tolist(), strict=True))
    return found


def fisher_interval(correlation: Floats, degrees_of_freedom: Floats | float) -> tuple[Floats, Floats]:
    """Bounds of the 95% interval of correlations whose z has the variance 1 / degrees_of_freedom (Fisher 1921)."""
    with np.errstate(divide="ignore"):
        middle = np.arctanh(correlation)
    half = _HALF / np.sqrt(degrees_of_freedom)
    return np.tanh(middle - half), np.tanh(middle + half)


def later_loss(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, norms: Sequence[str]
) -> pd.DataFrame:
    """The norms, and the loss at `LATER` in the place of a feature: it tells the final one, so it must be found."""
    values = metrics[metrics["metric"] == VALIDATION_LOSS]
    ends = dict(zip(models["model"], models["final_step"], strict=True))
    later = value_at_share(values, ["metric"], LATER, ends).T.reset_index()
    later = later.rename(columns={VALIDATION_LOSS: "value"})
    control = later.assign(feature=f"loss_at_{LATER:.0%}", step=0, source="weights", layer="all")
    return pd.concat([features[features["feature"].isin(norms)], control])
