"""A forecast loss with its interval, or why there is none."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from toposcale.io.errors import NoForecast
from toposcale.laws.intervals import NORMAL

WORST_RATIO, WIDEST = 2.0, 0.25
"""A forecast that is so many times the present loss, or whose standard deviation is such a share of it, says nothing."""


@dataclass(frozen=True)
class Prediction:
    """A forecast loss in nats per token with its 95% interval; all NaN, with a `reason`, where there is no forecast."""

    value: float
    low: float
    high: float
    reason: str = ""

    @classmethod
    def of(cls, value: float, deviation: float) -> Self:
        """From a loss and its standard deviation, with an interval that is symmetric in the logarithm: losses are positive.

        NoForecast: the loss is not positive.
        """
        if not value > 0:
            raise NoForecast("the law gives no positive loss")
        factor = float(np.exp(min(NORMAL * deviation / value, 50.0)))
        return cls(value, value / factor, value * factor)

    @property
    def deviation(self) -> float:
        """The standard deviation that the interval stands for, in nats."""
        return float((self.high - self.low) / (2 * NORMAL))

    def is_plausible(self, present: float) -> bool:
        """Whether it lies in the range of what trainings do from a loss of `present` on."""
        return bool(present / WORST_RATIO < self.value < present * WORST_RATIO and self.deviation < WIDEST * self.value)

    @classmethod
    def none(cls, reason: str) -> Self:
        """The forecast that cannot be made."""
        return cls(np.nan, np.nan, np.nan, reason)
