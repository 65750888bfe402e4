"""Forecast of a monitored training from the rows in its folder, for the background process."""

from contextlib import suppress

import numpy as np

from toposcale.forecasting.decision.advice import advise_on
from toposcale.forecasting.decision.on_track import Reference
from toposcale.forecasting.decision.wording import track
from toposcale.forecasting.runs.checks import has_steps_left
from toposcale.forecasting.runs.facts import RunFacts
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.metrics import VALIDATION_LOSS
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
    run = run_of(folder)
    if run is None or not has_steps_left(run) or not run.schedule.is_known:
        return Outlook()
    family = []
    for name in model_names(folder.path):
        with suppress(UserError):  # another model, which cannot be read
            family.append(run_of(Folder(folder.path, name)))
    advice = advise_on(run, [other for other in family if other])
    status, end = advice.track(Reference.FAMILY), advice.end
    return Outlook(
        {CURVE: end.value, f"{CURVE}_low": end.low, f"{CURVE}_high": end.high} if end else {},
        (Alert(AlertKind.OFF_TRACK, status.since, track(status, run)),) if status and status.since is not None else (),
    )


def run_of(folder: Folder) -> TrainingRun | None:
    """Return the run of a monitored model; None where size, tokens of a step or last step are not known."""
    if not folder.can_forecast():
        return None
    facts, kinds = folder.facts(), ("training", "metrics/monitor")
    training, metrics = (tables.gather(TABLES[kind], folder.files(kind).values()).to_pandas() for kind in kinds)
    log = {str(name): values.to_numpy(dtype=np.float64) for name, values in training.items()}
    schedule = schedule_of(facts["schedule"]) if facts["schedule"] else None
    validation = metrics[metrics["metric"] == VALIDATION_LOSS]
    # All models of one folder are sizes of one family.
    return TrainingRun.of(
        RunFacts(folder.model, facts["n_parameters"], facts["tokens_per_step"], family="monitor"),
        LearningRateSchedule.of_log(facts["final_step"], log["step"], log["learning_rate"], schedule),
        log,
        {VALIDATION_LOSS: (validation["step"].to_numpy(np.float64), validation["value"].to_numpy(np.float64))},
    )
