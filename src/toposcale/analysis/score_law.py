"""Scores of tasks in two stages: the loss is forecast, and a sigmoid that all models share turns it into a score."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit

from toposcale.forecasting.laws.prediction import Prediction, student_t

PARAMETERS = 4
FEWEST_CHECKPOINTS = PARAMETERS + 4


class ScoreLaw(NamedTuple):
    """Sigmoid score = floor + rise / (1 + exp(slope (loss - middle))).

    floor: score at chance. spread: standard deviation of the residuals of `n_points` points.
    """

    floor: float
    rise: float
    slope: float
    middle: float
    spread: float
    n_points: int

    def __call__(self, losses: np.ndarray | float) -> np.ndarray:
        """Return the fitted scores at losses in nats per token."""
        above = np.asarray(losses, dtype=np.float64) - self.middle
        return np.asarray(self.floor + self.rise * expit(-self.slope * above))

    def predict(self, loss: Prediction) -> Prediction:
        """Return the score at a forecast loss; its 95% interval combines that of the loss and the residuals."""
        value, worst, best = (float(self(at)) for at in (loss.value, loss.high, loss.low))
        noise = student_t(self.n_points - PARAMETERS) * self.spread
        low, high = value - np.hypot(value - worst, noise), value + np.hypot(best - value, noise)
        return Prediction(value, max(float(low), 0.0), min(float(high), 1.0))


def fit_score_law(losses: np.ndarray, scores: np.ndarray) -> ScoreLaw:
    """Fit the sigmoid to points (n,) by least squares: 0 <= floor <= 1, 0 <= rise <= 1, slope >= 0.

    ValueError: fewer than 8 finite points, a score that is not from 0 to 1, or losses that are all the same.
    """
    losses, scores = np.asarray(losses, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    usable = np.isfinite(losses) & np.isfinite(scores)
    losses, scores = losses[usable], scores[usable]
    if len(losses) < FEWEST_CHECKPOINTS:
        raise ValueError(f"{len(losses)} checkpoints have a loss and a score; {FEWEST_CHECKPOINTS} are needed at least")
    if scores.min() < 0 or scores.max() > 1:
        raise ValueError("the score is not a number from 0 to 1")
    low, high = float(losses.min()), float(losses.max())
    width = high - low
    if not width > 0:
        raise ValueError("the loss is the same at all checkpoints")

    def residuals(parameters: np.ndarray) -> np.ndarray:
        floor, rise, slope, middle = parameters
        return ScoreLaw(floor, rise, slope, middle, spread=0.0, n_points=len(losses))(losses) - scores

    floor, rise = float(scores.min()), float(np.clip(np.ptp(scores), 1e-3, 1.0))
    bounds = ([0, 0, 0, low - width], [1, 1, 100 / width, high])
    starts = [(floor, rise, slope / width, low + share * width) for slope in (3, 12) for share in (0.0, 0.2, 0.5)]
    fits = [least_squares(residuals, start, bounds=bounds, x_scale=[1, 1, 1 / width, width]) for start in starts]
    best = min(fits, key=lambda fit: float(fit.cost))
    spread = float(np.sqrt(2 * best.cost / (len(losses) - PARAMETERS)))
    floor, rise, slope, middle = best.x.tolist()
    return ScoreLaw(floor, rise, slope, middle, spread, len(losses))
