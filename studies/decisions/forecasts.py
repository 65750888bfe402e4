"""Forecasts of the ends of the published runs, each from a share of itself alone, and how good they are by source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from studies.decisions import single_threaded
from studies.decisions.judge import PARTS
from studies.decisions.priors import NONE
from studies.decisions.published import SHARES, judged_runs
from toposcale.analysis.methods import forecast, make
from toposcale.forecasting.laws.joint import LEAST_SIZE_RATIO, Joint
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.laws.priors import Prior
from toposcale.forecasting.runs.published_run import PublishedRun
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import NoForecast

JOINT = "joint"
METHODS = (JOINT, "multi_power_law", "power_law")
ALONE, ONE_KNOWN = "alone", "one smaller run known"

LAST = 0.02
"""Last share of the steps, whose mean loss is forecast."""

PENALTY = 40
"""What the interval score adds to the width of a 95% interval: so many times what the truth lies outside (Gneiting and
Raftery 2007, 2 / 0.05)."""


def forecasts_of(
    runs: Sequence[PublishedRun], priors: Mapping[str, Prior], methods: Sequence[str] = METHODS, processes: int = 2
) -> pd.DataFrame:
    """A row for every judged run, share and method, the work shared by some processes.

    Columns: run, source, family, usual, share, method, known, forecast, low, high, actual, reason. A forecast that the
    program refuses has its reason and no numbers. known: what was read beside the run. priors: by source, learnt without
    it.
    """
    judged = judged_runs(runs)
    parts = [judged[place::PARTS] for place in range(PARTS)]
    with single_threaded(processes) as pool:
        tables = pool.map(_table, parts, [list(runs)] * PARTS, [priors] * PARTS, [tuple(methods)] * PARTS)
        rows = pd.concat([table for table in tables if len(table)], ignore_index=True)
    return rows.sort_values(["source", "family", "run", "share", "method", "known"], ignore_index=True)


def _table(
    some: Sequence[PublishedRun], runs: Sequence[PublishedRun], priors: Mapping[str, Prior], methods: Sequence[str]
) -> pd.DataFrame:
    return pd.DataFrame(list(_rows(some, runs, priors, methods)))


def _rows(
    some: Iterable[PublishedRun], runs: Sequence[PublishedRun], priors: Mapping[str, Prior], methods: Sequence[str]
) -> Iterator[dict[str, object]]:
    for run in some:
        prior, smaller = priors.get(run.source, priors[NONE]), smaller_run(run, runs)
        source = f"{run.source}, {run.kind}" if run.kind else run.source
        facts = {"run": run.model, "source": source, "family": run.family, "usual": run.is_usual}
        for share in SHARES:
            now = run.first(share)
            point = facts | {"share": share, "actual": expected_end(run)}
            for method in methods:
                known = ((ALONE, None), (ONE_KNOWN, smaller)) if method == JOINT else ((ALONE, None),)
                for what, other in known:
                    if what == ALONE or other is not None:
                        end = _joint(now, other, prior) if method == JOINT else forecast(make(method), now)
                        yield point | {"method": method, "known": what} | _told(end)


def expected_end(whole: TrainingRun) -> float:
    """The loss that an interval is about: the mean of the last rows of a finished run, without the noise of one step."""
    return float(np.mean(whole.losses[whole.steps >= (1 - LAST) * whole.steps[-1]]))


def _joint(now: TrainingRun, other: TrainingRun | None, prior: Prior) -> Prediction:
    try:
        return Joint(prior).fit(now, [] if other is None else [other]).forecast(now)
    except NoForecast as error:
        return Prediction.none(str(error))


def _told(end: Prediction) -> dict[str, object]:
    return {"forecast": end.value, "low": end.low, "high": end.high, "reason": end.reason}


def smaller_run(run: PublishedRun, runs: Sequence[PublishedRun]) -> TrainingRun | None:
    """The largest smaller run that the law reads, of a family and shape of schedule, that had no more tokens, as it is
    known to who tried a smaller size first. None: there is none."""
    known = [
        other
        for other in runs
        if (other.family, other.shape) == (run.family, run.shape)
        and other.n_parameters * LEAST_SIZE_RATIO <= run.n_parameters
        and other.tokens <= run.tokens
        and other.is_usual
    ]
    longest = max(known, key=lambda other: (other.n_parameters, other.tokens, other.model), default=None)
    return None if longest is None else longest


def judged(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a forecast, with their error, inside (1 or 0) and score."""
    kept = rows[rows["reason"] == ""]
    outside = np.maximum(kept["low"] - kept["actual"], 0) + np.maximum(kept["actual"] - kept["high"], 0)
    return kept.assign(
        error=kept["forecast"] - kept["actual"],
        inside=(outside == 0).astype(float),
        score=kept["high"] - kept["low"] + PENALTY * outside,
    )


def with_smaller(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each source: decision points that are forecast both alone and with a smaller run, the interval score of
    each, and their ratio. Families of a source count the same; unusual shapes are a source of their own."""
    key = ["source", "family", "run", "share"]
    rows = rows.assign(source=rows["source"].where(rows["usual"], rows["source"] + ", other shapes"))
    scores = judged(rows[rows["method"] == JOINT]).pivot(index=key, columns="known", values="score")
    if ONE_KNOWN not in scores:
        return pd.DataFrame()
    both = scores[[ALONE, ONE_KNOWN]].dropna()
    table = both.groupby(key[:2]).mean().groupby("source").mean()
    table.insert(0, "n", both.groupby("source").size())
    return table.assign(ratio=table[ONE_KNOWN] / table[ALONE]).reset_index()


def by_source(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each method, source and what was known: forecasts, the share that is refused, mean error and bias, the
    share of truths inside the 95% interval, and the mean interval score. Families of a source count the same; so do the
    sources, in the rows of all."""
    kept = judged(rows)
    kept = kept.assign(mean_error=kept["error"].abs(), bias=kept["error"])
    key, numbers = ["method", "known", "source"], ["mean_error", "bias", "inside", "score"]
    of_sources = kept.groupby([*key, "family"])[numbers].mean().groupby(key).mean()
    counts = rows.assign(refused=(rows["reason"] != "").astype(float)).groupby(key)
    table = counts.agg(n=("run", "size"), refused=("refused", "mean")).join(of_sources).reset_index()
    means = table.groupby(key[:2], as_index=False)[["refused", *numbers]].mean()
    totals = table.groupby(key[:2], as_index=False)["n"].sum()
    return pd.concat([table, means.merge(totals).assign(source="all")], ignore_index=True).sort_values(
        key[:2], kind="stable", ignore_index=True
    )
