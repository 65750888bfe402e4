"""Training runs, laws of the loss and decisions: the half of the library that takes a log to an advice.

A log becomes a `TrainingRun`: steps, losses and learning rates, with the facts of the run and its `LearningRateSchedule`. A
law is fitted to a run and the others of its family, and predicts the loss at a `Target`, such as the end of a run or of a
size that has not started: ``Joint().fit(run, others).predict([run.target()])`` returns a `Prediction` for each target. The
other laws (`PowerLaw`, `MultiPowerLaw`, `Chinchilla`) are fitted in the same way.

A `Decision` weighs what could be done with the compute that is left by its expected regret, and a `Track` compares the
loss with that of other runs. `advise` does all of this from a log and returns an `Advice`; `compare_runs` compares runs
with each other. `NoForecast` is raised where there is no forecast, with the reason.
"""

from importlib import import_module
from typing import Any

_MODULES = {
    "forecasting.decision.advice": ("Advice", "advise_on"),
    "forecasting.decision.advise": ("advise",),
    "forecasting.decision.candidates": ("Candidate", "CandidateKind", "Request"),
    "forecasting.decision.expected_regret": ("Decision", "WeighedCandidate"),
    "forecasting.decision.on_track": ("Track",),
    "forecasting.decision.compare_runs": ("RunComparison", "RunPair", "compare_runs"),
    "forecasting.decision.differences": ("Difference", "SpeedUp"),
    "forecasting.laws.chinchilla": ("Chinchilla",),
    "forecasting.laws.joint": ("Joint",),
    "forecasting.laws.law": ("JointForecast", "Law"),
    "forecasting.laws.multi_power_law": ("MultiPowerLaw",),
    "forecasting.laws.power_law": ("PowerLaw",),
    "forecasting.laws.prediction": ("Prediction",),
    "forecasting.runs.learning_rate_schedule": ("LearningRateSchedule", "ScheduleProvenance"),
    "forecasting.runs.facts": ("Provenance", "RunFacts"),
    "forecasting.runs.training_run": ("Target", "TrainingRun"),
    "io.errors": ("NoForecast",),
}
"""Public names by the module that they are from, which is imported when one is asked for."""

__all__ = sorted(name for names in _MODULES.values() for name in names)


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"toposcale.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
