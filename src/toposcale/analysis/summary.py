"""What a run says about the project's questions: a headline, and an answer of at most 40 words each, numbers apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from toposcale.analysis.answers import UNTESTED, Answer, beyond, coinciding, following, headline
from toposcale.analysis.series import headline_metric
from toposcale.analysis.verdicts import POOLED
from toposcale.features.names import metric_name
from toposcale.io import schemas
from toposcale.io.schemas import ALL_LAYERS

BASELINE = "power_law"
METHODS = {
    "topology_rate": "the rate of neural persistence",
    "combined": "its mean with the power law",
    "ridge_topology": "a regression on all topology",
}
"""Forecasting methods that read topology, in words."""
NEEDS_A_LOSS = (
    "This question needs a loss at the checkpoints, and the run knows none: name a table of losses under metrics.tables, "
    "or keep the trainer_state.json beside the weights."
)
NEEDS_A_CHOICE = "No loss was measured, and no task was chosen: name one under metrics.tasks."


def summary_tables(
    metrics: pd.DataFrame,
    verdicts: pd.DataFrame,
    tested_features: pd.DataFrame,
    sensitivity: pd.DataFrame,
    forecast_evaluation: pd.DataFrame,
    decision_evaluation: pd.DataFrame,
    *,
    tasks: Sequence[str] = (),
) -> dict[str, pd.DataFrame]:
    """The table summary: a row for the headline, at position 0, and one a question; what cannot be answered says why.

    The answers are over all runs, of features of whole models, on the headline metric.
    """
    metric = headline_metric(metrics["metric"], tasks)
    name = metric_name(metric) if metric else "loss"
    rows = (verdicts["layer"] == ALL_LAYERS) & (verdicts["metric"] == metric)
    family = verdicts[rows & (verdicts["model"] == POOLED)]
    alone = verdicts[rows & (verdicts["model"] != POOLED)]
    if metric is None:
        why = NEEDS_A_LOSS if metrics.empty else NEEDS_A_CHOICE
        said, first = (
            {"follows": Answer(UNTESTED, why), "norm": Answer(UNTESTED, why), "step": Answer(UNTESTED, why)},
            why,
        )
    else:
        first = headline(family, sensitivity, metric)
        step = beyond(family, tested_features, sensitivity, "beyond_the_step", metric)
        said = {
            "follows": following(family),
            "norm": beyond(family, tested_features, sensitivity, "beyond_the_norm", metric),
            "step": step._replace(numbers=step.numbers + coinciding(alone)),
        }
    answers = {
        "In one sentence": Answer("", first),
        f"Which features follow the {name}?": said["follows"],
        "Which say something beyond the norm of the weights?": said["norm"],
        "Which say something beyond the training step?": said["step"],
        "Does topology improve the forecast of the final loss?": forecasting(forecast_evaluation),
        "Would the advice have saved compute?": deciding(decision_evaluation),
    }
    if metrics.empty:
        answers = {
            question: Answer(UNTESTED if place else "", NEEDS_A_LOSS)
            for place, question in enumerate(answers)
        }
    return {
        "summary": schemas.SUMMARY.frame(
            [
                {"position": position, "question": question}
                | {"verdict": said.verdict, "answer": said.text, "numbers": said.numbers}
                for position, (question, said) in enumerate(answers.items())
            ]
        )
    }


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
        f"{rows.loc[BASELINE, 'mae']:.3f} nats."
    )
    said = []
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
    if len(judged):
        best = judged["improvement_percent"].idxmax()
        gain = judged.loc[best, "improvement_percent"]
        word = "closer" if gain >= 0 else "further off"
        text += f" The best of topology, {METHODS[str(best)]}, comes {abs(gain):.0f}% {word}."
    numbers = "; ".join(said) + f". {int(rows['n_models'].max())} models: intervals are wide." if said else ""
    return Answer(verdict, text, numbers)


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
    best = judged["compute_saved_percent"].idxmax()
    text = (
        f"Advised at {fraction:.0%} of training when to scale up, {words[str(best)]} would have saved "
        f"{judged.loc[best, 'compute_saved_percent']:.0f}% of the compute for {judged.loc[best, 'regret']:.3f} in loss."
    )
    return Answer(verdict, text, "; ".join(said) + ".")


def _interval(low: float, high: float, form: str) -> str:
    if not (np.isfinite(low) and np.isfinite(high)):
        return "(no interval: too few models)"
    return f"(95% interval {low:{form}} to {high:{form}})"
