"""The prior of the joint law, learnt from the published families: with all of them, and with each source left out.

The constants of a family (`CONSTANTS`) are those of the joint law fitted to its runs under a wide prior. The prior's centre
is the mean over sources, and its width holds a source that was not seen: the spread over so few sources is drawn towards a
width that was stated beforehand, which counts as `STATED` sources. B, by which a decay lowers the loss, is fitted to each
whole curve and regressed on the logarithms of peak rate, tokens of a step and size, with sources and families as random
effects; its width is what the regression leaves. The exponents of time and decay and the size of the discrepancy are round
numbers (`START`): a search over six sources moved them by 0.01, 0.01 and a fifth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from studies.decisions import single_threaded
from studies.decisions.published import is_learnt_from
from toposcale.forecasting.decision.decision_points import MIN_ROWS, spread_out
from toposcale.forecasting.laws.family_law import FamilyLaw
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.prior_table import NONE, as_row
from toposcale.forecasting.laws.priors import PEAK_SPREAD, Gaussian, Prior, decay_covariates
from toposcale.forecasting.laws.published_law import refuse_young
from toposcale.forecasting.runs.published_run import CONSTANT, PublishedRun
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import NoForecast

START = Prior(
    log_alpha=Gaussian(np.log(0.5), 0.5),
    log_b=Gaussian(np.log(0.15), 0.2),
    kappa=Gaussian(0.0, 0.5),
    share=Gaussian(0.7, 1.0),
    log_alpha_n=Gaussian(np.log(0.34), 0.5),
    log_discrepancy=Gaussian(np.log(0.012), 0.6),
    time_exponent=0.5,
    decay_exponent=0.7,
    b_by_peak=0.3,
    b_by_tokens=-0.15,
    b_by_size=0.1,
    b_by_size_spread=1e-6,
    b_scatter=0.35,
)
"""What is stated beforehand: centres of the order that Luo et al. 2025 and Hoffmann et al. 2022 publish, and
little faith in them."""

CONSTANTS = {"log_alpha": 0.35, "kappa": 0.07, "share": 0.35, "log_alpha_n": 0.25}
"""How far families are thought to differ, stated before they were looked at one by one."""

STATED = 4
DECISION_SHARE = 0.3

SLOPES = ("b_by_peak", "b_by_tokens", "b_by_size")
SLOPE_SPREAD, EFFECTS = 0.05, (0.2, 0.1, 0.2)
"""How far each slope of log B may lie from `START`, and usual standard deviations of the effects of a source, a
family and a run, which count as one observation each."""

B_BY_SIZE_SPREAD = 0.1
"""How far families differ in the power of the size in B: the jackknife over sources gives 0.09. It is fixed while the other
constants are learnt."""

MAX_OF_A_FAMILY = 24
"""Curves of each family to which B is fitted, for time."""


def is_readable(now: TrainingRun) -> bool:
    """Whether a run has come past two warm-ups and the youth that the program refuses, with rows enough for a law."""
    try:
        refuse_young(now)
    except NoForecast:
        return False
    return len(now.loss_curve.steps) >= MIN_ROWS and now.progress.step >= 2 * now.schedule.warmup_steps


def learnt(runs: Sequence[PublishedRun], processes: int = 2) -> pd.DataFrame:
    """A row for each source that is left out, and one for `NONE`: every number of the prior."""
    runs = [run for run in runs if is_learnt_from(run)]
    with single_threaded(processes) as pool:
        gains = gains_of(runs, pool.map)
    constants, rows = constants_by_source(runs), []
    for left_out in (NONE, *sorted({run.source for run in runs})):
        kept = gains[gains["source"] != left_out]
        prior = with_gain(with_constants(START, constants.drop(index=left_out, errors="ignore")), kept)
        rows.append({"left_out": left_out} | as_row(prior))
    return pd.DataFrame(rows).set_index("left_out")


def gains_of(runs: Sequence[PublishedRun], mapped: Callable[..., Iterable[Gaussian]] = map) -> pd.DataFrame:
    """Log B of whole curves that decay, without a prior: source, family, log_b, sd, and what `SLOPES` are about."""
    decaying = [run for run in runs if run.shape != CONSTANT and is_readable(run)]
    families = dict.fromkeys(run.family for run in decaying)
    some = [
        run
        for family in families
        for run in spread_out([one for one in decaying if one.family == family], MAX_OF_A_FAMILY)
    ]
    rows = []
    for run, (log_b, sd) in zip(some, mapped(_log_b, some), strict=True):
        plan = run
        facts = decay_covariates(plan.schedule.peak_rate, plan.tokens_per_step, plan.n_parameters)
        if plan.facts.optimizer == "adamw" and sd < WIDE:
            variance = 1 / (sd**-2 - WIDE**-2)
            likely = variance * (log_b / sd**2 - START.log_b.mean / WIDE**2)
            row = {"source": run.source, "family": run.family, "log_b": likely, "sd": np.sqrt(variance)}
            rows.append(row | dict(zip(SLOPES, facts, strict=True)))
    return pd.DataFrame(rows)


WIDE = 1.0


def _log_b(whole: TrainingRun) -> Gaussian:
    """Log B of a whole curve under a wide prior, as that of a run of a usual plan would be."""
    prior = START._replace(log_b=Gaussian(START.log_b.mean, WIDE), **dict.fromkeys(SLOPES, 0.0))  # type: ignore[arg-type]
    return FamilyLaw(prior, [whole]).posterior().log_b


def with_gain(prior: Prior, gains: pd.DataFrame) -> Prior:
    """The prior with log B and its slopes: generalised least squares, with effects of sources, families and runs whose
    standard deviations are the most likely ones."""
    design = np.column_stack([np.ones(len(gains)), gains[[*SLOPES]].fillna(0.0)])
    same = [gains[name].to_numpy()[:, None] == gains[name].to_numpy() for name in ("source", "family")]
    same.append(np.eye(len(gains), dtype=bool))
    unknown = gains[SLOPES[0]].isna().to_numpy() * START.b_by_peak * PEAK_SPREAD  # the peak, which a family shares
    measured = np.diag(gains["sd"] ** 2) + np.outer(unknown, unknown) * same[1]
    stated = np.array([START.log_b.mean, *(getattr(START, name) for name in SLOPES)])
    precision = np.diag([1e-2, *[SLOPE_SPREAD**-2.0] * len(SLOPES)])
    off = gains["log_b"].to_numpy() - design @ stated

    def fitted(log_effects: np.ndarray) -> tuple[float, np.ndarray]:
        variances = np.exp(2 * log_effects)
        matrix = measured + sum(v * block for v, block in zip(variances, same, strict=True))
        root = np.linalg.cholesky(matrix)
        whitened = np.linalg.solve(root, np.column_stack([design, off]))
        x, y = whitened[:, :-1], whitened[:, -1]
        information = x.T @ x + precision
        moved = np.linalg.solve(information, x.T @ y)
        unlikely = 0.5 * (np.sum((y - x @ moved) ** 2) + moved @ precision @ moved) + np.sum(np.log(np.diag(root)))
        unlikely += 0.5 * np.linalg.slogdet(information)[1] + np.sum((log_effects - np.log(EFFECTS)) ** 2)
        return float(unlikely), stated + moved

    effects = minimize(lambda x: fitted(x)[0], np.log(EFFECTS), method="Nelder-Mead").x
    log_b, *slopes = fitted(effects)[1]
    values = {
        "log_b": prior.log_b._replace(mean=float(log_b)),
        "b_by_size_spread": B_BY_SIZE_SPREAD,
        "b_scatter": float(np.exp(effects[-1])),
    } | dict(zip(SLOPES, map(float, slopes), strict=True))
    return prior._replace(**values)  # type: ignore[arg-type]


def constants_by_source(runs: Sequence[PublishedRun]) -> pd.DataFrame:
    """A row for each source: the constants of its families, averaged."""
    rows = []
    for source in sorted({run.source for run in runs}):
        families = sorted({run.family for run in runs if run.source == source})
        learnt_of = [
            _constants([run for run in runs if run.family == family and is_learnt_from(run)]) for family in families
        ]
        rows.append(
            {"source": source} | {name: float(pd.Series([one[name] for one in learnt_of]).mean()) for name in CONSTANTS}
        )
    return pd.DataFrame(rows).set_index("source")


def _constants(family: Sequence[TrainingRun]) -> dict[str, float]:
    """Posterior means from runs at a decision point, around a run of middle size; the scaling in N is unknown from sizes
    less than 4 times apart."""
    family = [run for run in family if is_readable(run.first(DECISION_SHARE))]
    if not family:
        return dict.fromkeys(CONSTANTS, np.nan)
    sizes = sorted({run.n_parameters for run in family})
    of = max((run for run in family if run.n_parameters == sizes[len(sizes) // 2]), key=lambda run: run.progress.step)
    law = Joint(START, check=False).fit(of.first(DECISION_SHARE), [run.first(DECISION_SHARE) for run in family])
    posterior = law.laws_[0].posterior()
    alone = sizes[-1] < 4 * sizes[0]
    return {name: np.nan if alone and name != "log_alpha" else getattr(posterior, name).mean for name in CONSTANTS}


def with_constants(prior: Prior, constants: pd.DataFrame) -> Prior:
    """The prior with the distributions of `CONSTANTS` that are learnt from these sources."""
    learnt = {}
    for name, stated in CONSTANTS.items():
        values = constants[name].dropna().to_numpy(np.float64)
        squares = float(np.sum((values - values.mean()) ** 2))
        variance = (STATED * stated**2 + squares) / (STATED + len(values) - 1)
        width = float(np.sqrt(variance * (1 + 1 / len(values))))
        learnt[name] = Gaussian(float(values.mean()), width)
    return prior._replace(**learnt)  # type: ignore[arg-type]  # only fields that are distributions
