"""Summary of a run: a headline, and an answer of at most 40 words to each question."""

from collections.abc import Mapping, Sequence

import pandas as pd

from toposcale.analysis import answers
from toposcale.analysis.answers import HOW_TO_ADD_A_LOSS, UNTESTED, WHICH_ADD, Answer
from toposcale.analysis.controls import YES, questions
from toposcale.analysis.series import SERIES_KEY, headline_metric, whole_model
from toposcale.analysis.verdicts import pooled_verdicts
from toposcale.forecasting.runs.metrics import metric_name
from toposcale.io import schemas
from toposcale.io.errors import counted

NEEDS_A_LOSS = f"No loss is known, so the features are compared with none; {HOW_TO_ADD_A_LOSS}."
DOES_IT_IMPROVE = "Does topology improve the forecast of the final loss?"
WHICH_FORECAST = "Which forecast of the final loss can be trusted?"
WOULD_IT_HELP = "Would following the advice have helped?"
OF_SEVERAL_RUNS = (DOES_IT_IMPROVE, WHICH_FORECAST, WOULD_IT_HELP)
"""Questions that one run cannot answer."""
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

    Answers about features are over all runs, whole models and the headline metric. Without a loss there is only the
    headline; with one run, the questions that it can answer.
    """
    if metrics.empty:
        return _summary({"In one sentence": Answer("", NEEDS_A_LOSS)})
    metric = headline_metric(metrics["metric"], tasks)
    tested = [control for control in questions() if control.is_tested]
    asks = {control.question: f"{WHICH_ADD} {control.adds_to}?" for control in tested}
    follow = f"Which features follow the {metric_name(metric) if metric else 'loss'}?"
    if metric is None:
        first, on_features = NEEDS_A_CHOICE, dict.fromkeys([follow, *asks.values()], Answer(UNTESTED, NEEDS_A_CHOICE))
    else:
        on_metric = pooled_verdicts(verdicts, metric)
        correlations = whole_model(pooled_correlations[pooled_correlations["metric"] == metric])
        first = topology_sentence(on_metric, sensitivity, metric)
        on_features = {follow: answers.answer_correlated(on_metric, correlations)} | {
            asks[control.question]: answers.answer_beyond(on_metric, tested_features, sensitivity, control, metric)
            for control in tested
        }
        norm = on_features[asks["beyond_the_norm"]]
        numbers = norm.numbers + answers.coincidence_sentence(correlations)
        on_features[asks["beyond_the_norm"]] = norm._replace(numbers=numbers)
    on_features[DOES_IT_IMPROVE] = answers.answer_topological_forecast(forecast_evaluation)
    live, best = answers.answer_live_runs(advice), answers.answer_best_forecast(forecast_evaluation)
    on_runs = {} if live is None else {"What should be done with the runs under way?": live}
    on_runs[WHICH_FORECAST] = best
    on_runs[WOULD_IT_HELP] = answers.answer_advice(decision_evaluation)
    by_question = on_features | on_runs
    if verdicts.empty:  # a run of only loss curves leads with its forecasts and advice
        leading = live or best
        first, by_question = f"{leading.verdict}. {leading.text}", on_runs | on_features
    if metrics["model"].nunique() == 1 or forecast_evaluation["n_forecasts"].max() == 1:
        by_question = {question: answer for question, answer in by_question.items() if question not in OF_SEVERAL_RUNS}
    return _summary({"In one sentence": Answer("", first), **by_question})


def _summary(by_question: Mapping[str, Answer]) -> dict[str, pd.DataFrame]:
    """Return the table summary of these answers, the headline first."""
    rows = [
        {"position": position, "question": question, "verdict": verdict, "answer": text, "numbers": numbers}
        for position, (question, (verdict, text, numbers)) in enumerate(by_question.items())
    ]
    return {"summary": schemas.TABLES["summary"].frame(rows)}


def topology_sentence(verdicts: pd.DataFrame, sensitivity: pd.DataFrame, metric: str) -> str:
    """Say in one sentence whether topology adds to the norm, or whether that could have been found."""
    if not answers.is_topology(verdicts).any():
        return "No topology of the whole model was measured, so nothing is said on what it adds to the norm."
    name, (power, reason) = metric_name(metric), answers.sensitivity_row(sensitivity, "beyond_the_norm")
    if power is None:
        return f"This run could not test whether topology predicts the loss beyond the norm: {reason}."
    significant = verdicts[(verdicts["answer"] == YES) & answers.is_topology(verdicts)]
    beyond_norm = significant[significant["question"] == "beyond_the_norm"]
    runs = counted(power["n_runs"], "run")
    if len(beyond_norm):
        count = counted(len(beyond_norm), "topological feature")
        also = len(beyond_norm.merge(significant[significant["question"] == "beyond_the_spectrum"], on=SERIES_KEY))
        return (
            f"A search of {int(power['n_tested'])} features over {runs} found {count} predicting "
            f"the {name} beyond the weight norm ({also or 'none'} beyond the spectrum); {TEST_AGAIN}."
        )
    if power["found"] != YES:
        clause = "This run could not have shown that topology predicts the loss beyond the norm of the weights"
        return (
            f"{clause}: with {power['n_points']:.0f} checkpoints of {runs} its test does not detect the {name} itself."
        )
    power_words = answers.power_sentence(power["detectable"], "the run")
    return f"No test found that topology predicts the loss beyond the norm of the weights; {power_words}."
