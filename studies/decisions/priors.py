"""The prior of the joint law, learnt from the published families: with all of them, and with each source left out.

Two kinds of numbers are learnt. The constants of a family (`CONSTANTS`) are those of the joint law fitted to its runs
under a wide prior. The prior's centre is the mean over sources, and its width holds a source that was not seen: the spread
over so few sources is drawn towards a width that was stated beforehand, which counts as `STATED` sources. The other centres
(`SHARED`) are the numbers under which the ends of the runs were the most likely, as forecast from `SHARES` of each run
alone. There a source counts as one observation, since its runs err together, and what was stated of them counts as one
more. Their widths are stated (`START`): six sources cannot tell them (the search let B differ by 7% between families).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from studies.decisions.published import CONSTANT, FEWEST_ROWS, SHARES, Run
from toposcale.laws.family_law import FamilyLaw
from toposcale.laws.joint import END_SCATTER, Joint
from toposcale.laws.priors import Gaussian, Prior
from toposcale.runs.training_run import TrainingRun

START = Prior(
    log_alpha=Gaussian(np.log(0.5), 0.5),
    log_b=Gaussian(np.log(0.15), 0.3),
    kappa=Gaussian(0.0, 0.5),
    share=Gaussian(0.7, 1.0),
    log_alpha_n=Gaussian(np.log(0.34), 0.5),
    log_discrepancy=Gaussian(np.log(0.015), 0.6),
    time_exponent=Gaussian(0.5, 0.1),
    decay_exponent=Gaussian(0.7, 0.15),
    peak_exponent=0.2,
)
"""Where the search begins: centres of the order that Luo et al. 2025 and Hoffmann et al. 2022 publish, and little faith in
them."""

CONSTANTS = {"log_alpha": 0.35, "kappa": 0.07, "share": 0.35, "log_alpha_n": 0.25}
"""How far families are thought to differ, stated before they were looked at one by one."""

STATED = 4
MOMENT = 0.3
NONE = "none"

SHARED = {"time_exponent": 0.15, "decay_exponent": 0.15, "peak_exponent": 0.1, "log_b": 0.3, "log_discrepancy": 1.0}
"""How far each may lie from `START`: standard deviations, stated beforehand. Together they count as one more source, else
five sources drew the gain above 1 and the clock to 0.3."""

DEGREES_OF_FREEDOM = 5
"""Degrees of freedom of the Student distribution of an error in units of its standard deviation: single odd runs decide
less."""

MOST_OF_A_FAMILY = 24
"""Forecasts of each family by which a prior is judged while it is searched, for time."""

TRIES = 70
"""Priors that a search tries."""


class Ahead(NamedTuple):
    """A training as it stood at a point, and the loss at its end."""

    source: str
    family: str
    now: TrainingRun
    end: float


def ends_ahead(runs: Sequence[Run]) -> list[Ahead]:
    """Runs of usual shapes that decay, past two warm-ups, at each of `SHARES`."""
    return [
        Ahead(run.source, run.family, now, float(run.history.losses[-1]))
        for run in runs
        for share in SHARES
        for now in [run.history.first(share)]
        if run.is_usual and run.shape != CONSTANT and is_readable(now)
    ]


def is_readable(now: TrainingRun) -> bool:
    """Whether a run has come past two warm-ups, with rows enough for a law."""
    return len(now.loss_curve.steps) >= FEWEST_ROWS and now.last_step >= 2 * now.schedule.warmup_steps


def learnt(runs: Sequence[Run], processes: int = 2) -> pd.DataFrame:
    """A row for each source that is left out, and one for `NONE`: every number of the prior."""
    rows = []
    with ProcessPoolExecutor(processes) as pool:
        for left_out in (NONE, *sorted({run.source for run in runs})):
            prior = _learnt_of(pool, [run for run in runs if run.source != left_out])
            rows.append({"left_out": left_out} | as_row(prior))
    return pd.DataFrame(rows).set_index("left_out")


def _learnt_of(pool: Executor, runs: Sequence[Run]) -> Prior:
    """The prior that these runs teach. Nothing of another run is in it, not even where the search begins."""
    ahead = [one for part in _by_family(ends_ahead(runs)).values() for one in _spread_out(part)]
    start = with_constants(START, constants_by_source(runs, START))
    prior = with_shared(start, _searched(pool, start, ahead))
    return with_constants(prior, constants_by_source(runs, prior))


def constants_by_source(runs: Sequence[Run], wide: Prior) -> pd.DataFrame:
    """A row for each source: the constants of its families, averaged; `wide` tells what all families share."""
    wide = START._replace(
        time_exponent=wide.time_exponent,
        decay_exponent=wide.decay_exponent,
        peak_exponent=wide.peak_exponent,
        log_b=wide.log_b,
    )
    rows = []
    for source in sorted({run.source for run in runs}):
        families = sorted({run.family for run in runs if run.source == source})
        learnt_of = [
            _constants([run.history for run in runs if run.family == family and run.is_usual], wide)
            for family in families
        ]
        rows.append(
            {"source": source} | {name: float(pd.Series([one[name] for one in learnt_of]).mean()) for name in CONSTANTS}
        )
    return pd.DataFrame(rows).set_index("source")


def _constants(family: Sequence[TrainingRun], wide: Prior) -> dict[str, float]:
    """As decisions find them: from runs at a point of decision, around a run of middle size; a family of one size tells
    nothing of sizes."""
    sizes = sorted({run.n_parameters for run in family})
    of = max((run for run in family if run.n_parameters == sizes[len(sizes) // 2]), key=lambda run: run.last_step)
    beliefs = Joint(wide).fit([run.first(MOMENT) for run in family], of.first(MOMENT)).laws[0].posterior()
    alone = sizes[-1] < 2 * sizes[0]
    return {name: np.nan if alone and name != "log_alpha" else getattr(beliefs, name).mean for name in CONSTANTS}


def with_constants(prior: Prior, constants: pd.DataFrame) -> Prior:
    """The prior with the beliefs on `CONSTANTS` that these sources teach."""
    beliefs = {}
    for name, stated in CONSTANTS.items():
        values = constants[name].dropna().to_numpy(np.float64)
        squares = float(np.sum((values - values.mean()) ** 2))
        variance = (STATED * stated**2 + squares) / (STATED + len(values) - 1)
        width = float(np.sqrt(variance * (1 + 1 / len(values))))
        beliefs[name] = Gaussian(float(values.mean()), width)
    return prior._replace(**beliefs)  # type: ignore[arg-type]  # only fields that are beliefs


def with_shared(prior: Prior, centres: np.ndarray) -> Prior:
    """The prior with these centres of `SHARED`."""
    values = {name: _moved(getattr(prior, name), float(x)) for name, x in zip(SHARED, centres, strict=True)}
    return prior._replace(**values)  # type: ignore[arg-type]  # a belief stays one


def _moved(value: Gaussian | float, centre: float) -> Gaussian | float:
    return value._replace(mean=centre) if isinstance(value, Gaussian) else centre


def shared_of(prior: Prior) -> np.ndarray:
    """The centres of `SHARED`."""
    values = [getattr(prior, name) for name in SHARED]
    return np.array([value.mean if isinstance(value, Gaussian) else value for value in values])


def _searched(pool: Executor, prior: Prior, ahead: Sequence[Ahead], tries: int = TRIES) -> np.ndarray:
    """The centres of `SHARED` under which the ends were the most likely, by the simplex of Nelder and Mead."""
    start = shared_of(prior)
    steps = np.diag([0.06, 0.06, 0.06, 0.15, 0.3])
    solution = minimize(
        lambda x: unlikely(pool, with_shared(prior, x), ahead),
        start,
        method="Nelder-Mead",
        options={"maxfev": tries, "initial_simplex": np.vstack([start, start + steps]), "fatol": 1e-4},
    )
    return np.asarray(solution.x)


def unlikely(pool: Executor, prior: Prior, ahead: Sequence[Ahead]) -> float:
    """Minus the log density of the ends as the learnt law alone forecasts them, and of what was stated; a mean over sources
    of means over families."""
    if not (0 < prior.time_exponent.mean < 2 and 0 < prior.decay_exponent.mean < 2):
        return np.inf
    values = list(pool.map(_surprise, ahead, [prior] * len(ahead), chunksize=8))
    table = pd.DataFrame([(one.source, one.family) for one in ahead], columns=["source", "family"])
    by_family = table.assign(value=values).groupby(["source", "family"])["value"].mean()
    by_source = by_family.groupby("source").mean()
    away = (shared_of(prior) - shared_of(START)) / [*SHARED.values()]
    return float(by_source.mean() + 0.5 * np.sum(away**2) / len(by_source))


def _surprise(ahead: Ahead, prior: Prior) -> float:
    values, covariance = FamilyLaw(prior, [ahead.now]).predict([ahead.now.target()])
    spread = float(np.hypot(np.sqrt(covariance[0, 0]), END_SCATTER))
    off = (ahead.end - values[0]) / spread
    return float(np.log(spread) + 0.5 * (DEGREES_OF_FREEDOM + 1) * np.log1p(off**2 / DEGREES_OF_FREEDOM))


def as_row(prior: Prior) -> dict[str, float]:
    """Every number of a prior, by name: of a belief its centre, and its width as NAME_width."""
    row: dict[str, float] = {}
    for name, value in prior._asdict().items():
        if isinstance(value, Gaussian):
            row |= {name: value.mean, f"{name}_sd": value.sd}
        else:
            row[name] = value
    return row


def priors(table: pd.DataFrame) -> dict[str, Prior]:
    """The prior for each source, learnt without it; for `NONE` the one learnt from all."""
    return {
        str(left_out): _of_row({str(name): row[name] for name in row})
        for left_out, row in table.to_dict("index").items()
    }


def _of_row(row: Mapping[str, float]) -> Prior:
    numbers = {
        name: Gaussian(row[name], row[f"{name}_sd"]) if f"{name}_sd" in row else row[name] for name in Prior._fields
    }
    return Prior(**numbers)  # type: ignore[arg-type]  # beliefs have a width


def _by_family(ahead: Sequence[Ahead]) -> dict[str, list[Ahead]]:
    parts: dict[str, list[Ahead]] = {}
    for one in ahead:
        parts.setdefault(one.family, []).append(one)
    return parts


def _spread_out(ahead: Sequence[Ahead]) -> list[Ahead]:
    """At most `MOST_OF_A_FAMILY` of them, evenly spaced."""
    places = np.unique(np.linspace(0, len(ahead) - 1, min(len(ahead), MOST_OF_A_FAMILY)).round().astype(int))
    return [ahead[place] for place in places]
