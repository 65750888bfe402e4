"""How good the forecasts are for models far below the published sizes: the project's own trainings.

`python -m studies.small_models [RUNS]` forecasts the ends of trainings of studies 1 to 3 (3K to 301K parameters), 40 or
RUNS of each size from all of its configurations, from 20, 30 and 50% of their own curves, as the advice does but for the
steps that it needs, which are justified by this. By size it writes to tables/small_models.csv how many forecasts are
refused, the error of the others, and how many of their 95% intervals contain the measured end. Two CPU minutes; of all
1,744 trainings twenty.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pandas as pd

from studies import small_tables
from studies.nulls.configurations import RUNS, table_of
from toposcale.forecasting.decision.advice import advise_on
from toposcale.forecasting.laws import joint
from toposcale.forecasting.runs.facts import RunFacts
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.schedules import Schedule
from toposcale.forecasting.runs.training_run import TrainingRun

STUDIES = ("study-1", "study-2", "study-3")
SHARES = (0.2, 0.3, 0.5)


def trainings(most: int) -> Iterator[TrainingRun]:
    """Trainings of the studies whose plan is a shape, at most so many of each size, evenly from its configurations."""
    models, series = (
        pd.concat([table_of(RUNS / study, name) for study in STUDIES], ignore_index=True)
        for name in ("models", "series")
    )
    losses = dict(tuple(series.groupby("model")))
    models = models.sort_values("model").assign(place=lambda rows: rows.groupby("configuration").cumcount())
    chosen = models.sort_values(["place", "configuration"]).groupby("n_parameters").head(most)
    for model in chosen.to_dict("records"):
        rows, steps = losses[model["model"]], int(model["final_step"])
        shape = str(model.get("shape", "cosine"))
        plan = Schedule(shape, model["learning_rate"], steps, int(model["warmup_steps"]))
        facts = RunFacts(model["model"], int(model["n_parameters"]), model["tokens_per_step"], "gpt")
        schedule = LearningRateSchedule.of_log(steps, [], [], plan)
        nothing = {name: np.empty(0) for name in ("step", "loss", "gradient_norm", "learning_rate")}
        yield TrainingRun.of(facts, schedule, nothing, {"validation_loss": (rows["step"], rows["validation_loss"])})


def forecasts(runs: Iterator[TrainingRun]) -> pd.DataFrame:
    """A row a training and share: n_parameters, share, error, inside, and the reason where there is no forecast."""
    rows = []
    for run in runs:
        for share in SHARES:
            with patch.object(joint, "refuse_young", lambda run: None):
                advice = advise_on(run.first(share))
            end = advice.end
            row = {
                "model": run.model,
                "n_parameters": run.n_parameters,
                "share": share,
                "confident": advice.is_confident,
            }
            if end is None:
                rows.append(row | {"reason": advice.no_advice_because})
                continue
            inside = end.low <= run.progress.loss <= end.high
            rows.append(row | {"error": end.value - run.progress.loss, "inside": float(inside), "reason": ""})
    return pd.DataFrame(rows)


def by_size(table: pd.DataFrame) -> pd.DataFrame:
    """Of each size and share: forecasts, how many are refused, mean error, bias and empirical coverage."""
    rows = []
    for (size, share), part in table.groupby(["n_parameters", "share"]):
        kept = part[part["reason"] == ""]
        rows.append(
            {
                "n_parameters": size,
                "share": share,
                "n": len(part),
                "refused": float((part["reason"] != "").mean()),
                "mean_error": kept["error"].abs().mean(),
                "bias": kept["error"].mean(),
                "inside": kept["inside"].mean(),
                "confident": int(part["confident"].sum()),
            }
        )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    sizes = by_size(forecasts(trainings(int(sys.argv[1]) if len(sys.argv) > 1 else 40)))
    small_tables.write(sizes, small_tables.TABLES / "small_models.csv")
