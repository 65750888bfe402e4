"""One law of the loss for every size and schedule of a family, also for sizes that have not started, under one prior.

    L = L0(N) + A(N) T^-alpha + F n^-1.8 + B sum_k (eta_k^g - eta_{k-1}^g) [1 - (1 + C eta_k^-gamma (S - S_{k-1}))^-beta] +
    misfit
    L0(N) = E + A' N^-alpha_n,    A(N) = A N^kappa

The sum over k is that of the multi-power law (Luo et al. 2025, arXiv 2503.12811). T is the training time: the sum over
steps of eta^c, the learning rate to a power that is called the clock. A fall of the rate counts as that of eta^g; g is
called the gain. F n^-1.8 is what the first n steps cost under any rate. The misfit is in `misfit`; what is plausible
beforehand is in `priors`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from toposcale.laws import discrepancy
from toposcale.laws.multi_power_law import CENTRES, MOST_CHANGES, Prepared, law, prepare
from toposcale.laws.priors import Belief, Prior
from toposcale.runs.smoothing import bin_medians, noise_of
from toposcale.runs.training_run import TrainingRun

POINTS, POINTS_OF_OTHERS = 20, 10
"""Bins of the curve that is decided on, and of each other one: so few, since neighbours share their misfit."""

OWN = {0: 0.02, 1: 0.06, 2: 0.15, 3: 0.35, 7: 1.4}
"""How far a size lies off the law of sizes: L0 in nats, and the logarithms of A, alpha, B and F, each at the place of its
parameter. Round numbers from the first three sources of published runs."""

FIRST_STEPS = 1.8
"""Exponent of what the first steps cost, from the first three sources of published runs."""

# The parameters: the seven of the multi-power law, log F, kappa, the log-odds of E / L0, log alpha_n, how far clock and
# gain lie from their centres, and for each other size what it is off in `OWN`. All terms are in nats; what is believed of
# L0 is how far the last loss lies above it. F is after 1,000 steps. Of C, beta and gamma no curve tells before it decays:
# their centres are the order of magnitude that Luo et al. publish.
_L0, _LOG_A, _LOG_ALPHA, _LOG_B = range(4)
_LOG_F, _KAPPA, _SHARE, _ALPHA_N, _CLOCK, _GAIN, _OFF = range(7, 14)
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
    steps. by_clock (points,): derivative of `time` by the clock. more: log of its B less that of the run that is decided
    on, for their peak rates."""

    n_parameters: float
    time: np.ndarray
    by_clock: np.ndarray
    since: np.ndarray
    more: float
    changes: Prepared


