"""What a run says about the project's questions: a headline, and an answer of at most 40 words each, numbers apart."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from toposcale.analysis.feature_answers import UNTESTED, Answer, beyond, coinciding, following, headline
from toposcale.analysis.forecast_answers import deciding, forecasting, now, trusted
from toposcale.analysis.series import headline_metric
from toposcale.analysis.verdicts import POOLED
from toposcale.features.names import metric_name
from toposcale.io import schemas
from toposcale.io.schemas import ALL_LAYERS

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
    first, said = _on_features(metric, metrics, verdicts, tested_features, sensitivity)
    on_features = {
        f"Which features follow the {name}?": said["follows"],
        "Which say something beyond the norm of the weights?": said["norm"],
        "Which say something beyond the training step?": said["step"],
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


def _on_features(
    metric: str | None,
    metrics: pd.DataFrame,
    verdicts: pd.DataFrame,
    tested_features: pd.DataFrame,
    sensitivity: pd.DataFrame,
) -> tuple[str, dict[str, Answer]]:
    """The headline, and the answers on what follows the metric and what tells more than the norm and the step."""
    if metric is None:
        why = NEEDS_A_LOSS if metrics.empty else NEEDS_A_CHOICE
        return why, dict.fromkeys(("follows", "norm", "step"), Answer(UNTESTED, why))
    rows = (verdicts["layer"] == ALL_LAYERS) & (verdicts["metric"] == metric)
    family = verdicts[rows & (verdicts["model"] == POOLED)]
    alone = verdicts[rows & (verdicts["model"] != POOLED)]
    norm, step = (
        beyond(family, tested_features, sensitivity, question, metric)
        for question in ("beyond_the_norm", "beyond_the_step")
    )
    numbers = "For the reasons above." if step == norm else step.numbers + coinciding(alone)
    return headline(family, sensitivity, metric), {
        "follows": following(family),
        "norm": norm,
        "step": step._replace(numbers=numbers),
    }
