"""The questions of the study: the four primary tests, and the same for every feature.

docs/study.md says what is asked, and said so before a run was trained.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from studies.over_seeds import fisher_interval, later_loss, within_rows
from studies.study.one_slope import one_slope
from toposcale.analysis.over_seeds import EarlyValues, early_values
from toposcale.features.feature import WEIGHT_NORM
from toposcale.io.metrics import VALIDATION_LOSS
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.multiple_testing import benjamini_hochberg, holm

PRIMARY = ("neural_persistence", "h0_total_scaled")
"""The features that the study was made for; every other one is exploratory."""

FOLLOWED = (*PRIMARY, WEIGHT_NORM.feature)
"""The features of every checkpoint; of the others, the study reads the value at `SHARE` of the training alone."""

QUESTIONS = ("A", "B")
SEED = 42


def study_tables(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, *, confirmatory: bool = True, seed: int = SEED
) -> dict[str, pd.DataFrame]:
    """`primary`, the four tests with Holm's correction; `control`, question A of what must be found, the loss at `LATER`;
    and `exploratory`, the same for every other feature. Without `confirmatory` all of them are exploratory.

    Columns: question (A; "A, own slopes", the same with slopes of each configuration; gap, A for the final
    generalisation gap given the gaps before it; B), feature, n_models, n_configurations, estimate (a correlation), its
    95% interval, p, and q (of Holm for the primary tests, of Benjamini and Hochberg for the others). A primary test
    that could not be made counts as p = 1.
    """
    between = partial(question_a, features, metrics, models, seed)
    rows = pd.concat(
        [
            between("A"),
            between("A, own slopes", own_slopes=True),
            between("gap", metric="generalisation_gap"),
            within_rows("B", features[features["feature"].isin(FOLLOWED)], metrics, models, seed),
        ],
        ignore_index=True,
    )
    first = rows["feature"].isin(PRIMARY) & rows["question"].isin(QUESTIONS) & confirmatory
    primary, others = rows[first].set_index(["question", "feature"]), rows[~first].copy()
    primary = primary.reindex(pd.MultiIndex.from_product([QUESTIONS, sorted(PRIMARY)], names=primary.index.names))
    primary["q"] = holm(primary["p"].fillna(1.0).to_numpy())
    others["q"] = benjamini_hochberg(others["p"].to_numpy())
    later = later_loss(features, metrics, models, [WEIGHT_NORM.feature])
    control = question_a(later, metrics, models, seed, "A")
    tables = {
        "primary": primary.reset_index(),
        "control": control.dropna(subset=["estimate"]),
        "exploratory": others.sort_values(["question", "p", "feature"], ignore_index=True),
    }
    return tables if confirmatory else {name: tables[name] for name in ("control", "exploratory")}


def question_a(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    seed: int,
    question: str,
    *,
    metric: str = VALIDATION_LOSS,
    own_slopes: bool = False,
) -> pd.DataFrame:
    """Question A. The interval is Fisher's: of a partial correlation with so many degrees of freedom."""
    read = early_values(features, metrics, models, metric, (WEIGHT_NORM.feature,))
    if read is None:
        return pd.DataFrame()
    values, controls = read.features.to_numpy(np.float64), one_slope_controls(read)
    test = one_slope(values, read.outcome, read.configurations, controls, own_slopes=own_slopes, seed=seed)
    low, high = fisher_interval(test.correlation, test.degrees_of_freedom - 1)
    return pd.DataFrame(
        {
            "question": question,
            "feature": read.features.index.get_level_values("feature"),
            "n_models": len(read.configurations),
            "n_configurations": len(set(read.configurations)),
            "estimate": test.correlation,
            "low": low,
            "high": high,
            "p": test.p,
        }
    )


def one_slope_controls(read: EarlyValues) -> Floats:
    """The controls (C, R) of the plan: the square of the loss is around the mean of all runs."""
    before, now, _, norm = read.controls
    return np.stack([before, now, (now - now.mean()) ** 2, norm])
