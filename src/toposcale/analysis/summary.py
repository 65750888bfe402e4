"""Summary of a run: a headline, and an answer of at most 40 words to each question."""

from collections.abc import Sequence

import pandas as pd

from toposcale.analysis import feature_answers
from toposcale.analysis.confirmation import CONFIRMED
from toposcale.analysis.feature_answers import UNTESTED, Answer
from toposcale.analysis.forecast_answers import deciding, forecasting, now, trusted
from toposcale.analysis.questions import NOT_TESTED, QUESTIONS, YES
from toposcale.analysis.series import SERIES_KEY, headline_metric, whole_model
from toposcale.analysis.verdicts import pooled_verdicts
from toposcale.io import schemas
from toposcale.io.metrics import metric_name

NEEDS_A_LOSS = (
    "This question needs a loss at the checkpoints, and this run has none: name a table of losses under metrics.tables, "
    "or keep trainer_state.json beside the weights."
)
NEEDS_A_CHOICE = "No loss was measured, and no task was chosen: name one under metrics.tasks."


def summary_tables(
    metrics: pd.DataFrame,
    verdicts: pd.DataFrame,
    pooled_correlations: pd.DataFrame,
    tested_features: pd.DataFrame,
    sensitivity: pd.DataFrame,
    confirmation: pd.DataFrame,
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
    powered = [question for question in QUESTIONS.values() if question.simulation and question.beyond]
    asks = {question.name: f"Which add information to {question.beyond}?" for question in powered}
    follow = f"Which features follow the {metric_name(metric) if metric else 'loss'}?"
    if metric is None:
        first, on_features = NEEDS_A_CHOICE, dict.fromkeys([follow, *asks.values()], Answer(UNTESTED, NEEDS_A_CHOICE))
    else:
        on_metric = pooled_verdicts(verdicts, metric)
        correlations = whole_model(pooled_correlations[pooled_correlations["metric"] == metric])
        first = topology_sentence(sensitivity, confirmation, metric)
        on_features = {follow: feature_answers.following(on_metric, correlations)} | {
            asks[question.name]: feature_answers.beyond(on_metric, tested_features, sensitivity, question, metric)
            for question in powered
        }
        norm = on_features[asks["beyond_the_norm"]]
        numbers = norm.numbers + feature_answers.coinciding(correlations)
        on_features[asks["beyond_the_norm"]] = norm._replace(numbers=numbers)
    if len(confirmation):
        on_features["Are the findings confirmed with fresh seeds?"] = again(confirmation)
    on_features["Does topology improve the forecast of the final loss?"] = forecasting(forecast_evaluation)
    live, best = now(advice), trusted(forecast_evaluation)
    on_runs = {} if live is None else {"What should be done with the runs under way?": live}
    on_runs["Which forecast of the final loss can be trusted?"] = best
    on_runs["Would following the advice have helped?"] = deciding(decision_evaluation)
    answers = on_features | on_runs
    if metrics.empty:
        first, answers = NEEDS_A_LOSS, dict.fromkeys(answers, Answer(UNTESTED, NEEDS_A_LOSS))
    elif verdicts.empty:  # a run of loss curves alone leads with its forecasts and advice
        leading = live or best
        first, answers = f"{leading.verdict}. {leading.text}", on_runs | on_features
    rows = [
        {"position": position, "question": question, "verdict": verdict, "answer": text, "numbers": numbers}
        for position, (question, (verdict, text, numbers)) in enumerate(
            {"In one sentence": Answer("", first), **answers}.items()
        )
    ]
    return {"summary": schemas.TABLES["summary"].frame(rows)}


def topology_sentence(sensitivity: pd.DataFrame, confirmation: pd.DataFrame, metric: str) -> str:
    """Say in one sentence whether topology adds to the norm, and whether that was confirmed or could have been found."""
    name, (power, why) = metric_name(metric), feature_answers.power_of(sensitivity, "beyond_the_norm")
    if power is None:
        return f"This run could not test whether topology adds information to the norm of the weights: {why}."
    rows = confirmation[confirmation["question"] == "beyond_the_norm"]
    findings = rows[feature_answers.is_topology(rows)]
    if len(findings):
        return found_sentence(findings, confirmation, name)
    if power["found"] != YES:
        clause = "This run could not have shown that topology adds information to the norm of the weights"
        runs = feature_answers.counting(power["n_runs"], "run")
        return (
            f"{clause}: with {power['n_points']:.0f} checkpoints of {runs} its test does not detect the {name} itself."
        )
    could = feature_answers.could(power["detectable"], "the run")
    return f"No test found that topology adds information to the norm of the weights; {could}."


def found_sentence(findings: pd.DataFrame, confirmation: pd.DataFrame, metric: str) -> str:
    """Say what the search for topology beyond the norm found, and whether fresh runs confirm it."""
    clearest = findings.sort_values("searched_q").iloc[0]
    count = feature_answers.counting(len(findings), "topological feature")
    if (findings["answer"] == NOT_TESTED).all():
        of_spectrum = confirmation[confirmation["question"] == "beyond_the_spectrum"]
        also = len(findings.merge(of_spectrum, on=SERIES_KEY))
        seeds = "one seed" if clearest["n_seeds"] == 1 else f"{clearest['n_seeds']} seeds a configuration"
        return (
            f"A search of {clearest['n_searched']} features, with {seeds}, found {count} adding information "
            f"about the {metric} to the weight norm ({also or 'none'} to the spectrum); {clearest['reason']}."
        )
    confirmed = findings[findings["answer"] == CONFIRMED]
    if confirmed.empty:
        clause, row = f"Not confirmed with fresh seeds: {count} seemed to add", clearest
    else:
        clause = f"Confirmed with fresh seeds: {len(confirmed)} of {count} adding"
        row = confirmed.sort_values("p_holm").iloc[0]
    return f"{clause} information to the weight norm; {both_numbers(row)}."


def both_numbers(row: pd.Series) -> str:
    """Give the estimates of the search and of the fresh runs in words."""
    return (
        f"{feature_answers.name_of(row)} had an estimate of {row['searched_estimate']:.2f} in the search and "
        f"{row['estimate']:.2f} with fresh seeds (p = {row['p']:.2g})"
    )


def again(confirmation: pd.DataFrame) -> Answer:
    """Count how many findings were confirmed."""
    tested = confirmation[confirmation["answer"] != NOT_TESTED]
    count = feature_answers.counting(len(confirmation), "finding")
    if tested.empty:
        return Answer("Not tested", f"{count} of the search; {confirmation['reason'].iloc[0]}.")
    confirmed = tested[tested["answer"] == CONFIRMED]
    numbers = [
        f"{row['answer']}, {QUESTIONS[row['question']].title}: {both_numbers(row)}, {row['p_holm']:.2g} after Holm"
        for _, row in tested.iterrows()
    ]
    text = (
        f"Of {count}, {len(tested)} could be tested again, alone, on fresh seeds (run {tested['fresh_run'].iloc[0]}); "
        f"{len(confirmed)} passed with the same sign."
    )
    verdict = f"{len(confirmed)} of {len(tested)}" if len(confirmed) else "Not confirmed"
    return Answer(verdict, text, ". ".join(numbers) + ".")
