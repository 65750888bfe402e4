"""The questions of the study: what its small tables hold, the four primary tests, and the same for every feature.

docs/study.md says what is asked, and said so before a run was trained.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from scipy.special import ndtri

from studies.small_tables import check_finished
from studies.study.one_slope import one_slope
from toposcale.analysis.over_seeds import SHARE, early_values, paired_innovations, value_at_share
from toposcale.analysis.series import SERIES_KEY, whole_model
from toposcale.features.names import VALIDATION_LOSS
from toposcale.features.registry import WEIGHT_NORM
from toposcale.statistics.coefficients import Floats
from toposcale.statistics.multiple_testing import benjamini_hochberg, holm
from toposcale.statistics.run_permutation import pair_correlations, permute_pairs

PRIMARY = ("neural_persistence", "h0_total_scaled")
"""The features that the study was made for; every other one is exploratory."""

FOLLOWED = (*PRIMARY, WEIGHT_NORM.feature)
"""The features of every checkpoint; of the others, the study reads the value at `SHARE` of the training alone."""

QUESTIONS = ("A", "B")
METRICS = (VALIDATION_LOSS, "generalisation_gap")
LATER = 0.5
SEED = 42
DIGITS = 8
_HALF = float(ndtri(0.975))


def gathered(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What the results are computed from: `models`; `series`, the loss, the norm and the primary features at every
    checkpoint; `early`, all features of the whole model at the last checkpoint within `SHARE` of the training.

    UserError: a run is not finished.
    """
    check_finished(metrics, models)
    whole = whole_model(features)
    whole = whole[whole["source"] == "weights"]
    series = _wide(whole[whole["feature"].isin(FOLLOWED)])
    for metric in METRICS:
        own = metrics[metrics["metric"] == metric].set_index(["model", "step"])["value"]
        series = series.join(own.rename(metric))
    ends = models.set_index("model")["final_step"].astype(float)
    inside = whole[whole["step"] <= SHARE * whole["model"].map(ends) + 1e-6]
    last = inside[inside["step"] == inside.groupby("model")["step"].transform("max")]
    return {"models": models, "series": series.reset_index(), "early": _wide(last).reset_index()}


def _wide(features: pd.DataFrame) -> pd.DataFrame:
    return features.pivot(index=["model", "step"], columns="feature", values="value")


