"""What `test_metric` asks of a metric, which metrics answer nothing by what they are, and the words of an answer."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd

from toposcale.analysis.controls import LEVEL, NO, NOT_TESTED, YES
from toposcale.analysis.metric_input import STEP, MetricTable
from toposcale.analysis.sensitivity import POWER_WANTED
from toposcale.analysis.series import MIN_FOR_CORRELATION
from toposcale.io.errors import counted
from toposcale.statistics.coefficients import pearson, spearman
from toposcale.statistics.multiple_testing import benjamini_hochberg

PLACEBOS = 200
CONTROLS_DRAWN = 100
MAX_RATE = 0.07
"""False-positive rate of the placebos above which, by two standard errors, nothing is tested."""
COPY = 1.0 - 1e-9
"""Correlation from which on a metric is a copy of the loss, or of a covariate."""
COPY_LAGS = range(-3, 4)
HALF_WIDTH = 1.959964


class Question(StrEnum):
    """What is asked of a metric."""

    WITHIN = "within runs"
    AHEAD = "ahead"
    BETWEEN = "between runs"
    SEEDS = "between seeds"
    SETTINGS = "between settings"


def answered(rows: pd.DataFrame) -> pd.DataFrame:
    """Add q over the metrics, and the answer; what has a reason is not tested."""
    p = np.where(rows["reason"] == "", rows["p"], np.nan)
    q = benjamini_hochberg(p)
    answers = np.where(np.isnan(q), NOT_TESTED, np.where(q <= LEVEL, YES, NO))
    return rows.assign(p=p, q=q, answer=answers)


def given_words(data: MetricTable) -> str:
    """Name what is held fixed."""
    return ", ".join([STEP, *data.given])


def untestable(data: MetricTable, metric: str, *, by_run: bool = True) -> str:
    """Return why a metric says nothing by what it is: constant, a covariate, the loss, or a copy of it; "" if it may.

    by_run: a metric has to vary within runs.
    """
    if metric == data.target:
        return "it is the loss itself"
    if metric in data.given:
        return "it is among the covariates"
    rows = data.rows.dropna(subset=[metric, data.target])
    if rows.empty:
        return f"no step has both a number of it and of {data.target}"
    if not (rows.groupby("run" if by_run else np.zeros(len(rows)))[metric].nunique() > 1).any():
        return "it is constant"
    for other in (data.target, *data.given):
        lags = {lag for lag in COPY_LAGS if _is_copy(data.rows, metric, other, lag)}
        if lags:
            lag = min(lags, key=abs)
            shifted = f", shifted by {counted(abs(lag), 'row')}" if lag else ""
            return f"it is a copy of {other}{shifted}, up to its scale"
    return ""


def _is_copy(rows: pd.DataFrame, metric: str, other: str, lag: int) -> bool:
    """Return whether in every run a metric is a linear function of a column, or of one that does not drift a monotonic."""
    for _, of_run in rows.groupby("run"):
        x, y = of_run[metric].to_numpy(np.float64), of_run[other].shift(lag).to_numpy(np.float64)
        x, y = x[np.isfinite(x + y)], y[np.isfinite(x + y)]
        if len(x) < MIN_FOR_CORRELATION:
            return False
        is_drift = len({*np.sign(np.diff(y))}) == 1
        correlations = [pearson(x, y)[0, 0], 0.0 if lag or is_drift else spearman(x, y)[0, 0]]
        if not np.nanmax(np.abs([0.0, *correlations])) > COPY:
            return False
    return True


def sentence(row: Mapping[Any, Any], ahead: int, share: float) -> str:
    """Say an answer in a sentence."""
    if row["answer"] == NOT_TESTED:
        return f"Not tested: {row['reason']}."
    what = {
        Question.WITHIN: f"follows the {row['target']} beyond {row['given']} and the past of both",
        Question.AHEAD: f"tells the {row['target']} {counted(ahead, 'checkpoint')} later beyond that so far",
    }.get(row["question"], f"at {share:.0%} tells the last {row['target']} of a run beyond that so far")
    if row["answer"] == YES:
        interval = f", 95% interval {row['low']:.2f} to {row['high']:.2f}" if np.isfinite(row["low"]) else ""
        return f"Yes: it {what} (correlation {row['estimate']:.2f}{interval}, q = {row['q']:.2g})."
    could = f"a correlation of {row['detectable']:.2f} or more would be found in {POWER_WANTED:.0%} of such tables"
    return f"No sign that it {what} (correlation {row['estimate']:.2f}, q = {row['q']:.2g}); {could}."
