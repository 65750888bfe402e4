"""Sizes together: one multi-power law whose constants follow the model size, also for sizes that have not started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.history import MINIMUM_POINTS, History, Prediction, no_prediction
from toposcale.forecasting.intervals import NORMAL
from toposcale.forecasting.multi_power_law import (
    CENTRES,
    MOST_CHANGES,
    NAMES,
    Fit,
    Prepared,
    bin_medians,
    law,
    noise_of,
    prepare,
    solve,
    widths,
)

POINTS = 24
"""Bins of a curve: so many, since neighbours share what the law misses."""

MISFIT = 0.004
# At the largest size that was seen, r = log(N / N_ref) = 0:
#   L0(N) = l0 (share + (1 - share) exp(-alpha r)) + own_i     share = E / L0(N_ref), alpha log-normal around 0.34
#   log A(N) = log_a + kappa r + own_a_i
# and alpha, B, C, beta, gamma of the multi-power law are those of every size.
_SIZE_NAMES = ("kappa", "logit_share", "log_alpha_n")
_SIZE_CENTRES = np.array([0.0, np.log(0.6 / 0.4), np.log(0.34)])
_SIZE_WIDTHS = np.array([0.1, 0.6, 0.25])
_SHAPE_TIGHTNESS = 0.7
SIZE_SCATTER = 0.005
"""By how much of the loss a size is off the law of sizes; of A, ten times that."""

RUN_SCATTER = 0.004
"""By how much of the loss a run ends off what its size says: its seed, its data and the law's own misfit."""

_K = len(NAMES)
_S = _K + len(_SIZE_NAMES)


class Target(NamedTuple):
    """A loss to be forecast: after `step` steps of a model of that size under `learning_rates` (one a step)."""

    n_parameters: float
    learning_rates: np.ndarray
    step: int
    tokens_per_step: float = np.nan


