"""Forecasts of the ends of the published runs, each from a share of itself, and how good they are by source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from studies.decisions import single_threaded
from toposcale.datasets.contestants import CONTESTANTS, JOINT
from toposcale.forecasting import evaluation
from toposcale.forecasting.decision.decision_points import SHARES
from toposcale.forecasting.evaluation import Known
from toposcale.forecasting.laws.law import Estimator
from toposcale.forecasting.laws.prior_table import LearntJoint
from toposcale.forecasting.laws.priors import Prior
from toposcale.forecasting.laws.record import RECORD_KEY, size_decade
from toposcale.forecasting.runs.published_run import PublishedRun

OTHERS = ("multi_power_law", "power_law")
ALONE, ONE_KNOWN = Known.ALONE.value, Known.ONE_SMALLER.value


def forecasts_of(runs: Sequence[PublishedRun], priors: Mapping[str, Prior], processes: int = 2) -> pd.DataFrame:
    """A row for every judged run, share and method: its forecasts, method and known.

    priors: by source, learnt without it.
    """
    laws: dict[tuple[str, Known], Estimator] = {(JOINT, known): LearntJoint(priors) for known in Known}
    laws |= {(name, Known.ALONE): CONTESTANTS[name]() for name in OTHERS}
    tables = []
    with single_threaded(processes) as pool:
        for (method, known), law in laws.items():
            learnt = evaluation.learnt_laws(law, runs)
            subjects = evaluation.subjects_of(runs, SHARES, known)
            tasks, _ = evaluation.tasks_of(learnt, subjects, SHARES)
            rows = evaluation.judged_of(pool.map(evaluation.forecasts_of_run, tasks, chunksize=4)).forecasts
            tables.append(rows.assign(method=method, known=known.value).drop(columns="seconds"))
    rows = pd.concat([table for table in tables if len(table)], ignore_index=True)
    return rows.sort_values(["source", "family", "run", "share", "method", "known"], ignore_index=True)


def with_smaller(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each source: decision points that are forecast both alone and with a smaller run, the interval score of
    each, and their ratio. Families of a source count the same; unusual shapes are a source of their own."""
    key = ["source", "family", "run", "share"]
    rows = rows.assign(source=rows["source"].where(rows["usual"], rows["source"] + ", other shapes"))
    scores = evaluation.measured(rows[rows["method"] == JOINT]).pivot(index=key, columns="known", values="score")
    if ONE_KNOWN not in scores:
        return pd.DataFrame()
    both = scores[[ALONE, ONE_KNOWN]].dropna()
    table = both.groupby(key[:2]).mean().groupby("source").mean()
    table.insert(0, "n", both.groupby("source").size())
    return table.assign(ratio=table[ONE_KNOWN] / table[ALONE]).reset_index()


def record(rows: pd.DataFrame, runs: Sequence[PublishedRun]) -> pd.DataFrame:
    """A row for each decade of sizes, optimizer and share: how many forecasts of next-token runs were made with nothing
    else known and their source left out, their mean error, and the share of the ends inside their intervals."""
    facts = {run.model: {"decade": size_decade(run.n_parameters), "optimizer": run.facts.optimizer} for run in runs}
    kept = rows["method"].eq(JOINT) & rows["known"].eq(ALONE) & rows["run"].isin([r.model for r in runs if not r.kind])
    kept_rows = evaluation.measured(rows[kept])
    table = kept_rows.join(pd.DataFrame.from_dict(facts, orient="index"), on="run").groupby([*RECORD_KEY])
    return table.agg(n=("run", "size"), mean_error=("mean_error", "mean"), coverage=("coverage", "mean")).reset_index()


def by_source(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each method, source and what was known: forecasts, the share that is refused, mean error and bias, the
    share of truths inside the 95% interval, and the mean interval score."""
    key = ["method", "known"]
    table = evaluation.by_source(rows, key).rename(columns={"coverage": "inside"})
    return table.sort_values(key, kind="stable", ignore_index=True)
