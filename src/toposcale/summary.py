"""What a run says about the project's questions, a sentence each, with the numbers and their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from toposcale.statistics.ranking import feature_group
from toposcale.statistics.series import WEIGHT_NORM
from toposcale.statistics.verdicts import POOLED
from toposcale.tables import ALL_LAYERS

TOPOLOGICAL_METHODS = ("topology_rate", "combined", "ridge_topology")
BASELINE = "power_law"


def summary(
    verdicts: pd.DataFrame,
    forecast_evaluation: pd.DataFrame,
    decision_evaluation: pd.DataFrame,
    *,
    metric: str = "validation_loss",
) -> pd.DataFrame:
    """The answers as a table (position, question, answer); a question that the run cannot answer says why.

    `verdicts`, `forecast_evaluation`, `decision_evaluation`: the tables of those names. The verdicts are those over all
    models, of features of whole models, on `metric`; where it was not measured, on the first metric that was.
    """
    pooled = verdicts[(verdicts["model"] == POOLED) & (verdicts["layer"] == ALL_LAYERS)]
    metrics = sorted(pooled["metric"].unique())
    if metrics and metric not in metrics:
        metric = metrics[0]
    pooled = pooled[pooled["metric"] == metric]
    name = metric.replace("_", " ")
    answers = {
        f"Which features follow the {name}?": following(pooled),
        "Which say something beyond the norm of the weights?": beyond(pooled, "beyond_the_norm", "the norm"),
        "Which say something beyond the training step?": beyond(pooled, "beyond_the_step", "the step"),
        "Does topology improve the forecast of the final loss?": forecasting(forecast_evaluation),
        "Would the advice have saved compute?": deciding(decision_evaluation),
    }
    rows = [(position, *pair) for position, pair in enumerate(answers.items(), start=1)]
    return pd.DataFrame(rows, columns=["position", "question", "answer"])


def following(pooled: pd.DataFrame) -> str:
    """How many features follow the metric, the closest of each group, and the plain norm beside them."""
    tested = pooled.dropna(subset=["follows_the_loss_rho"])
    if tested.empty:
        return "No feature could be correlated: there are too few checkpoints or models."
    followers = tested[tested["follows_the_loss"]]
    is_norm = (tested[["source", "layer", "feature"]] == list(WEIGHT_NORM)).all(axis=1)
    parts = [f"{len(followers)} of {len(tested)} features do, drifting together with it"]
    topological = followers[[feature_group(feature) == "topology" for feature in followers["feature"]]]
    if len(topological):
        closest = topological.iloc[int(topological["follows_the_loss_rho"].abs().to_numpy().argmax())]
        parts.append(
            f"the closest of topology is {closest['feature']} of the {closest['source']}, {_rho(closest)}"
        )
    if is_norm.any():
        parts.append(f"the plain norm of the weights has {_rho(tested[is_norm].iloc[0])}")
    return "; ".join(parts) + "."


def beyond(pooled: pd.DataFrame, question: str, what: str) -> str:
    """Which features pass the surrogate test given a control, before and after the correction for many tests."""
    tested = pooled.dropna(subset=[f"{question}_p"])
    if tested.empty:
        return "No feature could be tested: the test needs at least 10 checkpoints."
    passed = tested[tested[question]].sort_values(f"{question}_p")
    chance = 0.05 * len(tested)
    corrected = int(tested["survives_correction"].sum())
    text = f"{len(passed)} of {len(tested)} at the 5% level, where chance alone gives about {chance:.1f}"
    named = [
        f"{row['feature']} ({row['source']}, p = {row[f'{question}_p']:.2g})"
        for _, row in passed.head(3).iterrows()
    ]
    if named:
        text += ": " + ", ".join(named) + (" and others" if len(passed) > len(named) else "")
    return f"{text}. {corrected} survive the correction for the number of tests. The drift with {what} is taken out."


def forecasting(evaluation: pd.DataFrame) -> str:
    """Each method that reads topology against the power law on the loss, at the smallest share of training."""
    if evaluation.empty:
        return "No forecast could be made."
    fraction = evaluation["fraction"].min()
    rows = evaluation[evaluation["fraction"] == fraction].set_index("method")
    if BASELINE not in rows.index or math.isnan(rows.loc[BASELINE, "mae"]):
        return "The power law on the loss, with which methods are compared, could not be fitted."
    said = [
        f"From the first {fraction:.0%}, the power law misses the final loss by {rows.loc[BASELINE, 'mae']:.3f}"
    ]
    for method in TOPOLOGICAL_METHODS:
        if method in rows.index and not math.isnan(rows.loc[method, "improvement_percent"]):
            row = rows.loc[method]
            said.append(
                f"{method} improves on it by {row['improvement_percent']:.0f}% "
                f"(95% interval {row['improvement_low']:.0f} to {row['improvement_high']:.0f})"
            )
    return "; ".join(said) + f". With {int(rows['n_models'].max())} models such intervals are wide."


def deciding(evaluation: pd.DataFrame) -> str:
    """What following the advice would have cost and saved, with the power law and with topology in it."""
    if evaluation.empty:
        return "No model has a next size to be compared with."
    fraction = evaluation["fraction"].min()
    rows = evaluation[evaluation["fraction"] == fraction].set_index("policy")
    said = []
    for policy in (BASELINE, "combined", "topology_rate"):
        if policy in rows.index and not math.isnan(rows.loc[policy, "compute_saved_percent"]):
            row = rows.loc[policy]
            said.append(
                f"{policy} would have left out {row['compute_saved_percent']:.0f}% of the compute "
                f"(95% interval {row['compute_saved_percent_low']:.0f} to {row['compute_saved_percent_high']:.0f}) "
                f"at a regret of {row['regret']:.3f} in loss ({row['regret_low']:.3f} to {row['regret_high']:.3f})"
            )
    if not said:
        return f"From the first {fraction:.0%}, no method could give advice."
    return f"Advised at {fraction:.0%} of training, {'; '.join(said)}."


def warnings(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    duplicates: Mapping[str, Mapping[str, str] | None],
    dropped: Mapping[str, int],
) -> pd.DataFrame:
    """What a reader has to know before trusting a number: model, step (none for a whole model), warning.

    `duplicates`: by model, the steps that serve the weights of another revision, or None where that could not be told.
    `dropped`: characters left out of the corpus by split.
    """
    rows: list[tuple[str, int | None, str]] = [
        ("", None, f"{count} characters of the {split} text are not ASCII and were dropped")
        for split, count in dropped.items()
        if count
    ]
    for model, found in duplicates.items():
        if found is None:
            rows.append((model, None, "its revisions were not compared: the Hub could not be reached"))
        rows += [
            (model, int(step), f"serves the weights of {revision}")
            for step, revision in (found or {}).items()
        ]
    for name, table in (("features", features), ("metrics", metrics)):
        missing = table[~np.isfinite(table["value"])]
        for (model, step), group in missing.groupby(["model", "step"]):
            total = int(((table["model"] == model) & (table["step"] == step)).sum())
            rows.append((str(model), int(step), f"{len(group)} of {total} {name} are NaN or infinite"))
    return pd.DataFrame(rows, columns=["model", "step", "warning"]).astype({"step": "Int64"})


def _rho(row: pd.Series) -> str:
    low, high = row["follows_the_loss_low"], row["follows_the_loss_high"]
    return f"rho {row['follows_the_loss_rho']:.2f} (95% interval {low:.2f} to {high:.2f})"
