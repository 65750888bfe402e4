"""Power law L = a t^-b + c, fitted to the beginning of a loss curve and extrapolated to its end."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from scipy.optimize import minimize_scalar

from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.laws.residuals import student_t, variance_inflation
from toposcale.forecasting.runs.training_run import MINIMUM_POINTS, Target, TrainingRun
from toposcale.io.errors import NoForecast

_EXPONENTS = np.geomspace(0.005, 5.0, 300)


class PowerLawFit(NamedTuple):
    """Power law L(t) = a t^-b + c with a, c >= 0, and the points that it was fitted to."""

    a: float
    b: float
    c: float
    times: np.ndarray
    losses: np.ndarray

    def __call__(self, times: np.ndarray | float) -> np.ndarray:
        """Return the fitted loss at times > 0, in the unit of the fit."""
        return np.asarray(self.a * np.asarray(times, dtype=np.float64) ** -self.b + self.c)

    def interval(self, time: float) -> tuple[float, float]:
        """Return the 95% interval of one observed loss at a time: profile likelihood and the noise of the point.

        For each exponent b the law is linear, so the profile is the union over b of exact intervals. The
        lag-1 autocorrelation of the residuals lowers the number of points that count as independent.
        """
        residuals = self.losses - self(self.times)
        error, degrees_of_freedom = np.sum(residuals**2), len(self.times) - 3
        noise, quantile = float(error) / degrees_of_freedom, student_t(degrees_of_freedom)
        allowed = quantile**2 * noise * variance_inflation(residuals, parameters=3)
        exponents = np.append(self._plausible_exponents(error, allowed), self.b)
        _, _, errors, values, variances = _conditional_fits(self.times, self.losses, exponents, time)
        inside = errors - error <= allowed
        half = np.sqrt(np.maximum(allowed - (errors - error), 0.0) * variances)
        value = float(self(time))
        below = value - np.min((values - half)[inside], initial=value)
        above = np.max((values + half)[inside], initial=value) - value
        observation = quantile * np.sqrt(noise)
        high = value + float(np.hypot(above, observation))
        # A loss is never negative: the lower end is at least as far in ratio as the upper one is.
        return max(value - float(np.hypot(below, observation)), value**2 / high if high else 0.0), high

    def _plausible_exponents(self, error: float, allowed: float) -> np.ndarray:
        errors = _conditional_fits(self.times, self.losses, _EXPONENTS, float(self.times[-1]))[2]
        inside = np.flatnonzero(errors - error <= allowed)
        if not len(inside):
            inside = np.array([np.argmin(np.abs(np.log(_EXPONENTS / self.b)))])
        first, last = max(inside[0] - 1, 0), min(inside[-1] + 1, len(_EXPONENTS) - 1)
        return np.geomspace(_EXPONENTS[first], _EXPONENTS[last], 300)


def fit_loss_curve(times: np.ndarray, losses: np.ndarray) -> PowerLawFit:
    """Fit L = a t^-b + c by least squares; a, c >= 0 and 0.005 <= b <= 5; at least 5 finite points, t > 0.

    a and c are linear and solved exactly for each b, so only b is searched. `ValueError` for fewer points or a time <= 0.
    """
    times, losses = np.asarray(times, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    if times.shape != losses.shape or times.ndim != 1:
        raise ValueError("times and losses: two arrays of one length")
    usable = np.isfinite(times) & np.isfinite(losses)
    times, losses = times[usable], losses[usable]
    if len(times) < MINIMUM_POINTS or np.any(times <= 0) or len(np.unique(times)) < 3:
        raise ValueError(f"times: at least {MINIMUM_POINTS} with a finite loss, three of them different, all above 0")

    def error_of(log_exponent: float) -> float:
        return float(_conditional_fits(times, losses, np.exp(np.array([log_exponent])), 1.0)[2][0])

    # The best exponent of the grid, refined by Brent's method between its neighbours.
    best = int(np.argmin(_conditional_fits(times, losses, _EXPONENTS, 1.0)[2]))
    bounds = np.log(_EXPONENTS[[max(best - 1, 0), min(best + 1, len(_EXPONENTS) - 1)]])
    refined = minimize_scalar(error_of, bounds=bounds, method="bounded", options={"xatol": 1e-12})
    is_refined = refined.fun <= error_of(float(np.log(_EXPONENTS[best])))
    exponent = float(np.exp(refined.x) if is_refined else _EXPONENTS[best])
    a, c, *_ = _conditional_fits(times, losses, np.array([exponent]), 1.0)
    return PowerLawFit(float(a[0]), exponent, float(c[0]), times, losses)


def _conditional_fits(
    times: np.ndarray, losses: np.ndarray, exponents: np.ndarray, target: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return for each exponent a, c, squared error, value at `target` and its variance per unit of noise."""
    # In units of the geometric mean powers neither overflow nor vanish.
    unit, mean_loss = float(np.exp(np.log(times).mean())), losses.mean()
    design = (times[None, :] / unit) ** -exponents[:, None]
    at_target = (target / unit) ** -exponents
    centre = design.mean(axis=1)
    centred = design - centre[:, None]
    # sums, not BLAS, whose order of summation depends on the number of threads
    spread = np.sum(centred**2, axis=1)
    a = np.sum(centred * (losses - mean_loss), axis=1) / spread
    c = mean_loss - a * centre
    variance = 1 / len(times) + (at_target - centre) ** 2 / spread
    # active bounds: a rising curve has a = 0, a curve that would end below zero has c = 0
    through_zero = np.sum(design * losses, axis=1) / np.sum(design**2, axis=1)
    negative = c < 0
    a = np.where(negative, through_zero, a)
    c = np.where(negative, 0.0, c)
    variance = np.where(negative, at_target**2 / np.sum(design**2, axis=1), variance)
    rising = a < 0
    a, c = np.where(rising, 0.0, a), np.where(rising, mean_loss, c)
    variance = np.where(rising, 1 / len(times), variance)
    errors = np.sum((a[:, None] * design + c[:, None] - losses) ** 2, axis=1)
    return a * unit**exponents, c, errors, a * at_target + c, variance