def long_tables(series: pd.DataFrame, early: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The features and metrics tables that `series` and `early` of `gathered` hold."""
    metrics = series[["model", "step", *METRICS]].melt(
        ["model", "step"], var_name="metric", value_name="value"
    )
    rows = [
        table.melt(["model", "step"], var_name="feature", value_name="value")
        for table in (series.drop(columns=list(METRICS)), early)
    ]
    features = pd.concat(rows).dropna(subset=["value"]).drop_duplicates(["model", "step", "feature"])
    return features.assign(source="weights", layer="all"), metrics


def study_tables(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    *,
    confirmatory: bool = True,
    seed: int = SEED,
) -> dict[str, pd.DataFrame]:
    """`primary`, the four tests with Holm's correction; `control`, question A of what must be found, the loss at `LATER`;
    and `exploratory`, the same for every other feature. Without `confirmatory` all of them are exploratory.

    Columns: question (A; "A, own slopes", the same with slopes of each cell; gap, A for the final generalisation gap given
    the gaps before it; B), feature, n_models, n_cells, estimate (a correlation), its 95% interval, p, and q (of Holm for
    the primary tests, of Benjamini and Hochberg for the others). A primary test that could not be made counts as p = 1.
    """
    between = partial(question_a, features, metrics, models, seed)
    rows = pd.concat(
        [
            between("A"),
            between("A, own slopes", own_slopes=True),
            between("gap", metric="generalisation_gap"),
            _within(features, metrics, models, seed),
        ],
        ignore_index=True,
    )
    first = rows["feature"].isin(PRIMARY) & rows["question"].isin(QUESTIONS) & confirmatory
    primary, others = rows[first].set_index(["question", "feature"]), rows[~first].copy()
    primary = primary.reindex(
        pd.MultiIndex.from_product([QUESTIONS, sorted(PRIMARY)], names=primary.index.names)
    )
    primary["q"] = holm(primary["p"].fillna(1.0).to_numpy())
    others["q"] = benjamini_hochberg(others["p"].to_numpy())
    control = question_a(_later_loss(features, metrics, models), metrics, models, seed, "A")
    tables = {
        "primary": primary.reset_index(),
        "control": control.dropna(subset=["estimate"]),
        "exploratory": others.sort_values(["question", "p", "feature"], ignore_index=True),
    }
    return tables if confirmatory else {name: tables[name] for name in ("control", "exploratory")}


def _later_loss(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame) -> pd.DataFrame:
    """The norm, and the loss at `LATER` in the place of a feature: it tells the final loss, so question A must find it."""
    losses = metrics[metrics["metric"] == VALIDATION_LOSS]
    ends = dict(zip(models["model"], models["final_step"], strict=True))
    later = value_at_share(losses, ["metric"], LATER, ends).T.reset_index()
    later = later.rename(columns={VALIDATION_LOSS: "value"})
    control = later.assign(feature=f"loss_at_{LATER:.0%}", step=0, source="weights", layer="all")
    return pd.concat([features[features["feature"] == WEIGHT_NORM.feature], control])


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
    before, now, _, norm = read.controls
    controls = np.stack([before, now, (now - now.mean()) ** 2, norm])
    values = read.features.to_numpy(np.float64)
    test = one_slope(values, read.outcome, read.cells, controls, own_slopes=own_slopes, seed=seed)
    low, high = fisher_interval(test.correlation, test.freedom - 1)
    return pd.DataFrame(
        {
            "question": question,
            "feature": read.features.index.get_level_values("feature"),
            "n_models": len(read.cells),
            "n_cells": len(set(read.cells)),
            "estimate": test.correlation,
            "low": low,
            "high": high,
            "p": test.p,
        }
    )


def fisher_interval(correlation: Floats, freedom: float) -> tuple[Floats, Floats]:
    """Bounds of the 95% interval of correlations whose z has the variance 1 / freedom (Fisher 1921)."""
    with np.errstate(divide="ignore"):
        middle = np.arctanh(correlation)
    half = _HALF / np.sqrt(freedom)
    return np.tanh(middle - half), np.tanh(middle + half)


def _within(features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Question B. The estimate is how much more a run's innovations go with its own than with its sisters'."""
    rows = []
    followed = features[features["feature"].isin(FOLLOWED)]
    for paired in paired_innovations(followed, metrics, models, metric=VALIDATION_LOSS):
        table = pair_correlations(paired.x, paired.y, paired.controls)[:, 0]
        test = permute_pairs(table, paired.cells, seed=seed)
        for place, key in enumerate(paired.keys):
            own = own_surplus(table[place], paired.cells)
            half = _HALF * own.std(ddof=1) / np.sqrt(len(own))
            rows.append(
                {
                    "question": "B",
                    "feature": dict(zip(SERIES_KEY, key, strict=True))["feature"],
                    "n_models": len(own),
                    "n_cells": len(set(paired.cells)),
                    "estimate": own.mean(),
                    "low": own.mean() - half,
                    "high": own.mean() + half,
                    "p": float(test.p[place]),
                }
            )
    return pd.DataFrame(rows)


def own_surplus(correlations: Floats, cells: list[str]) -> Floats:
    """(R,) of the correlations (R, R) of run i's feature with run j's loss: a run's own, less the mean over the pairs that
    it is in with its sisters."""
    labels = np.array(cells)
    sisters = (labels[:, None] == labels) & ~np.eye(len(labels), dtype=bool)
    with_others = np.where(sisters, (correlations + correlations.T) / 2, 0.0)
    return np.diag(correlations) - with_others.sum(axis=1) / sisters.sum(axis=1)
