"""Calibration of intervals by split conformal prediction over finished runs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.laws.prediction import CONFIDENCE, Prediction

FEWEST_RUNS = 5
"""Finished runs below which an interval stays that of the method, and its coverage unknown."""


class Calibration(NamedTuple):
    """Factor on the intervals of a method, in the logarithm of the loss, and the nominal coverage that it gives."""

    factor: float
    coverage: float

    def __call__(self, prediction: Prediction) -> tuple[Prediction, float]:
        """Return the forecast with its calibrated interval, and its coverage; NaN where it could not be rescaled."""
        value = prediction.value
        if not (np.isfinite(self.coverage) and 0 < prediction.low <= value <= prediction.high < np.inf):
            return prediction, np.nan
        low, high = (value * (end / value) ** self.factor for end in (prediction.low, prediction.high))
        return Prediction(value, low, high, prediction.reason), self.coverage


def nonconformity(prediction: Prediction, actual: float) -> float:
    """Return the error of a forecast in units of its interval, the nonconformity score; NaN without one.

    Above 1 the interval does not cover the actual loss.
    """
    if not (0 < prediction.low < prediction.value < prediction.high < np.inf and actual > 0):
        return np.nan
    end = prediction.high if actual > prediction.value else prediction.low
    return float(np.log(actual / prediction.value) / np.log(end / prediction.value))


def calibrate(nonconformities: Sequence[float] | np.ndarray) -> Calibration:
    """Calibrate by the ceil(0.95 (n + 1))-th smallest nonconformity of n exchangeable finished runs (Vovk et al. 2005).

    With fewer than 19 runs the largest is used, and the nominal coverage is n / (n + 1).
    """
    finite = np.sort(np.asarray(nonconformities, dtype=np.float64))
    finite = finite[np.isfinite(finite)]
    n = len(finite)
    if n < FEWEST_RUNS:
        return Calibration(1.0, np.nan)
    rank = int(np.ceil(CONFIDENCE * (n + 1)))
    return Calibration(float(finite[min(rank, n) - 1]), CONFIDENCE if rank <= n else n / (n + 1))


def calibrate_on_others(
    predictions: Sequence[Prediction], actual: Sequence[float] | np.ndarray
) -> list[tuple[Prediction, float]]:
    """Calibrate the interval of every forecast on all others; return it with the nominal coverage that this gives.

    actual: the final loss, NaN of a run that is not finished.
    """
    nonconformities = np.array(
        [nonconformity(prediction, truth) for prediction, truth in zip(predictions, actual, strict=True)]
    )
    return [calibrate(np.delete(nonconformities, index))(prediction) for index, prediction in enumerate(predictions)]