SMALL_SIZES = Path(__file__).parent / "small_sizes.csv"
"""Errors and coverage of the power law on published runs below the sizes of the joint law, by the share of the steps that
is seen; `python -m studies.decisions small` writes it."""


SIZE_RATIO = 1.5
"""Ratio of sizes up to which the coverage that was measured at one of them holds at the other."""


def measured_near(n_parameters: float, share: float) -> Mapping[str, float] | None:
    """Return the row of `SMALL_SIZES` at the largest share that is seen; None where this size was not measured."""
    rows = csv.DictReader(SMALL_SIZES.read_text(encoding="utf-8").splitlines())
    measured = [{name: float(value) for name, value in row.items()} for row in rows]
    return max(
        (
            row
            for row in measured
            if row["lowest_size"] / SIZE_RATIO <= n_parameters <= row["highest_size"] * SIZE_RATIO
            and row["share"] <= share
        ),
        key=lambda row: row["share"],
        default=None,
    )


class PowerLaw:
    """Power law L = a t^-b + c of a run's loss curve, fitted by least squares.

    t is the step less half the warm-up, which is worth half its steps at the peak rate. A decay to come is not modelled.

    Attributes
    ----------
    law_ : PowerLawFit
        Fitted law of the time t, with a, b and c.

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.forecasting import LearningRateSchedule, PowerLaw, RunFacts, TrainingRun
    >>> steps = np.arange(100, 2001, 100)
    >>> schedule = LearningRateSchedule(4000, np.full(4001, 1e-3))
    >>> run = TrainingRun(RunFacts("25M", 25_000_000), schedule, steps=steps, losses=2.5 + 20 * steps**-0.5)
    >>> [end] = PowerLaw().fit(run).predict([run.target()])
    >>> round(end.value, 2)
    2.82
    """

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        """Fit the law to the loss curve of a run; the others are not read. NoForecast: there are too few points."""
        steps, losses = run.loss_curve
        warmup = run.schedule.warmup_steps
        self._shift = warmup / 2 if len(steps) and steps[0] >= warmup else 0.0
        try:
            self.law_ = fit_loss_curve(steps - self._shift, losses)
        except ValueError as error:
            raise NoForecast(f"fewer than {MINIMUM_POINTS} finite losses after step 0") from error
        return self

    def predict(self, targets: Sequence[Target]) -> list[Prediction]:
        """Return losses, in nats per token, with their 95% intervals."""
        times = [target.step - self._shift for target in targets]
        return [Prediction(float(self.law_(time)), *self.law_.interval(time)) for time in times]
