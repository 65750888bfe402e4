"""Forecasting the final loss from the first k% of training, and the decision to train on or to scale up.

Arrays in, numbers out: the tables (pandas) are read and written by `toposcale.analysis`.
"""

from toposcale.forecasting.chinchilla import Chinchilla
from toposcale.forecasting.forecasters import CURVE_METHODS, METHODS, Forecaster, make_forecaster
from toposcale.forecasting.history import History, Prediction
from toposcale.forecasting.multi_power_law import MultiPowerLaw
