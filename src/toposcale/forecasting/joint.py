"""Sizes together: one law of the loss for every size and schedule of a family, also for sizes that have not started.

    L = L0(N) + A(N) T^-alpha + F n^-1.8 + B sum_k (eta_k - eta_{k-1}) [1 - (1 + C eta_k^-gamma (S - S_{k-1}))^-beta] +
    misfit L0(N) = E + A' N^-alpha_n,    A(N) = A N^kappa

The sum over k is that of the multi-power law (Luo et al. 2025, arXiv 2503.12811). T is the training time, in which a step
counts as its learning rate to a power below 1: a run that decays early makes more progress than the sum of its rates says.
F n^-1.8 is what the first n steps cost under any rate. The misfit is in `misfit`; what is plausible beforehand is in
`priors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from toposcale.forecasting import misfit
from toposcale.forecasting.multi_power_law import CENTRES, MOST_CHANGES, Prepared, bin_medians, law, noise_of, prepare
from toposcale.forecasting.prediction import NoForecast, Prediction
from toposcale.forecasting.priors import PUBLISHED, SIZES_KNOWN, Belief, Prior
from toposcale.forecasting.training_run import TrainingRun

POINTS, POINTS_OF_OTHERS = 20, 10
"""Bins of the curve that is decided on, and of each other one: so few, since neighbours share their misfit."""

MOST_SIZES, MOST_OF_A_SIZE = 8, 2
"""Other sizes that are read, the nearest ones, and runs of each size, the longest ones."""

OWN = {0: 0.015, 1: 0.04, 2: 0.1, 3: 0.25, 7: 1.0}
"""How far a size lies off the law of sizes: L0 in nats, and the logarithms of A, alpha, B and F, each at the place of its
parameter."""

END_SCATTER = 0.023
"""Nats by which an end lies off all that its own curve says: with less, late in their decay 53% of the ends of one source,
and 83% of those of random laws, lay inside the 95% interval."""

FAR = 0.05
"""Nats for each decade by which a size lies outside those that were published: what is known of the law is known there."""

FIRST_STEPS = 1.8
"""Exponent of what the first steps cost."""

# The parameters: the seven of the multi-power law, log F, kappa, the log-odds of E / L0, log alpha_n, and for each other
# size what it is off in `OWN`. All terms are in nats; what is believed of L0 is how far the last loss lies above it. F is
# after 1,000 steps. Of C, beta and gamma no curve tells before it decays: their centres are the order of magnitude that
# Luo et al. publish.
_L0, _LOG_A, _LOG_B, _LOG_F, _KAPPA, _SHARE, _ALPHA_N, _OFF = 0, 1, 3, 7, 8, 9, 10, 11
_ABOVE_L0, _LOG_A_BELIEF = (0.45, 0.45), (float(np.log(0.3)), 1.0)
_DECAY = tuple(zip(CENTRES[4:].tolist(), (0.5, 0.2, 0.15), strict=True))  # log C, log beta, gamma
_FIRST = (float(np.log(0.045)), 1.2)


class Target(NamedTuple):
    """A loss to be forecast: after `step` steps of a model of that size under `learning_rates` (one a step).

    model: the training run whose loss it is, where it has begun; "" of a new one.
    """

    n_parameters: float
    learning_rates: np.ndarray
    step: int
    tokens_per_step: float = np.nan
    model: str = ""


def target_of(training: TrainingRun, step: int | None = None) -> Target:
    """The end, or a step, of a run under its plan."""
    step = training.final_step if step is None else step
    return Target(training.n_parameters, training.rates_to(step), step, training.tokens_per_step, training.model)


class _Curve(NamedTuple):
    """Points of one run in the terms of the law. time, since: (points,) logs of the training time and of thousands of
    steps. more: log of its B less that of the run that is decided on, for their peak rates."""

    n_parameters: float
    time: np.ndarray
    since: np.ndarray
    more: float
    changes: Prepared


class Joint:
    """The law of a family: `fit` reads what is known of its runs, `predict` tells any size under any schedule."""

    def __init__(self, prior: Prior = PUBLISHED) -> None:
        self.prior = prior
        self.stretch = 1.0
        """By what its standard deviations are multiplied: more than 1 where its forecasts proved too sure."""
        self.misfit_now = float(np.nan)
        """Standard deviation of the misfit of its curves at the last loss, nats; after `fit`."""

    def fit(self, trainings: Sequence[TrainingRun], of: TrainingRun | None = None) -> Joint:
        """Fit to the losses of `of` (by default the largest and longest run) and of those of `trainings` that tell most.

        Finished runs whose learning rates are not known are left out where those of another run are. `n_runs` counts the
        runs that were read. NoForecast: no loss.
        """
        usable = [run for run in trainings if len(run.loss_curve[0])]
        # What a finished run lost under rates that nobody knows says nothing of another schedule.
        if any(run.rates_known for run in (usable if of is None else [of, *usable])):
            usable = [run for run in usable if run.rates_known or not run.is_finished]
        about = of or max(usable, key=lambda run: (run.n_parameters, run.final_step, run.model), default=None)
        if about is None or not len(about.loss_curve[0]):
            raise NoForecast("it has no loss after the warm-up")
        runs = [about, *_chosen(about, usable)]
        self.n_runs, self._names, self._size = len(runs), [run.model for run in runs], about.n_parameters
        self._others = sorted({run.n_parameters for run in runs} - {self._size})
        self._unit, self._tokens = 1.0, about.tokens_per_step
        points = [POINTS] + [POINTS_OF_OTHERS] * (len(runs) - 1)
        binned = [
            bin_medians(*run.loss_curve, most, run.learning_rates) for run, most in zip(runs, points, strict=True)
        ]
        self._loss = float(np.median(binned[0][1][-3:]))
        self._peak = about.peak_rate
        self._unit = float(np.exp(self._seen(about, binned[0][0]).time[-1]))
        curves = [self._seen(run, steps) for run, (steps, _) in zip(runs, binned, strict=True)]
        self._points = self._placed(curves, range(len(runs)))
        noise = [np.full(len(own), np.hypot(misfit.ROUNDING, noise_of(own))) for _, own in binned]
        self._fit, self.misfit_now = misfit.fit(
            lambda x: self._laws(x, curves)[:2],
            np.concatenate([own for _, own in binned]),
            self._points,
            np.concatenate(noise),
            self._beliefs(),
            self.prior.log_misfit,
        )
        return self

    @property
    def n_sizes(self) -> int:
        """Sizes whose losses were read."""
        return 1 + len(self._others)

    def predict(self, targets: Sequence[Target]) -> tuple[np.ndarray, np.ndarray]:
        """Losses (targets,) and their covariance (targets, targets): errors that candidates share cancel between them."""
        curves = [
            self._curve(one, np.asarray(one.learning_rates), np.array([one.step]), MOST_CHANGES) for one in targets
        ]
        begun = {name: place for place, name in enumerate(self._names)}
        points = self._placed(curves, [begun.get(one.model, -1 - at) for at, one in enumerate(targets)])
        new_size = [one.n_parameters not in (self._size, *self._others) for one in targets]
        losses, gradient, by_own = self._laws(self._fit.x, curves)
        end_variance = END_SCATTER**2 + np.where(new_size, np.square(by_own * [*OWN.values()]).sum(axis=1), 0.0)
        end_variance += np.square([FAR * _decades_away(one.n_parameters) for one in targets])
        losses, spread = self._fit.forecast(
            losses,
            gradient,
            misfit.covariance(points, self._points, self.misfit_now),
            misfit.covariance(points, points, self.misfit_now) + np.diag(end_variance),
        )
        return losses, spread * self.stretch**2

    def learnt(self) -> Prior:
        """What the losses say of the constants of the prior: its beliefs after the fit."""
        x, widths = self._fit.x, np.sqrt(np.diag(self._fit.covariance))
        beliefs = {
            name: Belief(float(x[at]), float(widths[at]))
            for name, at in (
                ("log_alpha", 2), ("log_b", 3), ("kappa", _KAPPA), ("share", _SHARE), ("log_alpha_n", _ALPHA_N)
            )
        }  # fmt: skip
        for name, here in (("share", self.prior.share_of(self._size)), ("log_b", self.prior.log_b_of(self._peak))):
            away = here.centre - getattr(self.prior, name).centre
            beliefs[name] = beliefs[name]._replace(centre=beliefs[name].centre - away)
        return self.prior._replace(**beliefs)  # type: ignore[arg-type]  # only fields that are beliefs

    def forecast(self, training: TrainingRun, step: int | None = None) -> Prediction:
        """The loss at the end, or at a step, of a run under its plan."""
        values, covariance = self.predict([target_of(training, step)])
        return Prediction.of(float(values[0]), float(np.sqrt(covariance[0, 0])))

    def _seen(self, run: TrainingRun, steps: np.ndarray) -> _Curve:
        rates = run.rates_to(max(run.final_step, round(steps[-1])))
        return self._curve(target_of(run), rates, np.rint(steps).astype(np.int64))

    def _curve(self, run: Target, rates: np.ndarray, steps: np.ndarray, most: int = 200) -> _Curve:
        peak = rates.max()
        rates = rates / peak
        share = run.tokens_per_step / self._tokens
        time = np.cumsum(rates**self.prior.clock)[steps] * (share if np.isfinite(share) else 1.0)
        since = np.maximum(steps - np.argmax(rates) / 2, 1.0) / 1000
        return _Curve(
            float(run.n_parameters),
            np.log(time / self._unit),
            np.log(since),
            self.prior.log_b_of(peak).centre - self.prior.log_b_of(self._peak).centre,
            prepare(rates, steps, 1.0, most, self.prior.gain),
        )

    def _placed(self, curves: Sequence[_Curve], runs: Sequence[int]) -> misfit.Points:
        lengths = [len(curve.time) for curve in curves]
        sizes = np.log([curve.n_parameters / self._size for curve in curves])
        return misfit.Points(
            np.concatenate([curve.time for curve in curves]), np.repeat(sizes, lengths), np.repeat(runs, lengths)
        )

    def _beliefs(self) -> tuple[np.ndarray, np.ndarray]:
        """Centres and widths of all parameters."""
        off = [(0.0, width) for width in OWN.values() for _ in self._others]
        prior, level = self.prior, (self._loss - _ABOVE_L0[0], _ABOVE_L0[1])
        law_of_one = (level, _LOG_A_BELIEF, prior.log_alpha, prior.log_b_of(self._peak), *_DECAY, _FIRST)
        centres, widths = np.array([*law_of_one, prior.kappa, prior.share_of(self._size), prior.log_alpha_n, *off]).T
        return centres, widths

    def _laws(self, x: np.ndarray, curves: Sequence[_Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Losses of all points (points,), their gradient (points, parameters), and that by
        what a size has of its own (points, own)."""
        parts = [self._law(x, curve) for curve in curves]
        losses, gradient, by_own = zip(*parts, strict=True)
        return np.concatenate(losses), np.vstack(gradient), np.vstack(by_own)

    def _law(self, x: np.ndarray, curve: _Curve) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        constants, by_x = self._of_size(x, curve.n_parameters)
        constants[_LOG_B] += curve.more
        changes = replace(curve.changes, time=np.exp(curve.time))
        loss, slopes = law(constants[:_LOG_F], changes)
        first = np.exp(np.clip(constants[_LOG_F] - FIRST_STEPS * curve.since, -60, 10))
        slopes = np.column_stack([slopes, first])
        return loss + first, slopes @ by_x, slopes[:, list(OWN)]

    def _of_size(self, x: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
        """The constants of the law for a size (8,), and their gradient (8, parameters)."""
        r = float(np.log(size / self._size))
        share, alpha_n = 1 / (1 + np.exp(-x[_SHARE])), float(np.exp(np.clip(x[_ALPHA_N], -20, 5)))
        fall = float(np.exp(np.clip(-alpha_n * r, -50, 50)))
        constants, by_x = x[: _LOG_F + 1].copy(), np.eye(_LOG_F + 1, len(x))
        constants[_L0] *= share + (1 - share) * fall
        by_x[_L0, _L0] = share + (1 - share) * fall
        by_x[_L0, _SHARE] = x[_L0] * share * (1 - share) * (1 - fall)
        by_x[_L0, _ALPHA_N] = -x[_L0] * (1 - share) * fall * alpha_n * r
        constants[_LOG_A] += x[_KAPPA] * r
        by_x[_LOG_A, _KAPPA] = r
        if size in self._others:
            off = _OFF + self._others.index(int(size)) + len(self._others) * np.arange(len(OWN))
            constants[list(OWN)] += x[off]
            by_x[list(OWN), off] = 1.0
        return constants, by_x


def _decades_away(n_parameters: float) -> float:
    """Decades between a size and the nearest one that was published; 0 between these."""
    return float(abs(np.log10(n_parameters / np.clip(n_parameters, *SIZES_KNOWN))))


def _chosen(about: TrainingRun, known: Sequence[TrainingRun]) -> list[TrainingRun]:
    """Of each of the sizes nearest to that of `about` the longest runs."""
    by_size: dict[int, list[TrainingRun]] = {}
    for run in sorted(known, key=lambda run: (-run.last_step * run.tokens_per_step, run.model)):
        if run.model != about.model:
            by_size.setdefault(run.n_parameters, []).append(run)
    nearest = sorted(by_size, key=lambda size: (abs(np.log(size / about.n_parameters)), size))
    return [run for size in nearest[: MOST_SIZES + 1] for run in by_size[size][:MOST_OF_A_SIZE]]
