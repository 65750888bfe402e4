"""Forecast of a monitored training from the rows in its folder, for the background process."""

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from toposcale.forecasting.decision.advice import advise_on
from toposcale.forecasting.decision.on_track import Reference
from toposcale.forecasting.decision.wording import track
from toposcale.forecasting.runs.facts import RunFacts
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.schedules import schedule_of
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io import tables
from toposcale.io.errors import UserError
from toposcale.monitor.alerts import Alert, AlertKind, Outlook
from toposcale.monitor.folder import Folder, model_names
from toposcale.monitor.records import TABLES

CURVE = "estimated_final_loss"


def outlook(folder: Folder) -> Outlook:
    """Return the outlook as it stands; no curve where a fact is not known, or the advice makes no forecast."""
    run = _run_in(folder)
    if run is None or not run.has_steps_left or not run.schedule.is_known:
        return Outlook()
    family = [run]
    for name in model_names(folder.path):
        with suppress(UserError):  # another model, which cannot be read
            if name != folder.model and (other := _run_in(Folder(folder.path, name))):
                family.append(other)
    advice = advise_on(run, family)
    status, end = advice.track(Reference.FAMILY), advice.end
    return Outlook(
        {CURVE: end.value, f"{CURVE}_low": end.low, f"{CURVE}_high": end.high} if end else {},
        (Alert(AlertKind.OFF_TRACK, status.since, track(status, run)),) if status and status.since is not None else (),
    )


def _run_in(folder: Folder) -> TrainingRun | None:
    """Return the run of a monitored model; None where size, tokens of a step or last step are not known."""
    if not folder.can_forecast():
        return None
    return run_of(folder.model, folder.facts(), _rows_of(folder, "training"), _rows_of(folder, "metrics/monitor"))


def _rows_of(folder: Folder, kind: str) -> pd.DataFrame:
    """Return the rows of the files of a kind, of which those are read that are new or have changed."""
    statuses = [(path, path.stat()) for path in folder.files(kind).values()]
    parts = [_read(kind, path, status.st_mtime_ns, status.st_size) for path, status in statuses]
    return tables.concatenate(TABLES[kind], parts).to_pandas()


@cache  # as long as the background process, which is that of one training
def _read(kind: str, path: Path, time: int, size: int) -> pa.Table:
    return tables.read(TABLES[kind], path)


def run_of(model: str, facts: Mapping[str, Any], log: pd.DataFrame, metrics: pd.DataFrame) -> TrainingRun:
    """Return the run with these facts and rows. UserError: the log contradicts the schedule.

    facts: n_parameters, final_step, tokens_per_step (None: unknown) and, maybe, schedule and optimizer.
    """
    rows = log.drop_duplicates("step", keep="last").sort_values("step")
    columns = {name: rows[name].to_numpy(np.float64) for name in ("step", "loss", "gradient_norm", "learning_rate")}
    schedule = schedule_of(facts["schedule"]) if facts.get("schedule") else None
    return TrainingRun.of(
        # All models of one folder are sizes of one family.
        RunFacts(
            model,
            facts["n_parameters"],
            facts["tokens_per_step"] or np.nan,
            family="monitor",
            optimizer=facts.get("optimizer") or "",
        ),
        LearningRateSchedule.of_log(facts["final_step"], columns["step"], columns["learning_rate"], schedule),
        columns,
        {str(name): (of_name["step"], of_name["value"]) for name, of_name in metrics.groupby("metric")},
    )