class FamilyLaw:
    """The law under a prior, fitted to `runs`: the first is the one that is decided on, and each has losses.

    evidence: log of the marginal likelihood of their losses. misfit_now: standard deviation of the misfit of the curves at
    the last loss, nats.
    """

    def __init__(self, prior: Prior, runs: Sequence[TrainingRun]) -> None:
        self.prior = prior
        about = runs[0]
        self._names, self._size = [run.model for run in runs], about.n_parameters
        self._others = sorted({run.n_parameters for run in runs} - {self._size})
        self._peak, self._tokens = about.peak_rate, about.tokens_per_step
        points = [POINTS] + [POINTS_OF_OTHERS] * (len(runs) - 1)
        binned = [
            bin_medians(*run.loss_curve, most, run.learning_rates) for run, most in zip(runs, points, strict=True)
        ]
        self._loss = float(np.median(binned[0][1][-3:]))
        self._now = (0.0, 0.0)  # training time and its derivative at the last loss, from which all others are counted
        curves = [self._seen(run, steps) for run, (steps, _) in zip(runs, binned, strict=True)]
        self._now = time, by_clock = float(curves[0].time[-1]), float(curves[0].by_clock[-1])
        curves = [curve._replace(time=curve.time - time, by_clock=curve.by_clock - by_clock) for curve in curves]
        self._points = self._placed(curves, range(len(runs)))
        noise = [np.full(len(losses), np.hypot(discrepancy.ROUNDING, noise_of(losses))) for _, losses in binned]
        self._fit, self.misfit_now = discrepancy.fit(
            lambda x: self._laws(x, curves)[:2],
            np.concatenate([losses for _, losses in binned]),
            self._points,
            np.concatenate(noise),
            self._beliefs(),
            prior.log_misfit,
        )
        self.evidence = self._fit.evidence

    def predict(self, targets: Sequence[Target]) -> tuple[np.ndarray, np.ndarray]:
        """Losses (targets,) and their covariance (targets, targets)."""
        curves = [
            self._curve(target, np.asarray(target.learning_rates), np.array([target.step]), MOST_CHANGES)
            for target in targets
        ]
        begun = {name: place for place, name in enumerate(self._names)}
        points = self._placed(curves, [begun.get(target.model, -1 - at) for at, target in enumerate(targets)])
        new_size = [target.n_parameters not in (self._size, *self._others) for target in targets]
        losses, gradient, by_own = self._laws(self._fit.x, curves)
        scatter = np.where(new_size, np.square(by_own * [*OWN.values()]).sum(axis=1), 0.0)
        return self._fit.forecast(
            losses,
            gradient,
            discrepancy.covariance(points, self._points, self.misfit_now),
            discrepancy.covariance(points, points, self.misfit_now) + np.diag(scatter),
        )

    def learnt(self) -> Prior:
        """What the losses say of the constants of the prior: its beliefs after the fit."""
        x, widths = self._fit.x, np.sqrt(np.diag(self._fit.covariance))
        places = {"log_alpha": _LOG_ALPHA, "log_b": _LOG_B, "kappa": _KAPPA, "share": _SHARE, "log_alpha_n": _ALPHA_N}
        beliefs = {name: Belief(float(x[at]), float(widths[at])) for name, at in places.items()}
        for name, here in (("share", self.prior.share_of(self._size)), ("log_b", self.prior.log_b_of(self._peak))):
            away = here.centre - getattr(self.prior, name).centre
            beliefs[name] = beliefs[name]._replace(centre=beliefs[name].centre - away)
        return self.prior._replace(**beliefs)  # type: ignore[arg-type]  # only fields that are beliefs

    def _seen(self, run: TrainingRun, steps: np.ndarray) -> _Curve:
        rates = run.rates_to(max(run.final_step, round(steps[-1])))
        return self._curve(target_of(run), rates, np.rint(steps).astype(np.int64))

    def _curve(self, run: Target, rates: np.ndarray, steps: np.ndarray, most: int = 200) -> _Curve:
        peak = rates.max()
        rates = rates / peak
        share = run.tokens_per_step / self._tokens
        counted = rates**self.prior.clock.centre
        time, by_clock = (np.cumsum(each)[steps] for each in (counted, counted * np.log(np.maximum(rates, 1e-9))))
        since = np.maximum(steps - np.argmax(rates) / 2, 1.0) / 1000
        return _Curve(
            float(run.n_parameters),
            np.log(time * (share if np.isfinite(share) else 1.0)) - self._now[0],
            by_clock / time - self._now[1],
            np.log(since),
            self.prior.log_b_of(peak).centre - self.prior.log_b_of(self._peak).centre,
            prepare(rates, steps, 1.0, most, self.prior.gain.centre),
        )

    def _placed(self, curves: Sequence[_Curve], runs: Sequence[int]) -> discrepancy.Points:
        lengths = [len(curve.time) for curve in curves]
        sizes = np.log([curve.n_parameters / self._size for curve in curves])
        return discrepancy.Points(
            np.concatenate([curve.time for curve in curves]), np.repeat(sizes, lengths), np.repeat(runs, lengths)
        )

    def _beliefs(self) -> tuple[np.ndarray, np.ndarray]:
        """Centres and widths of all parameters."""
        prior, level = self.prior, (self._loss - _ABOVE_L0[0], _ABOVE_L0[1])
        law_of_one = (level, _LOG_A_BELIEF, prior.log_alpha, prior.log_b_of(self._peak), *_DECAY, _FIRST)
        of_sizes = (prior.kappa, prior.share_of(self._size), prior.log_alpha_n)
        powers = ((0.0, prior.clock.width), (0.0, prior.gain.width))
        off = [(0.0, width) for width in OWN.values() for _ in self._others]
        centres, widths = np.array([*law_of_one, *of_sizes, *powers, *off]).T
        return centres, widths

    def _laws(self, x: np.ndarray, curves: Sequence[_Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Losses of all points (points,), their gradient (points, parameters), and that by what a size has of its own
        (points, own)."""
        losses, gradient, by_own = zip(*(self._law(x, curve) for curve in curves), strict=True)
        return np.concatenate(losses), np.vstack(gradient), np.vstack(by_own)

    def _law(self, x: np.ndarray, curve: _Curve) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log of the training time and changes of the rate are linear in clock and gain, which differ little."""
        constants, by_x = self._of_size(x, curve.n_parameters)
        constants[_LOG_B] += curve.more
        changes = replace(
            curve.changes,
            time=np.exp(curve.time + x[_CLOCK] * curve.by_clock),
            change=curve.changes.change + x[_GAIN] * curve.changes.by_power,
        )
        loss, slopes = law(constants[:_LOG_F], changes)
        first = np.exp(np.clip(constants[_LOG_F] - FIRST_STEPS * curve.since, -60, 10))
        by_constants = np.column_stack([slopes[:, :_LOG_F], first])
        gradient = by_constants @ by_x
        gradient[:, _CLOCK] = -np.exp(constants[_LOG_ALPHA]) * slopes[:, _LOG_A] * curve.by_clock
        gradient[:, _GAIN] = slopes[:, _LOG_F]
        return loss + first, gradient, by_constants[:, list(OWN)]

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