class Joint:
    """L(N, schedule): fitted to the loss curves of several runs; forecasts any size under any schedule.

    The multi-power law with L0(N) = E + A' N^-alpha and A(N) a power of N. Priors on E, alpha and the slope of A let two
    sizes, and even one, suffice; what they leave open is in the covariance. Each run's rates are in units of its peak.
    """

    def fit(self, histories: Sequence[History], like: Joint | None = None) -> Joint:
        """Fit to every history with a loss curve; `reason` says why there is nothing to fit.

        Finished runs whose learning rates are not known are left out where those of another run are; `n_runs` counts the
        others. `like`: the fit to nearly the same histories; its solution is a better place to start from than the prior.
        """
        self.reason = ""
        runs = [history for history in histories if len(history.loss_curve[0]) >= MINIMUM_POINTS]
        # What a finished run lost under rates that nobody knows says nothing of another schedule.
        if any(run.rates_known for run in runs):
            runs = [run for run in runs if run.rates_known or not run.is_finished]
        self.n_runs = len(runs)
        runs.sort(key=lambda run: (run.n_parameters, run.model))
        if not runs:
            self.reason = "no size has a loss curve of at least 5 points"
            return self
        self._sizes = sorted({run.n_parameters for run in runs})
        self._tokens = max(
            (run.tokens_per_step for run in runs if np.isfinite(run.tokens_per_step)), default=np.nan
        )
        curves = []
        for run in runs:
            steps, losses = bin_medians(*run.loss_curve, POINTS)
            rates, whole = (run.rates_to(round(end)) for end in (steps[-1], max(run.final_step, steps[-1])))
            curves.append((run, rates / whole.max(), np.rint(steps).astype(np.int64), losses))
        self._loss = float(np.median(curves[-1][3][-3:]))
        self._longest = max(
            float(np.cumsum(rates)[steps[-1]] * self._clock(run.tokens_per_step))
            for run, rates, steps, _ in curves
        )
        logs = [np.log(losses / self._loss) for *_, losses in curves]
        self._noise = float(np.median([noise_of(own) for own in logs]))
        prepared = [
            (run.n_parameters, prepare(rates, steps, self._longest / self._clock(run.tokens_per_step)))
            for run, rates, steps, _ in curves
        ]
        count = len(self._sizes)
        own = SIZE_SCATTER * np.repeat([1.0, 10.0], count)
        centre = np.concatenate([CENTRES, _SIZE_CENTRES, np.zeros(2 * count)])
        width = np.concatenate([widths(_SHAPE_TIGHTNESS), _SIZE_WIDTHS, own])
        near = like._fit.x if like is not None and not like.reason and like._sizes == self._sizes else None
        deviation = float(np.hypot(self._noise, MISFIT))
        self._fit: Fit = solve(
            lambda x: [self._law(x, *one) for one in prepared], logs, deviation, centre, width, near
        )
        return self

    def predict(self, targets: Sequence[Target]) -> tuple[np.ndarray, np.ndarray]:
        """Losses (targets,) and their covariance (targets, targets): errors that candidates share cancel between them."""
        values, slopes, extra = [], [], []
        for target in targets:
            rates = np.asarray(target.learning_rates, dtype=np.float64)
            longest = self._longest / self._clock(target.tokens_per_step)
            curve = prepare(rates / rates.max(), np.array([target.step]), longest, MOST_CHANGES)
            loss, gradient = self._law(self._fit.x, target.n_parameters, curve)
            unseen = SIZE_SCATTER if target.n_parameters not in self._sizes else 0.0
            decay = float(np.exp(np.clip(self._of_size(self._fit.x, target.n_parameters)[1], -50, 50)))
            values.append(float(loss[0]))
            slopes.append(gradient[0])
            extra.append(unseen**2 * (1 + (10 * decay) ** 2) + (RUN_SCATTER * loss[0]) ** 2 + self._noise**2)
        slope = np.array(slopes)
        covariance = np.einsum("ti,ij,uj->tu", slope, self._fit.covariance, slope) + np.diag(extra)
        return np.array(values) * self._loss, covariance * self._loss**2

    def _clock(self, tokens_per_step: float) -> float:
        """Share of the tokens of the largest step that one step reads; 1 where either is not known."""
        share = tokens_per_step / self._tokens
        return float(share) if np.isfinite(share) else 1.0

    def _of_size(self, x: np.ndarray, size: float) -> tuple[float, float, np.ndarray, np.ndarray]:
        """l0 and log A of a size, and their gradients by all parameters."""
        kappa, logit, log_alpha = x[_K:_S]
        r = float(np.log(size / self._sizes[-1]))
        share, alpha = 1 / (1 + np.exp(-logit)), float(np.exp(np.clip(log_alpha, -20, 5)))
        fall = float(np.exp(np.clip(-alpha * r, -50, 50)))
        by_l0, by_a = np.zeros(len(x)), np.zeros(len(x))
        l0 = x[0] * (share + (1 - share) * fall)
        by_l0[0] = share + (1 - share) * fall
        by_l0[_K + 1] = x[0] * share * (1 - share) * (1 - fall)
        by_l0[_K + 2] = -x[0] * (1 - share) * fall * alpha * r
        log_a = x[1] + kappa * r
        by_a[1], by_a[_K] = 1.0, r
        if size in self._sizes:
            place = self._sizes.index(int(size))
            l0 += x[_S + place]
            by_l0[_S + place] = 1.0
            log_a += x[_S + len(self._sizes) + place]
            by_a[_S + len(self._sizes) + place] = 1.0
        return float(l0), float(log_a), by_l0, by_a

    def _law(self, x: np.ndarray, size: float, curve: Prepared) -> tuple[np.ndarray, np.ndarray]:
        l0, log_a, by_l0, by_a = self._of_size(x, size)
        loss, gradient = law(np.concatenate([[l0, log_a], x[2:_K]]), curve)
        slopes = gradient[:, :1] * by_l0 + gradient[:, 1:2] * by_a
        slopes[:, 2:_K] += gradient[:, 2:]
        return loss, slopes


def target_of(history: History, step: int | None = None) -> Target:
    """The end, or a step, of a run under its plan."""
    step = history.final_step if step is None else step
    return Target(history.n_parameters, history.rates_to(step), step, history.tokens_per_step)


class JointForecaster:
    """Forecaster `joint`: one fit to the family, as far as each of its runs has come.

    `fitted`: the law of the first history's family, where it is there already.
    """

    def __init__(self, family: Sequence[History], fitted: Joint | None = None) -> None:
        self.family = list(family)
        self._fits = {} if fitted is None else {self.family[0].family: fitted}

    def fit(self, history: History) -> JointForecaster:
        """Fit to the runs of `history`'s family; one fit serves all of them."""
        self.history = history
        same = [known for known in self.family if known.family == history.family]
        if any(known is history for known in same):
            if history.family not in self._fits:
                self._fits[history.family] = Joint().fit(same)
            self._joint = self._fits[history.family]
        else:
            self._joint = Joint().fit([*(known for known in same if known.model != history.model), history])
        return self

    def predict(self, step: float) -> Prediction:
        """Loss of the fitted history's model after `step` steps."""
        joint = self._joint
        if joint.reason or not self.history.plan_known:
            return no_prediction(
                joint.reason or self.history.plan or "the learning-rate schedule is not known"
            )
        return as_prediction(*joint.predict([target_of(self.history, round(step))]))


def as_prediction(values: np.ndarray, covariance: np.ndarray) -> Prediction:
    """The first value with its 95% interval, which is symmetric in the logarithm."""
    value = float(values[0])
    if not value > 0:
        return no_prediction("the law gives no positive loss")
    factor = float(np.exp(min(NORMAL * np.sqrt(covariance[0, 0]) / value, 50.0)))
    return Prediction(value, value / factor, value * factor)
