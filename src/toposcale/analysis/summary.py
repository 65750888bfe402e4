"""What a run says about the project's questions, a sentence each, with the numbers and their intervals."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd

from toposcale.analysis.series import WEIGHT_NORM
from toposcale.analysis.verdicts import POOLED
from toposcale.features.names import feature_name
from toposcale.features.registry import group_of
from toposcale.io import schemas
from toposcale.io.schemas import ALL_LAYERS
from toposcale.statistics.multiple_testing import benjamini_hochberg

LEVEL = 0.05
UNTESTED = "Could not be tested"
BASELINE = "power_law"
NEEDS_A_LOSS = (
    "This question needs a loss at the checkpoints, and the run knows none: name a table of losses under metrics.tables, "
    "or keep the trainer_state.json beside the weights."
)
METHODS = {
    "topology_rate": "the rate of neural persistence",
    "combined": "its mean with the power law",
    "ridge_topology": "a regression on all topology",
}
"""Forecasting methods that read topology, in words."""


class Answer(NamedTuple):
    """A few words, and the sentence with the numbers behind them."""

    verdict: str
    text: str


def summary_tables(
    metrics: pd.DataFrame,
    verdicts: pd.DataFrame,
    forecast_evaluation: pd.DataFrame,
    decision_evaluation: pd.DataFrame,
) -> dict[str, pd.DataFrame]:
    """The table summary. Without any metric, each answer says what it needs."""
    table = summary(verdicts, forecast_evaluation, decision_evaluation)
    if metrics.empty:
        table = table.assign(verdict=UNTESTED, answer=NEEDS_A_LOSS)
    return {"summary": table}


def summary(
    verdicts: pd.DataFrame,
    forecast_evaluation: pd.DataFrame,
    decision_evaluation: pd.DataFrame,
    *,
    metric: str = "validation_loss",
) -> pd.DataFrame:
    """The table summary; a question that the run cannot answer says why.

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
    rows = [
        {"position": position, "question": question, "verdict": said.verdict, "answer": said.text}
        for position, (question, said) in enumerate(answers.items(), start=1)
    ]
    return schemas.SUMMARY.frame(rows)


def following(pooled: pd.DataFrame) -> Answer:
    """How many features follow the metric, the closest of topology, and the plain norm beside them."""
    tested = pooled.dropna(subset=["follows_the_loss_rho"])
    if tested.empty:
        return Answer(UNTESTED, "No feature could be correlated: there are too few checkpoints or models.")
    followers = tested[tested["follows_the_loss"]]
    verdict = f"{len(followers)} of {len(tested)}"
    parts = [f"{len(followers)} of {len(tested)} features rise or fall with it, as anything that drifts does"]
    topological = followers[[group_of(feature) == "topology" for feature in followers["feature"]]]
    if len(topological):
        closest = topological.iloc[int(topological["follows_the_loss_rho"].abs().to_numpy().argmax())]
        parts.append(f"the closest of topology is {_name(closest)}, {_rho(closest)}")
    norm = tested[(tested[["source", "layer", "feature"]] == list(WEIGHT_NORM)).all(axis=1)]
    if len(norm):
        parts.append(f"the plain norm of the weights has {_rho(norm.iloc[0])}")
        verdict += (
            ", and so does the plain norm" if norm["follows_the_loss"].iloc[0] else ", the plain norm not"
        )
    return Answer(verdict, "; ".join(parts) + ".")


def beyond(pooled: pd.DataFrame, question: str, what: str) -> Answer:
    """Which features pass the surrogate test given a control, before and after the correction for many tests."""
    tested = pooled.dropna(subset=[f"{question}_p"])
    if tested.empty:
        return Answer(UNTESTED, "No feature could be tested: the test needs at least 10 checkpoints.")
    passed = tested[tested[question]].sort_values(f"{question}_p")
    corrected = int((benjamini_hochberg(tested[f"{question}_p"]) <= LEVEL).sum())
    text = (
        f"With {what} and the drift taken out of both, {len(passed)} of {len(tested)} still go with the loss at the "
        f"{LEVEL:.0%} level, where chance alone gives about {LEVEL * len(tested):.1f}"
    )
    if len(passed):
        text += f"; first {_left(passed.iloc[0], question)}"
    text += f". Corrected for the number of tests, {corrected or 'none'} of them remain{'s' if corrected == 1 else ''}."
    return Answer(f"{corrected} of {len(tested)}" if corrected else "None shown to", text)


