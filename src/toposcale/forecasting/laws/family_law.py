"""Law of the loss for every size and schedule of a family, also for sizes that have not started, under one prior.

    L = L0(N) + A(N) T^-alpha + F n^-1.8 + R
        + B sum_k (eta_k^g - eta_{k-1}^g) [1 - (1 + C eta_k^-gamma (S - S_{k-1}))^-beta] + discrepancy
    L0(N) = E + A' N^-alpha_n,    A(N) = A N^kappa,    B(N) = B N^b

The sum over k is that of the multi-power law (Luo et al. 2025, arXiv 2503.12811). T is the intrinsic training time: the sum
over steps of eta^c, the learning rate to the time exponent c. A decay counts as that of eta^g, with the decay exponent g.
F n^-1.8 is the cost of the first n steps under any rate. R is the cost of a text that is repeated, see
`REPETITION_EXPONENT`. The model discrepancy is in `discrepancy`, the prior in `priors`.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from toposcale.forecasting.laws import discrepancy, priors
from toposcale.forecasting.laws.annealing import CENTRES, FIT_CHANGES, MAX_CHANGES, Prepared, law, prepare
from toposcale.forecasting.laws.priors import Gaussian, Prior
from toposcale.forecasting.laws.published_law import published_reducible_loss
from toposcale.forecasting.runs.curves import bin_medians
from toposcale.forecasting.runs.facts import RunFacts, is_usual_aspect_ratio
from toposcale.forecasting.runs.learning_rate_schedule import first_peak
from toposcale.forecasting.runs.series import noise_of
from toposcale.forecasting.runs.training_run import Target, TrainingRun

POINTS, POINTS_OF_OTHERS = 20, 10
"""Bins of the curve that is decided on, and of each other one: few, since neighbours share their discrepancy."""


class P(IntEnum):
    """Index of each parameter; all terms of the law are in nats.

    The seven of the multi-power law for the size that is decided on, log F after 1,000 steps, the scaling in N, the log
    of R after one repetition of as many tokens as parameters, and the power of N in B less that of the prior.
    """

    L0 = 0
    LOG_A = 1
    LOG_ALPHA = 2
    LOG_B = 3
    LOG_C = 4
    LOG_BETA = 5
    GAMMA = 6
    LOG_F = 7
    KAPPA = 8
    SHARE = 9
    LOG_ALPHA_N = 10
    LOG_REPEATED = 11
    B_BY_SIZE = 12


SCATTER = {P.L0: 0.02, P.LOG_A: 0.06, P.LOG_ALPHA: 0.15, P.LOG_F: 1.4}
"""Standard deviations of the constants of a size around the scaling law in N: of L0 in nats, else of the logarithm. Round
numbers from the first three sources of published runs; that of log B is in the prior. Each size has these offsets as
further parameters, where several are known."""

_N_CONSTANTS, _N_PARAMETERS, _SCATTERED = P.LOG_F + 1, len(P), [*SCATTER, P.LOG_B]

_LEVEL = (P.L0, P.LOG_A)
"""Constants whose scatter is wider for a size that is far from its family."""

_MIN_L0_BELOW_LOSS = 0.45
"""Least mean of the prior of the last loss less L0, nats; its standard deviation is as large."""

_OF_ONE_SIZE = {
    P.LOG_C: Gaussian(float(CENTRES[4]), 0.5),
    P.LOG_BETA: Gaussian(float(CENTRES[5]), 0.2),
    P.GAMMA: Gaussian(float(CENTRES[6]), 0.15),
    P.LOG_F: Gaussian(float(np.log(0.045)), 1.2),
    P.LOG_REPEATED: Gaussian(float(np.log(0.0185)), 0.3),
}
"""Priors that are not learnt from published runs: C, beta and gamma are unidentifiable before the decay; their means are
the order of magnitude that Luo et al. publish."""


class _Points(NamedTuple):
    """Points of runs in the terms of the law, (points,) each.

    log_size: log of the number of parameters over that of the run that is decided on. offsets (points, sizes): factor of
    the offset of each other size, and of that of the size that is decided on. log_steps, log_repeated: logs of thousands
    of steps, and of R over its value after one repetition. log_b_offset: log of B less that of the run that is decided on,
    by the prior. run: an integer for each run. changes: has the log of the intrinsic training time.
    """

    log_size: np.ndarray
    offsets: np.ndarray
    log_steps: np.ndarray
    log_repeated: np.ndarray
    log_b_offset: np.ndarray
    run: np.ndarray
    changes: Prepared

    @property
    def of_discrepancy(self) -> discrepancy.Points:
        """Points as arguments of the discrepancy."""
        return discrepancy.Points(self.changes.log_time, self.log_size, self.run)


def _joined(parts: Sequence[_Points]) -> _Points:
    """Return the points of all parts."""
    *arrays, changes = zip(*parts, strict=True)
    starts = np.cumsum([0, *(len(part.run) for part in parts[:-1])])
    moved = [part._replace(point=part.point + start) for part, start in zip(changes, starts, strict=True)]
    return _Points._make([*map(np.concatenate, arrays), Prepared(*map(np.concatenate, zip(*moved, strict=True)))])


class FamilyLaw:
    """MAP fit of the law to `runs`: the first is the one that is decided on, and each has losses.

    decided_scatter: factor on the scatter of the level (L0, A) of the size that is decided on around the others.
    evidence: log of the marginal likelihood of their losses. last_discrepancy_sd: standard deviation of the model
    discrepancy at the last loss, nats.
    """

    def __init__(self, prior: Prior, runs: Sequence[TrainingRun], decided_scatter: float = 1.0) -> None:
        self.prior = prior
        self._scatter, self._decided_scatter = np.array([*SCATTER.values(), prior.b_scatter]), decided_scatter
        first = runs[0]
        self._names, self._size = [run.model for run in runs], first.n_parameters
        self._facts = {"": first.facts} | {run.model: run.facts for run in runs}
        self._sizes = sorted({run.n_parameters for run in runs} - {self._size})
        self._tokens_per_step = first.tokens_per_step
        self._log_b = self._log_b_of(first.target(), first.schedule.peak_rate)
        n_bins = [POINTS] + [POINTS_OF_OTHERS] * (len(runs) - 1)
        binned = [bin_medians(*run.loss_curve, n, run.schedule.rates) for run, n in zip(runs, n_bins, strict=True)]
        self._last_loss = float(np.median(binned[0][1][-3:]))
        self._l0_below_loss = l0_below_loss(self._last_loss, first.cost.tokens(binned[0][0][-1]))
        self._log_last_time = 0.0  # log of the intrinsic training time at the last loss: the origin of `log_time`
        points = _joined([self._observed_points(run, binned[i][0], i) for i, run in enumerate(runs)])
        self._log_last_time = float(points.changes.log_time[len(binned[0][0]) - 1])
        log_time = points.changes.log_time - self._log_last_time
        points = points._replace(changes=points.changes._replace(log_time=log_time))
        self._points = points.of_discrepancy
        noise = [np.full(len(losses), np.hypot(priors.MIN_NOISE_SD, noise_of(losses))) for _, losses in binned]
        self._fit, self.last_discrepancy_sd = discrepancy.fit(
            lambda x: self._laws(x, points)[:2],
            np.concatenate([losses for _, losses in binned]),
            self._points,
            np.concatenate(noise),
            self._prior_moments(),
            prior.log_discrepancy,
        )
        self.evidence = self._fit.evidence

    def predict(self, targets: Sequence[Target]) -> tuple[np.ndarray, np.ndarray]:
        """Return the losses (targets,) and their covariance (targets, targets)."""
        runs = {name: index for index, name in enumerate(self._names)}
        parts = [
            self._points_of(end, end.learning_rates, np.array([end.step]), runs.get(end.model, -1 - index), MAX_CHANGES)
            for index, end in enumerate(targets)
        ]
        points = _joined(parts)
        places = points.of_discrepancy
        new_size = [target.n_parameters not in (self._size, *self._sizes) for target in targets]
        losses, gradient, by_scattered = self._laws(self._fit.x, points)
        scatter = np.where(new_size, np.square(by_scattered * self._scatter).sum(axis=1), 0.0)
        return self._fit.forecast(
            losses,
            gradient,
            discrepancy.covariance(places, self._points, self.last_discrepancy_sd),
            discrepancy.covariance(places, places, self.last_discrepancy_sd) + np.diag(scatter),
        )

    def posterior(self) -> Prior:
        """Return the posterior of the constants of the prior, each by its mode and standard deviation."""
        x, sd = self._fit.x, np.sqrt(np.diag(self._fit.covariance))
        share_offset = self.prior.share_of(self._size).mean - self.prior.share.mean
        log_b_offset = self._log_b.mean - self.prior.log_b.mean
        return self.prior._replace(
            log_alpha=Gaussian(float(x[P.LOG_ALPHA]), float(sd[P.LOG_ALPHA])),
            log_b=Gaussian(float(x[P.LOG_B]) - log_b_offset, float(sd[P.LOG_B])),
            kappa=Gaussian(float(x[P.KAPPA]), float(sd[P.KAPPA])),
            share=Gaussian(float(x[P.SHARE]) - share_offset, float(sd[P.SHARE])),
            log_alpha_n=Gaussian(float(x[P.LOG_ALPHA_N]), float(sd[P.LOG_ALPHA_N])),
        )

    def _observed_points(self, run: TrainingRun, steps: np.ndarray, index: int) -> _Points:
        """Return the observed points of the run with this index at some steps."""
        rates = run.schedule.rates_to(max(run.final_step, round(steps[-1])))
        return self._points_of(run.target(), rates, np.rint(steps).astype(np.int64), index)

    def _points_of(
        self, run: Target, rates: np.ndarray, steps: np.ndarray, index: int, most_changes: int = FIT_CHANGES
    ) -> _Points:
        """Return points of the run with this index at some steps in the terms of the law."""
        peak = np.max(rates)
        rates = np.asarray(rates) / peak
        share = run.tokens_per_step / self._tokens_per_step
        time = np.cumsum(rates**self.prior.time_exponent)[steps]
        log_time = np.log(time * (share if np.isfinite(share) else 1.0)) - self._log_last_time
        offsets = [float(run.n_parameters == size) for size in self._sizes]
        offsets += [-float(run.n_parameters != self._size)] * bool(self._sizes)
        return _Points(
            np.full(len(steps), np.log(run.n_parameters / self._size)),
            np.tile(offsets, (len(steps), 1)),
            np.log(np.maximum(steps - first_peak(rates) / 2, 1.0) / 1000),
            self._log_repeated(run, steps),
            np.full(len(steps), self._log_b_of(run, float(peak)).mean - self._log_b.mean),
            np.full(len(steps), index),
            prepare(rates, steps, 1.0, most_changes, self.prior.decay_exponent)._replace(log_time=log_time),
        )

    def _log_repeated(self, run: Target, steps: np.ndarray) -> np.ndarray:
        """Return the log of the cost of the repeated text, relative to one repetition; very low without any."""
        unique = self._facts_of(run).unique_tokens
        repetitions = np.maximum(np.nan_to_num(run.cost.tokens(steps) / unique - 1), 1e-9)
        per_token = np.nan_to_num(np.log(run.n_parameters / unique))
        return priors.REPETITION_EXPONENT * np.log(repetitions) + priors.OVERFIT_EXPONENT * per_token

    def _log_b_of(self, run: Target, peak: float) -> Gaussian:
        """Return the prior of log B of a run."""
        facts = self._facts_of(run)
        is_averaged = facts.weight_average not in ("", "none")
        return self.prior.log_b_of(
            peak, run.tokens_per_step, run.n_parameters, facts.optimizer, is_averaged=is_averaged
        )

    def _facts_of(self, run: Target) -> RunFacts:
        """Return the facts of a run; one that was not read has those of the run that is decided on."""
        return self._facts.get(run.model, self._facts[""])

    def _scatter_of(self, size: float) -> np.ndarray:
        """Return the standard deviations of the offsets of a size (scattered,).

        The level of one of an unusual shape is wider, and the runs of another recipe tell as little of B as the prior.
        """
        first, runs = self._facts[""], [facts for facts in self._facts.values() if facts.n_parameters == size]
        is_usual = any(is_usual_aspect_ratio(facts.aspect_ratio) for facts in runs)
        factor = self._decided_scatter if size == self._size else 1.0
        factor = factor if is_usual else priors.OUTLYING_SCATTER
        scatter = self._scatter * np.where(np.isin(_SCATTERED, _LEVEL), factor, 1.0)
        if all(facts.recipe_differences(first) for facts in runs):
            scatter[-1] = np.hypot(scatter[-1], self._log_b.sd)
        return scatter

    def _prior_moments(self) -> Gaussian:
        """Return means and standard deviations of all parameters, (parameters,) each."""
        prior = self.prior
        of_parameter = {
            P.L0: Gaussian(self._last_loss - self._l0_below_loss, self._l0_below_loss),
            P.LOG_A: Gaussian(float(np.log(self._l0_below_loss * 2 / 3)), 1.0),
            **_OF_ONE_SIZE,
            P.LOG_ALPHA: prior.log_alpha,
            P.LOG_B: self._log_b,
            P.KAPPA: prior.kappa,
            P.SHARE: prior.share_of(self._size),
            P.LOG_ALPHA_N: prior.log_alpha_n,
            P.B_BY_SIZE: Gaussian(0.0, prior.b_by_size_spread),
        }
        # Those of the size that is decided on are the last, and subtracted from all others.
        sizes = [*self._sizes, self._size] if self._sizes else []
        offsets = [(0.0, sd) for sds in zip(*map(self._scatter_of, sizes), strict=True) for sd in sds]
        means, sds = np.array([*(of_parameter[parameter] for parameter in P), *offsets]).T
        return Gaussian(means, sds)

    def _laws(self, x: np.ndarray, points: _Points) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the losses of all points (points,), and their gradients (points, parameters) and (points, scattered).

        The second one is by the constants that scatter between sizes.
        """
        r = points.log_size
        share, alpha_n = 1 / (1 + np.exp(-x[P.SHARE])), np.exp(min(max(x[P.LOG_ALPHA_N], -20.0), 5.0))
        decrease = np.exp(np.clip(-alpha_n * r, -50, 50))
        l0_factor = share + (1 - share) * decrease
        constants = np.tile(x[:_N_CONSTANTS, None], len(r))
        constants[P.L0] *= l0_factor
        constants[P.LOG_A] += x[P.KAPPA] * r
        constants[P.LOG_B] += x[P.B_BY_SIZE] * r + points.log_b_offset
        offsets = x[_N_PARAMETERS:].reshape(len(_SCATTERED), -1)
        constants[_SCATTERED] += np.einsum("co,po->cp", offsets, points.offsets)
        of_points, of_all = constants[[P.L0, P.LOG_A, P.LOG_ALPHA, P.LOG_B]], x[[P.LOG_C, P.LOG_BETA, P.GAMMA]]
        losses, slopes = law([*of_points, *of_all], points.changes)
        first_steps_cost = np.exp(np.clip(constants[P.LOG_F] - priors.FIRST_STEPS_EXPONENT * points.log_steps, -60, 10))
        repeated = np.exp(x[P.LOG_REPEATED] + points.log_repeated)
        by_constants = np.column_stack([slopes, first_steps_cost])
        by_scattered = by_constants[:, _SCATTERED]
        gradient = np.zeros((len(r), len(x)))
        gradient[:, :_N_CONSTANTS] = by_constants
        gradient[:, P.L0] *= l0_factor
        gradient[:, P.KAPPA] = by_constants[:, P.LOG_A] * r
        gradient[:, P.SHARE] = x[P.L0] * share * (1 - share) * (1 - decrease)
        gradient[:, P.LOG_ALPHA_N] = -x[P.L0] * (1 - share) * decrease * alpha_n * r
        gradient[:, P.LOG_REPEATED] = repeated
        gradient[:, P.B_BY_SIZE] = by_constants[:, P.LOG_B] * r
        gradient[:, _N_PARAMETERS:] = (by_scattered[:, :, None] * points.offsets[:, None, :]).reshape(len(r), -1)
        return losses + first_steps_cost + repeated, gradient, by_scattered


def l0_below_loss(loss: float, n_tokens: float) -> float:
    """Return the mean of the prior of the last loss less L0, nats, after so many tokens (NaN: unknown).

    A young run still has most of it to lose: with 0.45 nats at any age the ends of runs that had seen 5 to 10 million
    tokens were forecast 0.4 nats too high.
    """
    reducible = priors.REDUCIBLE_SHARE * published_reducible_loss(n_tokens) if np.isfinite(n_tokens) else 0.0
    return max(_MIN_L0_BELOW_LOSS, min(reducible, loss / 2))
