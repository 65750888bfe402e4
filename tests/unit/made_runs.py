"""Training runs from flat facts, and copies of them with some facts changed."""

from dataclasses import fields, replace

import numpy as np

from toposcale.analysis.training_runs import FeaturedRun
from toposcale.forecasting import LearningRateSchedule, RunFacts, ScheduleProvenance

OF_SCHEDULE = {"final_step", "provenance", "unknown_because", "stated_warmup", "warmup_logged"}
OF_FACTS = {field.name for field in fields(RunFacts)}


def training_run(model, n_parameters, tokens_per_step, final_step, *, learning_rates=(), **facts):
    provenance = ScheduleProvenance.GIVEN if len(learning_rates) > final_step else ScheduleProvenance.UNKNOWN
    schedule = LearningRateSchedule(final_step, np.asarray(learning_rates, dtype=float), provenance)
    return changed(FeaturedRun(RunFacts(model, n_parameters, tokens_per_step), schedule), **facts)


def changed(run, **facts):
    """A copy of a run: of its facts, its schedule (learning_rates are its rates), or its columns."""
    of_schedule = {name: facts.pop(name) for name in OF_SCHEDULE & facts.keys()}
    if "provenance" in of_schedule:
        of_schedule["provenance"] = ScheduleProvenance(of_schedule["provenance"])
    if "learning_rates" in facts:
        of_schedule["rates"] = facts.pop("learning_rates")
    of_facts = {name: facts.pop(name) for name in OF_FACTS & facts.keys()}
    run_facts, schedule = replace(run.facts, **of_facts), replace(run.schedule, **of_schedule)
    return replace(run, facts=run_facts, schedule=schedule, **facts)
