"""Forecasting the final loss from the first k% of training, and the decision to train on or to scale up.

Tables (pandas) are read and written by `evaluation` and `decision`, which are imported by name: this package
alone needs numpy and scipy only.
"""

from toposcale.forecasting.chinchilla import Chinchilla
from toposcale.forecasting.forecasters import CURVE_METHODS, METHODS, Forecaster, make_forecaster
from toposcale.forecasting.history import History, Prediction
from toposcale.forecasting.multi_power_law import MultiPowerLaw

__all__ = [
    "CURVE_METHODS",
    "METHODS",
    "Chinchilla",
    "Forecaster",
    "History",
    "MultiPowerLaw",
    "Prediction",
    "make_forecaster",
]