def forecasting(evaluation: pd.DataFrame) -> Answer:
    """Each method that reads topology against the power law on the loss, at the smallest share of training."""
    if evaluation.empty:
        return Answer(UNTESTED, "No forecast could be made.")
    fraction = evaluation["fraction"].min()
    rows = evaluation[evaluation["fraction"] == fraction].set_index("method")
    if BASELINE not in rows.index or math.isnan(rows.loc[BASELINE, "mae"]):
        return Answer(
            UNTESTED, "The power law on the loss, with which methods are compared, could not be fitted."
        )
    text = (
        f"From the first {fraction:.0%} of training, a power law on the loss alone misses the final loss by "
    )
    said = [text + f"{rows.loc[BASELINE, 'mae']:.3f} nats"]
    methods = [method for method in METHODS if method in rows.index]
    judged = rows.loc[methods].dropna(subset=["improvement_percent"])
    for method, row in judged.iterrows():
        gain = row["improvement_percent"]
        # Lower errors are better; the interval is that of the same quantity, so it turns with the sign.
        sign, word = (1, "closer") if gain >= 0 else (-1, "further off")
        low, high = sorted(sign * row[end] for end in ("improvement_low", "improvement_high"))
        said.append(f"{METHODS[str(method)]} comes {abs(gain):.0f}% {word} {_interval(low, high, '.0f')}")
    if (judged["improvement_low"] > 0).any():
        verdict = "Yes"
    elif len(judged) and (judged["improvement_high"] < 0).all():
        verdict = "No, it makes it worse"
    else:
        verdict = "Not shown" if len(judged) else UNTESTED
    return Answer(
        verdict, "; ".join(said) + f". With {int(rows['n_models'].max())} models intervals are wide."
    )


def deciding(evaluation: pd.DataFrame) -> Answer:
    """What following the advice would have cost and saved, with the power law and with topology in it."""
    if evaluation.empty:
        return Answer(UNTESTED, "No model has a next size to be compared with.")
    fraction = evaluation["fraction"].min()
    rows = evaluation[evaluation["fraction"] == fraction].set_index("policy")
    policies = [policy for policy in (BASELINE, "combined", "topology_rate") if policy in rows.index]
    judged = rows.loc[policies].dropna(subset=["compute_saved_percent"])
    if judged.empty:
        return Answer(UNTESTED, f"From the first {fraction:.0%} of training, no method could give advice.")
    words = METHODS | {BASELINE: "the power law on the loss"}
    said = []
    for policy, row in judged.iterrows():
        saved = _interval(row["compute_saved_percent_low"], row["compute_saved_percent_high"], ".0f")
        given_up = _interval(row["regret_low"], row["regret_high"], ".3f")
        said.append(
            f"{words[str(policy)]} would have saved {row['compute_saved_percent']:.0f}% of the compute {saved} "
            f"for {row['regret']:.3f} in loss {given_up}"
        )
    sure = judged[judged["compute_saved_percent_low"] > 0]["compute_saved_percent"]
    verdict = f"Yes, most by {words[str(sure.idxmax())]}" if len(sure) else "Not shown"
    return Answer(verdict, f"Advised at {fraction:.0%} of training when to scale up, {'; '.join(said)}.")


def _rho(row: pd.Series) -> str:
    interval = _interval(row["follows_the_loss_low"], row["follows_the_loss_high"], ".2f")
    return f"rank correlation {row['follows_the_loss_rho']:.2f} {interval}"


def _left(row: pd.Series, question: str) -> str:
    """What is left of one correlation: the one that the test looks at, with its interval and the test's p-value."""
    rho, p_value = row[f"{question}_innovation"], row[f"{question}_p"]
    interval = _interval(row[f"{question}_innovation_low"], row[f"{question}_innovation_high"], ".2f")
    return (
        f"{_name(row)}, correlation {rho:.2f} of what is new at each checkpoint {interval}, p = {p_value:.2g}"
    )


def _name(row: pd.Series) -> str:
    return f"{feature_name(row['feature'], row['source'])} of the {row['source']}"


def _interval(low: float, high: float, form: str) -> str:
    if not (np.isfinite(low) and np.isfinite(high)):
        return "(no interval: too few models)"
    return f"(95% interval {low:{form}} to {high:{form}})"
