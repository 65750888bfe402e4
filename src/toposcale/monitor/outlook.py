"""Forecast of a monitored training from the rows in its folder, for the background process."""

from typing import NamedTuple

import numpy as np

from toposcale.decision.advice import advise_on
from toposcale.decision.wording import track
from toposcale.features.names import VALIDATION_LOSS
from toposcale.io import tables
from toposcale.io.errors import UserError
from toposcale.monitor.alerts import Alert, AlertKind
from toposcale.monitor.folder import Folder, models
from toposcale.monitor.records import TABLES
from toposcale.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.runs.metadata import RunMetadata
from toposcale.runs.training_run import TrainingRun
from toposcale.training.schedules import schedule_of

FAR = 3.0
"""Standard deviations from the law of the family beyond which a run is off track. A training is looked at a hundred times:
beyond 1.96 an alert would be usual."""


class Outlook(NamedTuple):
    """Forecast of the final loss with the ends of its 95% interval, by the name of a curve, and what is off track."""

    values: dict[str, float]
    alerts: tuple[Alert, ...] = ()


def outlook(folder: Folder) -> Outlook:
    """Return the outlook as it stands; without values where a fact is not known, or the advice makes no forecast."""
    run = run_of(folder)
    if run is None or run.is_over or not run.schedule.is_known:
        return Outlook({})
    advice = advise_on(run, [other for name in models(folder.path) if (other := _other(Folder(folder.path, name)))])
    found = advice.track
    off = (
        ()
        if not found or abs(found.z) < FAR
        else (Alert(AlertKind.OFF_TRACK, found.since or found.step, track(found)),)
    )
    if advice.end is None:
        return Outlook({}, off)
    ends = {"": advice.end.value, "_low": advice.end.low, "_high": advice.end.high}
    return Outlook({f"estimated_final_loss{end}": value for end, value in ends.items()}, off)


def run_of(folder: Folder) -> TrainingRun | None:
    """Return the run of a monitored model; None where size, tokens of a step or last step are not known."""
    facts = folder.facts()
    if not (facts["n_parameters"] and facts["tokens_per_step"] and facts["final_step"]):
        return None
    training, metrics = (tables.gather(TABLES[kind], folder.files(kind).values()) for kind in _KINDS)
    log = {name: np.asarray(training[name], dtype=np.float64) for name in _COLUMNS}
    given = schedule_of(facts["schedule"]) if facts["schedule"] else None
    measured = [row for row in metrics.to_pylist() if row["metric"] == VALIDATION_LOSS]
    validation = tuple(np.array([row[name] for row in measured], dtype=np.float64) for name in ("step", "value"))
    # All models of one folder are sizes of one family.
    return TrainingRun.of(
        RunMetadata(folder.model, facts["n_parameters"], facts["tokens_per_step"], family="monitor"),
        LearningRateSchedule.of_log(facts["final_step"], log["step"], log["learning_rate"], given),
        log,
        {VALIDATION_LOSS: (validation[0], validation[1])},
    )


_KINDS, _COLUMNS = ("training", "metrics/monitor"), ("step", "loss", "gradient_norm", "learning_rate")


def _other(folder: Folder) -> TrainingRun | None:
    """Return the run of another model; None where it cannot be read."""
    try:
        return run_of(folder)
    except UserError:
        return None
