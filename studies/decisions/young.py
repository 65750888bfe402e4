"""Forecasts of young runs, which the program refuses: how often their intervals hold, before the first age and after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from unittest.mock import patch

import numpy as np
import pandas as pd

from toposcale.forecasting.decision.decision_points import judged_runs, spread_out
from toposcale.forecasting.evaluation import expected_end
from toposcale.forecasting.laws import joint
from toposcale.forecasting.laws import priors as constants
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.prior_table import NONE
from toposcale.forecasting.laws.priors import Prior
from toposcale.forecasting.laws.published_law import refuse_young
from toposcale.forecasting.runs.published_run import PublishedRun
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import NoForecast

STEPS = (100, 200, 400, 700, 1_000, 2_000, 4_000, 6_000)
MAX_OF_A_FAMILY = 6
LEFT_ASIDE = "jax-scaling-laws"
"""A source of five noisy runs of one text of 100M tokens."""

EDGES = (0, 0.05, 0.1, 0.2, 0.5)
TOKENS = (0, 5e6, 1e7, 2e7, 5e7, 1e8, 5e8, np.inf)
LEAST = "with the least prior"


def young_forecasts(runs: Sequence[PublishedRun], priors: Mapping[str, Prior]) -> pd.DataFrame:
    """A row for each run and step: source, step, tokens, is_young, error and inside, and these with the least prior.

    The least prior of what is left to lose is that of old runs at any age.
    """
    judged = [run for run in judged_runs(runs) if not run.kind and run.source != LEFT_ASIDE]
    families = dict.fromkeys(run.family for run in judged)
    some = [spread_out([run for run in judged if run.family == family], MAX_OF_A_FAMILY) for family in families]
    return pd.DataFrame(
        row for part in some for run in part for row in _rows(run, priors.get(run.source, priors[NONE]))
    )


def _rows(run: PublishedRun, prior: Prior) -> Iterator[dict[str, object]]:
    end = expected_end(run)
    for step in STEPS:
        if step > run.final_step / 2:
            return
        share = step / run.final_step
        now = run.first(share)
        row = {"source": run.source, "share": share, "tokens": step * now.tokens_per_step, "is_young": _is_young(now)}
        with patch.object(joint, "refuse_young", lambda run: None):
            judged = _judged(now, prior, end)
            with patch.object(constants, "REDUCIBLE_SHARE", 0.0):
                least = _judged(now, prior, end)
        if judged:
            yield row | judged | {f"{name}, {LEAST}": value for name, value in least.items()}


def _judged(now: TrainingRun, prior: Prior, end: float) -> dict[str, float]:
    """The error of the forecast and whether its interval holds; empty where the program refuses it for another reason."""
    try:
        forecast = Joint(prior).fit(now).forecast(now)
    except NoForecast:
        return {}
    return {"error": abs(forecast.value - end), "inside": float(forecast.low <= end <= forecast.high)}


def _is_young(now: TrainingRun) -> bool:
    try:
        refuse_young(now)
    except NoForecast:
        return True
    return False


def young_table(forecasts: pd.DataFrame) -> pd.DataFrame:
    """Number and means of the forecasts: before the first age and after it, of all, by source and by the share of the
    training that was seen, and by tokens seen."""
    age = np.where(forecasts["is_young"], "before", "after")
    shares = pd.cut(forecasts["share"], EDGES).astype(str) + " of the run, "
    tokens = pd.cut(forecasts["tokens"], TOKENS).astype(str) + " tokens"
    parts = (age, forecasts["source"] + ", " + age, shares + age, tokens)
    rows = pd.concat([forecasts.assign(part=part) for part in parts])
    numbers = [name for name in forecasts if str(name).startswith(("error", "inside"))]
    grouped = rows.groupby("part", sort=False)
    return grouped[numbers].mean().join(grouped.size().rename("n")).reset_index()
