"""Training runs, laws of the loss and decisions: the half of the library that takes a log to an advice.

A log becomes a `TrainingRun`: steps, losses and learning rates, with the facts of the run and its `LearningRateSchedule`. A
law is fitted to a run and the others of its family, and predicts the loss at a `Target`, such as the end of a run or of a
size that has not started: ``Joint().fit(run, others).predict([run.target()])`` returns a `Prediction` for each target. The
other laws (`PowerLaw`, `MultiPowerLaw`, `Chinchilla`) are fitted in the same way.

A `Decision` weighs what could be done with the compute that is left by its expected regret, and a `Track` compares the
loss with that of other runs. `advise` does all of this from a log and returns an `Advice`; `compare_runs` compares runs
with each other. `NoForecast` is raised where there is no forecast, with the reason.
"""

from toposcale.io.errors import NoForecast
from toposcale.io.lazy_names import lazy_names

_MODULES = {
    "decision.advice": ("Advice", "advise_on"),
    "decision.advise": ("advise",),
    "decision.candidates": ("Candidate", "CandidateKind", "Decision", "Request", "WeighedCandidate"),
    "decision.on_track": ("Track",),
    "decision.compare_runs": ("RunComparison", "RunPair", "compare_runs"),
    "decision.differences": ("Difference", "SpeedUp"),
    "evaluation": ("Known", "evaluate"),
    "laws.chinchilla": ("Chinchilla",),
    "laws.joint": ("Joint",),
    "laws.law": ("Estimator", "JointForecast", "Law"),
    "laws.multi_power_law": ("MultiPowerLaw",),
    "laws.power_law": ("PowerLaw",),
    "laws.prediction": ("Prediction",),
    "runs.learning_rate_schedule": ("LearningRateSchedule", "ScheduleProvenance"),
    "runs.facts": ("Provenance", "RunFacts", "StatedFacts"),
    "runs.training_run": ("Target", "TrainingRun"),
}
"""Public names by the module that they are from, which is imported when one is asked for."""

_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(["NoForecast", *_MODULE_OF])
__getattr__, __dir__ = lazy_names(__name__, _MODULE_OF)
