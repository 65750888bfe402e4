"""Training runs from flat facts, and copies of them with some facts changed."""

from dataclasses import fields, replace

import numpy as np

from toposcale.analysis.featured_runs import FeaturedRun
from toposcale.forecasting import LearningRateSchedule, RunMetadata, ScheduleProvenance

OF_SCHEDULE = {"final_step", "provenance", "unknown_because", "stated_warmup", "warmup_assumed"}
OF_METADATA = {field.name for field in fields(RunMetadata)}


def training_run(model, n_parameters, tokens_per_step, final_step, *, learning_rates=(), **facts):
    provenance = ScheduleProvenance.GIVEN if len(learning_rates) > final_step else ScheduleProvenance.UNKNOWN
    schedule = LearningRateSchedule(final_step, np.asarray(learning_rates, dtype=float), provenance)
    return changed(FeaturedRun(RunMetadata(model, n_parameters, tokens_per_step), schedule), **facts)


def changed(run, **facts):
    """A copy of a run: of its metadata, its schedule (learning_rates are its rates), or its columns."""
    of_schedule = {name: facts.pop(name) for name in OF_SCHEDULE & facts.keys()}
    if "provenance" in of_schedule:
        of_schedule["provenance"] = ScheduleProvenance(of_schedule["provenance"])
    if "learning_rates" in facts:
        of_schedule["rates"] = facts.pop("learning_rates")
    of_metadata = {name: facts.pop(name) for name in OF_METADATA & facts.keys()}
    metadata, schedule = replace(run.metadata, **of_metadata), replace(run.schedule, **of_schedule)
    return replace(run, metadata=metadata, schedule=schedule, **facts)
