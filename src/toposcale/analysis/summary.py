"""What a run says about the project's questions: a headline, and an answer of at most 40 words each, numbers apart."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from toposcale.analysis import feature_answers
from toposcale.analysis.feature_answers import UNTESTED, Answer
from toposcale.analysis.forecast_answers import deciding, forecasting, now, trusted
from toposcale.analysis.questions import NOT_TESTED, QUESTIONS, YES
from toposcale.analysis.series import headline_metric, whole_model
from toposcale.analysis.verdicts import family_of
from toposcale.features.names import metric_name
from toposcale.io import schemas

NEEDS_A_LOSS = (
    "This question needs a loss at the checkpoints, and the run knows none: name a table of losses under metrics.tables, "
    "or keep the trainer_state.json beside the weights."
)
NEEDS_A_CHOICE = "No loss was measured, and no task was chosen: name one under metrics.tasks."


def summary_tables(
    metrics: pd.DataFrame,
    verdicts: pd.DataFrame,
    pooled_correlations: pd.DataFrame,
    tested_features: pd.DataFrame,
    sensitivity: pd.DataFrame,
    forecast_evaluation: pd.DataFrame,
    decision_evaluation: pd.DataFrame,
    candidates: pd.DataFrame,
    *,
    tasks: Sequence[str] = (),
) -> dict[str, pd.DataFrame]:
    """The table summary: a row for the headline, at position 0, and one a question; what cannot be answered says why.

    The answers on features are over all runs, of features of whole models, on the headline metric. A run of loss curves
    alone leads with its forecasts and what to do.
    """
    metric = headline_metric(metrics["metric"], tasks)
    name = metric_name(metric) if metric else "loss"
    first, said = _on_features(metric, metrics, verdicts, pooled_correlations, tested_features, sensitivity)
    on_features = {
        f"Which features follow the {name}?": said.pop("follows_the_loss"),
        **{
            f"Which say something beyond {QUESTIONS[question].beyond}?": answer
            for question, answer in said.items()
        },
        "Does topology improve the forecast of the final loss?": forecasting(forecast_evaluation),
    }
    live = now(candidates)
    on_runs = {
        **({} if live is None else {"What should be done with the runs under way?": live}),
        "Which forecast of the final loss can be trusted?": trusted(forecast_evaluation),
        "Would following the advice have helped?": deciding(decision_evaluation),
    }
    if verdicts.empty and len(metrics):
        leading = live or on_runs["Which forecast of the final loss can be trusted?"]
        first = f"{leading.verdict}. {leading.text}"
        answers = {**on_runs, **on_features}
    else:
        answers = {**on_features, **on_runs}
    if metrics.empty:
        answers = dict.fromkeys(answers, Answer(UNTESTED, NEEDS_A_LOSS))
    rows = {"In one sentence": Answer("", NEEDS_A_LOSS if metrics.empty else first), **answers}
    return {
        "summary": schemas.TABLES["summary"].frame(
            [
                {"position": position, "question": question}
                | {"verdict": answer.verdict, "answer": answer.text, "numbers": answer.numbers}
                for position, (question, answer) in enumerate(rows.items())
            ]
        )
    }


def headline(family: pd.DataFrame, sensitivity: pd.DataFrame, metric: str) -> str:
    """The run in one sentence: does topology tell more of the metric than the norm does, and could that have been seen?"""
    name, own = metric_name(metric), feature_answers.row_of(sensitivity, "beyond_the_norm")
    asked = family[family["question"] == "beyond_the_norm"]
    if own is None or own["found"] == NOT_TESTED:
        why = "nothing was measured" if own is None else own["reason"]
        return f"This run could not test whether topology tells more than the norm does: {why}."
    found = asked[(asked["answer"] == YES) & feature_answers.is_topology(asked)]
    if len(found):
        clearest = feature_answers.name_of(found.iloc[found["q"].argmin()])
        what = f"In this run topology tells something about the {name} that the norm does not"
        return f"{what}: {feature_answers.counting(len(found), 'feature')}; the clearest is {clearest}."
    if own["found"] != YES:
        what = "This run could not have shown that topology tells more than the norm does"
        return f"{what}: its test does not even find the {name} itself."
    could = feature_answers.could(own["detectable"], "the run")
    return f"In this run no test found that topology adds anything to the norm; {could}."


def _on_features(
    metric: str | None,
    metrics: pd.DataFrame,
    verdicts: pd.DataFrame,
    pooled: pd.DataFrame,
    tested_features: pd.DataFrame,
    sensitivity: pd.DataFrame,
) -> tuple[str, dict[str, Answer]]:
    """The headline, and by question the answers on what follows the metric and what tells more than its control."""
    powered = [question for question in QUESTIONS.values() if question.simulation and question.beyond]
    if metric is None:
        why = NEEDS_A_LOSS if metrics.empty else NEEDS_A_CHOICE
        names = ["follows_the_loss", *(question.name for question in powered)]
        return why, dict.fromkeys(names, Answer(UNTESTED, why))
    family, own = family_of(verdicts, metric), whole_model(pooled[pooled["metric"] == metric])
    answers = {
        question.name: feature_answers.beyond(family, tested_features, sensitivity, question, metric)
        for question in powered
    }
    norm = answers["beyond_the_norm"]
    answers["beyond_the_norm"] = norm._replace(numbers=norm.numbers + feature_answers.coinciding(own))
    return headline(family, sensitivity, metric), {
        "follows_the_loss": feature_answers.following(family, own),
        **answers,
    }
