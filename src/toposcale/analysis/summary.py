"""Summary of a run: a headline, and an answer of at most 40 words to each question."""

from collections.abc import Sequence

import pandas as pd

from toposcale.analysis import answers
from toposcale.analysis.answers import UNTESTED, Answer
from toposcale.analysis.questions import QUESTIONS, YES
from toposcale.analysis.series import SERIES_KEY, headline_metric, whole_model
from toposcale.analysis.verdicts import pooled_verdicts
from toposcale.forecasting.runs.metrics import metric_name
from toposcale.io import schemas

NEEDS_A_LOSS = (
    "This question needs a loss at the checkpoints, and this run has none: name a table of losses under metrics.tables, "
    "or keep trainer_state.json beside the weights."
)
TEST_AGAIN = "test it again with fresh seeds (docs/fresh-seeds.md)"
NEEDS_A_CHOICE = "No loss was measured, and no task was chosen: name one under metrics.tasks."


def summary_tables(
    metrics: pd.DataFrame,
    verdicts: pd.DataFrame,
    pooled_correlations: pd.DataFrame,
    tested_features: pd.DataFrame,
    sensitivity: pd.DataFrame,
    forecast_evaluation: pd.DataFrame,
    decision_evaluation: pd.DataFrame,
    advice: pd.DataFrame,
    *,
    tasks: Sequence[str] = (),
) -> dict[str, pd.DataFrame]:
    """Make the table summary: the headline at position 0, then one row a question; an unanswerable one says why.

    Answers about features are over all runs, whole models and the headline metric.
    """
    metric = headline_metric(metrics["metric"], tasks)
    tested = [question for question in QUESTIONS.values() if question.is_tested]
    asks = {question.name: f"Which add information to {question.beyond}?" for question in tested}
    follow = f"Which features follow the {metric_name(metric) if metric else 'loss'}?"
    if metric is None:
        first, on_features = NEEDS_A_CHOICE, dict.fromkeys([follow, *asks.values()], Answer(UNTESTED, NEEDS_A_CHOICE))
    else:
        on_metric = pooled_verdicts(verdicts, metric)
        correlations = whole_model(pooled_correlations[pooled_correlations["metric"] == metric])
        first = topology_sentence(on_metric, sensitivity, metric)
        on_features = {follow: answers.answer_correlated(on_metric, correlations)} | {
            asks[question.name]: answers.answer_beyond(on_metric, tested_features, sensitivity, question, metric)
            for question in tested
        }
        norm = on_features[asks["beyond_the_norm"]]
        numbers = norm.numbers + answers.coincidence_sentence(correlations)
        on_features[asks["beyond_the_norm"]] = norm._replace(numbers=numbers)
    on_features["Does topology improve the forecast of the final loss?"] = answers.answer_topological_forecast(
        forecast_evaluation
    )
    live, best = answers.answer_live_runs(advice), answers.answer_best_forecast(forecast_evaluation)
    on_runs = {} if live is None else {"What should be done with the runs under way?": live}
    on_runs["Which forecast of the final loss can be trusted?"] = best
    on_runs["Would following the advice have helped?"] = answers.answer_advice(decision_evaluation)
    by_question = on_features | on_runs
    if metrics.empty:
        first, by_question = NEEDS_A_LOSS, dict.fromkeys(by_question, Answer(UNTESTED, NEEDS_A_LOSS))
    elif verdicts.empty:  # a run of loss curves alone leads with its forecasts and advice
        leading = live or best
        first, by_question = f"{leading.verdict}. {leading.text}", on_runs | on_features
    rows = [
        {"position": position, "question": question, "verdict": verdict, "answer": text, "numbers": numbers}
        for position, (question, (verdict, text, numbers)) in enumerate(
            {"In one sentence": Answer("", first), **by_question}.items()
        )
    ]
    return {"summary": schemas.TABLES["summary"].frame(rows)}


def topology_sentence(verdicts: pd.DataFrame, sensitivity: pd.DataFrame, metric: str) -> str:
    """Say in one sentence whether topology adds to the norm, or whether that could have been found."""
    name, (power, why) = metric_name(metric), answers.sensitivity_row(sensitivity, "beyond_the_norm")
    if power is None:
        return f"This run could not test whether topology adds information to the norm of the weights: {why}."
    passed = verdicts[(verdicts["answer"] == YES) & answers.is_topology(verdicts)]
    beyond_norm = passed[passed["question"] == "beyond_the_norm"]
    runs = answers.counted(power["n_runs"], "run")
    if len(beyond_norm):
        count = answers.counted(len(beyond_norm), "topological feature")
        also = len(beyond_norm.merge(passed[passed["question"] == "beyond_the_spectrum"], on=SERIES_KEY))
        return (
            f"A search of {int(power['n_tested'])} features over {runs} found {count} adding information about "
            f"the {name} to the weight norm ({also or 'none'} to the spectrum); {TEST_AGAIN}."
        )
    if power["found"] != YES:
        clause = "This run could not have shown that topology adds information to the norm of the weights"
        return (
            f"{clause}: with {power['n_points']:.0f} checkpoints of {runs} its test does not detect the {name} itself."
        )
    power_words = answers.power_sentence(power["detectable"], "the run")
    return f"No test found that topology adds information to the norm of the weights; {power_words}."
