"""Forecasts of the final loss and decisions: the public names of `runs`, `laws` and `decision`."""

from toposcale.io.errors import NoForecast
from toposcale.laws.chinchilla import Chinchilla
from toposcale.laws.family_law import Target
from toposcale.laws.joint import Joint
from toposcale.laws.methods import METHODS, Family, Forecaster, forecast, make
from toposcale.laws.multi_power_law import MultiPowerLaw
from toposcale.laws.prediction import Prediction
from toposcale.runs.training_run import TrainingRun

__all__ = [
    "METHODS",
    "Chinchilla",
    "Family",
    "Forecaster",
    "Joint",
    "MultiPowerLaw",
    "NoForecast",
    "Prediction",
    "Target",
    "TrainingRun",
    "forecast",
    "make",
]
