"""Forecast of a loss with its interval, or the reason why there is none."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from toposcale.io.errors import NoForecast
from toposcale.laws.intervals import NORMAL

WORST_RATIO, WIDEST = 2.0, 0.25
"""Largest factor between a forecast and the present loss, and largest standard deviation as a share of the forecast."""


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
        """Return the forecast with an interval that is symmetric in the logarithm, since losses are positive.

        Parameters
        ----------
        value, deviation : float
            Loss and its standard deviation, nats per token.

        Returns
        -------
        Prediction
            Forecast with its 95% interval.

        Raises
        ------
        NoForecast
            If the loss is not positive.
        """
        if not value > 0:
            raise NoForecast("the law gives no positive loss")
        factor = float(np.exp(min(NORMAL * deviation / value, 50.0)))
        return cls(value, value / factor, value * factor)

    @property
    def deviation(self) -> float:
        """Standard deviation of which the interval is the 95% one, nats per token."""
        return float((self.high - self.low) / (2 * NORMAL))

    def is_plausible(self, present: float) -> bool:
        """Return whether it lies within a factor of 2 of the present loss, and its interval is not too wide."""
        return bool(present / WORST_RATIO < self.value < present * WORST_RATIO and self.deviation < WIDEST * self.value)

    @classmethod
    def none(cls, reason: str) -> Self:
        """Return a forecast without numbers, with the reason why."""
        return cls(np.nan, np.nan, np.nan, reason)
