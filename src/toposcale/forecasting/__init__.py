"""Forecasting the final loss from the first k% of training, and the decision to train on or to scale up.

Arrays in, numbers out: the tables (pandas) are read and written by `toposcale.analysis`.
"""

from toposcale.forecasting.chinchilla import Chinchilla
from toposcale.forecasting.family_law import Target
from toposcale.forecasting.joint import Joint
from toposcale.forecasting.methods import METHODS, Family, Forecaster, forecast, make
from toposcale.forecasting.multi_power_law import MultiPowerLaw
from toposcale.forecasting.prediction import NoForecast, Prediction
from toposcale.forecasting.training_run import TrainingRun
