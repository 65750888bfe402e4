"""Forecast of a loss with its interval, or the reason why there is none, and the quantiles of intervals."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from toposcale.forecasting.laws.priors import MAX_LOSS_RATIO, MAX_RELATIVE_SD
from toposcale.io.errors import NoForecast

CONFIDENCE = 0.95
"""Coverage that every interval is made for."""

NORMAL = 1.959964
"""Two-sided 95% quantile of the standard normal distribution."""


@dataclass(frozen=True)
class Prediction:
    """Forecast of a loss with its 95% interval.

    Parameters
    ----------
    value, low, high : float
        Forecast and ends of the interval, nats per token; NaN where there is no forecast.
    reason : str, default=""
        Reason why there is no forecast.

    Examples
    --------
    >>> from toposcale.forecasting import Prediction
    >>> end = Prediction.of(3.0, deviation=0.05)
    >>> round(end.low, 3), round(end.high, 3)
    (2.904, 3.1)
    >>> Prediction.none("the loss is rising").reason
    'the loss is rising'
    """

    value: float
    low: float
    high: float
    reason: str = ""

    @classmethod
    def of(cls, value: float, deviation: float) -> Self:
        """Return the forecast of a loss of this standard deviation; NoForecast: the loss is not positive.

        Its interval is symmetric in the logarithm, since losses are positive.
        """
        if not value > 0:
            raise NoForecast("the law gives no positive loss")
        factor = float(np.exp(min(NORMAL * deviation / value, 50.0)))
        return cls(value, value / factor, value * factor)

    @property
    def deviation(self) -> float:
        """Standard deviation of which the interval is the 95% one, nats per token."""
        return float((self.high - self.low) / (2 * NORMAL))

    def columns(self, name: str) -> dict[str, float]:
        """Return the value and the ends of the interval as the columns of a table: name, name_low and name_high."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    def __format__(self, number: str) -> str:
        return f"{self.value:{number}} ({self.low:{number}} to {self.high:{number}})"

    def is_plausible(self, present: float) -> bool:
        """Return whether it lies within a factor of 2 of the present loss, and its interval is not too wide."""
        is_near = present / MAX_LOSS_RATIO < self.value < present * MAX_LOSS_RATIO
        return bool(is_near and self.deviation < MAX_RELATIVE_SD * self.value)

    @classmethod
    def none(cls, reason: str) -> Self:
        """Return a forecast without numbers, with the reason why."""
        return cls(np.nan, np.nan, np.nan, reason)
