"""Training runs, laws of the loss and decisions: the public names of `runs`, `laws` and `decision`."""

from toposcale.decision.advice import Advice, advise_on
from toposcale.decision.advise import advise
from toposcale.decision.candidates import Candidate, CandidateKind, Request, candidates
from toposcale.decision.compare_runs import compare_runs
from toposcale.decision.expected_regret import Decision, WeighedCandidate
from toposcale.decision.on_track import Track, on_track
from toposcale.decision.run_comparison import Difference, RunComparison, RunPair, SpeedUp
from toposcale.io.errors import NoForecast
from toposcale.laws.chinchilla import Chinchilla
from toposcale.laws.joint import Joint
from toposcale.laws.methods import METHODS, Family, Forecaster, forecast, make
from toposcale.laws.multi_power_law import MultiPowerLaw
from toposcale.laws.prediction import Prediction
from toposcale.runs.learning_rate_schedule import LearningRateSchedule, ScheduleProvenance
from toposcale.runs.metadata import RunMetadata
from toposcale.runs.training_run import Target, TrainingRun

__all__ = [
    "METHODS",
    "Advice",
    "Candidate",
    "CandidateKind",
    "Chinchilla",
    "Decision",
    "Difference",
    "Family",
    "Forecaster",
    "Joint",
    "LearningRateSchedule",
    "MultiPowerLaw",
    "NoForecast",
    "Prediction",
    "Request",
    "RunComparison",
    "RunMetadata",
    "RunPair",
    "ScheduleProvenance",
    "SpeedUp",
    "Target",
    "Track",
    "TrainingRun",
    "WeighedCandidate",
    "advise",
    "advise_on",
    "candidates",
    "compare_runs",
    "forecast",
    "make",
    "on_track",
]
