"""Judge any law on finished runs: errors, intervals, refusals, and the regret of the decisions that follow.

What a law may see is cut here. It is fitted to a run as it stood at a decision point, without a row of a later step; it
learns from other sources only; and of the family of the run it is given what `Known` says.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from enum import StrEnum
from time import process_time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toposcale.forecasting.decision.advice import refuse_choice
from toposcale.forecasting.decision.candidates import CONTINUE, Decision, WeighedCandidate, decide
from toposcale.forecasting.decision.decision_points import SHARES, DecisionPoint, Start, judged_points, judged_runs
from toposcale.forecasting.laws.joint import MIN_SIZE_RATIO, Joint
from toposcale.forecasting.laws.law import Estimator, Law
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.runs.published_run import CONSTANT, PublishedRun
from toposcale.forecasting.runs.training_run import Target, TrainingRun
from toposcale.io.errors import NoForecast, UserError

if TYPE_CHECKING:
    import pandas as pd

LAST = 0.02
"""Last share of the steps, whose mean loss is forecast."""

PENALTY = 40
"""Weight in the interval score of the distance of the truth to a 95% interval: 2 / 0.05 (Gneiting and Raftery 2007)."""

RESAMPLES = 2_000
"""Resamples of the sources."""

SEED = 42
"""Seed of their draws."""

WITH_SMALLER = "with smaller sizes"
"""Setting of decisions of which the smaller sizes of the family are known."""

SEVERAL = "several"
"""Setting of decisions in which several sizes could be started."""

GROUP = ["family", "shape", "setting", "usual"]
"""Columns of a group of decisions, over which the regret is averaged first."""

MEASURES = ["mean_error", "bias", "coverage", "score"]
"""Columns of `evaluate` about the forecasts that are made."""


class Known(StrEnum):
    """Knowledge of the family of a run when it is forecast."""

    ALONE = "alone"
    ONE_SMALLER = "one smaller run known"


class Judged(NamedTuple):
    """Every forecast and every decision of a law.

    Parameters
    ----------
    forecasts : DataFrame
        A row for each run and decision point: run, source, family, usual, share, forecast, low, high, actual, reason (of a
        refusal, else ""), seconds.
    decisions : DataFrame
        A row for each decision: the columns of `GROUP`, decision, source, choice, regret, answered.
    """

    forecasts: "pd.DataFrame"
    decisions: "pd.DataFrame"


class Subjects(NamedTuple):
    """Runs that are forecast and points that are decided on, each with the finished runs that are known with it."""

    runs: list[tuple[PublishedRun, tuple[TrainingRun, ...]]]
    points: list[tuple[DecisionPoint, tuple[TrainingRun, ...]]]


class Task(NamedTuple):
    """Forecasts of one run, or the decisions at one point, and the law that has learnt without its source."""

    law: Estimator
    subject: PublishedRun | DecisionPoint
    others: tuple[TrainingRun, ...]
    at: tuple[float, ...]


def evaluate(
    law: Estimator, runs: Sequence[PublishedRun], at: Sequence[float] = SHARES, *, known: Known = Known.ALONE
) -> "pd.DataFrame":
    """Judge a law on finished runs.

    Parameters
    ----------
    law : estimator
        Law with `fit(run, others)` and `predict(targets)`; it is copied for each decision point.
    runs : sequence of PublishedRun
        Finished runs. Those that decay are forecast, of each family at most 40.
    at : sequence of float
        Shares of the steps that the law sees.
    known : Known
        What the law is given of the family of the run: nothing, or the largest smaller run, finished.

    Returns
    -------
    DataFrame
        A row for each source and decision point; `at` is NaN in rows over all of them. The source "all" is the mean over
        sources, with 95% intervals (columns _low and _high) by resampling sources. Columns: n, answered and refused (a
        share) of the forecasts; mean_error (absolute) and bias in nats per token, coverage of the 95% intervals and their
        interval score; regret of the decisions between usual shapes, nats per token, NaN where the law makes none.

    Raises
    ------
    UserError
        If the law fails otherwise than by NoForecast.

    References
    ----------
    Gneiting and Raftery 2007 (interval score).

    Examples
    --------
    >>> from toposcale.datasets import load_published_runs
    >>> from toposcale.forecasting import PowerLaw, evaluate
    >>> runs = load_published_runs("modded-nanogpt")
    >>> table = evaluate(PowerLaw(), runs, at=[0.5])
    >>> table[["source", "n", "refused"]].iloc[0].to_list()
    ['modded-nanogpt', 9, 0.0]
    """
    forecasts, decisions = tasks_of(learnt_laws(law, runs), subjects_of(runs, at, known), at)
    return summary(judged_of(map(forecasts_of_run, forecasts), map(decisions_of_point, decisions)))


def judged_of(forecasts: Iterable[list[dict[str, Any]]], decisions: Iterable[list[dict[str, Any]]] = ()) -> Judged:
    """Return the tables of the rows of all tasks."""
    import pandas as pd

    tables = [
        pd.DataFrame([row for rows in parts for row in rows], columns=columns).sort_values(order, ignore_index=True)
        for parts, columns, order in (
            (forecasts, FORECAST_COLUMNS, ["source", "family", "run", "share"]),
            (decisions, DECISION_COLUMNS, [*GROUP, "decision"]),
        )
    ]
    return Judged(*tables)


FORECAST_COLUMNS = ["run", "source", "family", "usual", "share", "actual"]
FORECAST_COLUMNS += ["forecast", "low", "high", "reason", "seconds"]
DECISION_COLUMNS = [*GROUP, "decision", "source", "choice", "regret", "answered"]


def learnt_laws(law: Estimator, runs: Sequence[PublishedRun]) -> Mapping[str, Estimator]:
    """Return a copy of the law for each source, which has learnt from the runs of all others."""
    laws = {}
    for source in dict.fromkeys(run.source for run in runs):
        laws[source] = deepcopy(law)
        if learn := getattr(laws[source], "learn", None):
            learn([run for run in runs if run.source != source], source)
    return laws


def subjects_of(runs: Sequence[PublishedRun], at: Sequence[float], known: Known) -> Subjects:
    """Return the runs that are forecast and the decision points, each with what is known of its family.

    Of `Known.ONE_SMALLER`: the runs that have a smaller one, and the points with smaller sizes, which are finished.
    """
    if known is Known.ALONE:
        return Subjects([(run, ()) for run in judged_runs(runs)], [(point, ()) for point in judged_points(runs, at)])
    pairs = [(run, smaller_run(run, runs)) for run in judged_runs(runs)]
    points = [(point, point.smaller) for point in judged_points(runs, at) if point.smaller]
    return Subjects([(run, (smaller,)) for run, smaller in pairs if smaller], points)


def tasks_of(laws: Mapping[str, Estimator], subjects: Subjects, at: Sequence[float]) -> tuple[list[Task], list[Task]]:
    """Return a task for each run that is forecast, and one for each decision point."""
    forecasts = [Task(laws[run.source], run, others, tuple(at)) for run, others in subjects.runs]
    decisions = [Task(laws[point.base.source], point, others, ()) for point, others in subjects.points]
    return forecasts, decisions


def smaller_run(run: PublishedRun, runs: Sequence[PublishedRun]) -> PublishedRun | None:
    """Return the largest smaller run that a law may read, of a family and shape of schedule, with no more tokens.

    It is known to who tried a smaller size first. None: there is none.
    """
    candidates = [
        other
        for other in runs
        if (other.family, other.shape) == (run.family, run.shape)
        and other.n_parameters * MIN_SIZE_RATIO <= run.n_parameters
        and other.tokens <= run.tokens
        and other.is_usual
    ]
    return max(candidates, key=lambda other: (other.n_parameters, other.tokens, other.model), default=None)


def expected_end(whole: TrainingRun) -> float:
    """Return the loss that an interval is about: the mean of the last rows, without the noise of one step."""
    return float(np.mean(whole.losses[whole.steps >= (1 - LAST) * whole.steps[-1]]))


def forecasts_of_run(task: Task) -> list[dict[str, Any]]:
    """Return the rows of a run, one for each share."""
    run = task.subject
    assert isinstance(run, PublishedRun)
    facts = {"run": run.model, "source": run.judged_as, "family": run.family, "usual": run.is_usual}
    rows = []
    for share in task.at:
        now, start = run.first(share), process_time()
        try:
            [end] = _predicted(_fitted(task.law, now, task.others), [now.target()])
        except NoForecast as error:
            end = Prediction.none(str(error))
        numbers = {"forecast": end.value, "low": end.low, "high": end.high, "reason": end.reason}
        rows.append(
            facts | {"share": share, "actual": expected_end(run)} | numbers | {"seconds": process_time() - start}
        )
    return rows


def decisions_of_point(task: Task) -> list[dict[str, Any]]:
    """Return a row for each decision at a point; a law that refuses continues."""
    point = task.subject
    assert isinstance(point, DecisionPoint)
    law, rows = fitted_at(task.law, point, task.others), []
    for starts, setting in alternatives(point, WITH_SMALLER if task.others else Known.ALONE.value):
        decision = decision_of(law, point, starts)
        choice = decision.best.candidate.name if decision else CONTINUE
        losses = {CONTINUE: point.loss} | {start.candidate.name: start.loss for start in starts}
        regret = losses[choice] - min(losses.values())
        rows.append(key_of(point, starts, setting) | {"choice": choice, "regret": regret, "answered": bool(decision)})
    return rows


def alternatives(point: DecisionPoint, setting: str) -> Iterator[tuple[tuple[Start, ...], str]]:
    """Yield the starts that are weighed against finishing, with their setting: each, and at a constant rate all of them."""
    yield from (((start,), setting) for start in point.starts)
    usual = tuple(start for start in point.starts if start.run.is_usual)
    if point.base.shape == CONSTANT and len(usual) > 1 and point.base.is_usual:
        yield usual, f"{SEVERAL}, {setting}"


def key_of(point: DecisionPoint, starts: Sequence[Start], setting: str) -> dict[str, Any]:
    """Return the columns that name a decision and its group."""
    return {
        "family": point.base.family,
        "shape": point.base.shape,
        "setting": setting,
        "usual": point.base.is_usual and all(start.run.is_usual for start in starts),
        "decision": " ".join([point.name, *(start.history.model for start in starts)]),
        "source": point.base.source,
    }


def fitted_at(law: Estimator, point: DecisionPoint, others: Sequence[TrainingRun]) -> Estimator | None:
    """Return the law fitted at a decision point, as the advice trusts it; None where it refuses."""
    try:
        fitted = _fitted(law, point.now, others)
        if isinstance(fitted, Joint):
            refuse_choice(point.now, fitted)
    except NoForecast:
        return None
    return fitted


def decision_of(law: Estimator | None, point: DecisionPoint, starts: Sequence[Start]) -> Decision | None:
    """Return the decision of a fitted law: by expected regret, or the lowest forecast without joint ones; None: refused."""
    if law is None:
        return None
    candidates = [point.continuing, *(start.candidate for start in starts)]
    try:
        if isinstance(law, Law):
            return decide(law, point.now, candidates)
        forecasts = _predicted(law, [candidate.target for candidate in candidates])
    except NoForecast:
        return None
    least = min(forecast.value for forecast in forecasts)
    unknown = Prediction.none("")
    weighed = [
        WeighedCandidate(candidate, forecast, unknown, np.nan, forecast.value - least)
        for candidate, forecast in zip(candidates, forecasts, strict=True)
    ]
    return Decision(tuple(sorted(weighed, key=lambda row: (row.expected_regret, row.candidate.name))))


def _fitted(law: Estimator, now: TrainingRun, others: Sequence[TrainingRun]) -> Estimator:
    """Return a copy of the law that is fitted; UserError: it fails otherwise than by NoForecast."""
    fresh = deepcopy(law)
    try:
        fresh.fit(now, others)
    except (NoForecast, UserError):
        raise
    except Exception as error:
        raise UserError(_failure(law, f"fit to {now.model} at step {now.progress.step:,}", error)) from error
    return fresh


def _predicted(law: Estimator, targets: Sequence[Target]) -> list[Prediction]:
    """Return the forecasts; NoForecast: one has none; UserError: they are not forecasts of a loss, or the law fails."""
    try:
        forecasts = list(law.predict(targets))
    except (NoForecast, UserError):
        raise
    except Exception as error:
        raise UserError(_failure(law, "predict", error)) from error
    if len(forecasts) != len(targets):
        raise UserError(f"{type(law).__name__}: predict gave {len(forecasts)} predictions for {len(targets)} targets")
    for forecast in forecasts:
        if not isinstance(forecast, Prediction):
            raise UserError(f"{type(law).__name__}: predict gave a {type(forecast).__name__}, not a Prediction")
        if forecast.reason or not np.isfinite(forecast.value):
            raise NoForecast(forecast.reason or "its forecast is not a number")
        if forecast.low > forecast.value or forecast.high < forecast.value:
            raise UserError(f"{type(law).__name__}: an interval does not hold its forecast: {forecast:.4g}")
    return forecasts


def _failure(law: Estimator, doing: str, error: Exception) -> str:
    """Return the message of a law that fails."""
    return f"{type(law).__name__}: {doing}: {type(error).__name__}: {error}; a law refuses by raising NoForecast"


def measured(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Return the rows with a forecast, with their error, mean_error (absolute), bias, coverage (1 or 0) and score."""
    kept = rows[rows["reason"] == ""]
    error, width = kept["forecast"] - kept["actual"], kept["high"] - kept["low"]
    outside = np.maximum(kept["low"] - kept["actual"], 0) + np.maximum(kept["actual"] - kept["high"], 0)
    inside = (outside == 0).astype(float).where(width.notna())
    return kept.assign(
        error=error, mean_error=error.abs(), bias=error, coverage=inside, score=width + PENALTY * outside
    )


def by_source(rows: "pd.DataFrame", by: Sequence[str] = ()) -> "pd.DataFrame":
    """Return a row for each source and combination of the columns `by`: n, refused and `MEASURES`.

    Families of a source count the same; so do the sources, in the rows of the source "all".
    """
    import pandas as pd

    key = [*by, "source"]
    of_sources = measured(rows).groupby([*key, "family"], dropna=False)[MEASURES].mean()
    of_sources = of_sources.groupby(key, dropna=False).mean()
    counts = rows.assign(refused=(rows["reason"] != "").astype(float)).groupby(key, dropna=False)
    table = counts.agg(n=("run", "size"), refused=("refused", "mean")).join(of_sources).reset_index()
    parts = table.groupby([*by], dropna=False) if by else table.assign(whole=0).groupby("whole")
    totals = parts[["n"]].sum().join(parts[["refused", *MEASURES]].mean()).reset_index().assign(source="all")
    return pd.concat([table, totals[table.columns]], ignore_index=True)


def regret_by_source(decisions: "pd.DataFrame") -> "pd.DataFrame":
    """Return the sum of the mean regrets of the groups of usual shapes, and their number, by source.

    Empty where the law makes no decision.
    """
    usual = decisions[decisions["usual"].astype(bool)]
    if not usual["answered"].any():
        usual = usual.iloc[:0]
    groups = usual.groupby(["source", *GROUP])["regret"].mean()
    return groups.groupby("source").agg(["sum", "count"])


def summary(judged: Judged) -> "pd.DataFrame":
    """Return the table of `evaluate`."""
    import pandas as pd

    rows = pd.concat([judged.forecasts, judged.forecasts.assign(share=np.nan)])
    table = by_source(rows, ["share"]).rename(columns={"share": "at"})
    table.insert(3, "answered", (table["n"] * (1 - table["refused"])).round().astype(int))
    groups = regret_by_source(judged.decisions)
    over_all = table["at"].isna()
    table["regret"] = table["source"].map(groups["sum"] / groups["count"]).where(over_all)
    is_total = table["source"] == "all"
    table.loc[is_total & over_all, "regret"] = groups["sum"].sum() / groups["count"].sum() if len(groups) else np.nan
    for name in [*MEASURES, "regret"]:
        table[[f"{name}_low", f"{name}_high"]] = np.nan
    for at in table["at"].unique():
        is_at = over_all if np.isnan(at) else table["at"] == at
        for name in MEASURES:
            ends = resampled_mean(table.loc[is_at & ~is_total, name].dropna().to_numpy(np.float64))
            table.loc[is_at & is_total, [f"{name}_low", f"{name}_high"]] = ends
    table.loc[is_total & over_all, ["regret_low", "regret_high"]] = resampled_mean(
        groups["sum"].to_numpy(np.float64), groups["count"].to_numpy(np.float64)
    )
    order = table["source"].where(~is_total, "\uffff")
    return table.iloc[np.lexsort((table["at"].fillna(np.inf), order))].reset_index(drop=True)


def resampled_mean(sums: np.ndarray, counts: np.ndarray | None = None) -> tuple[float, float]:
    """Return the 95% bootstrap interval of a mean over sources (n_sources,); NaN for fewer than two.

    counts: of what each sum is over, where the mean is over these.
    """
    if len(sums) < 2:
        return np.nan, np.nan
    draws = np.random.default_rng(SEED).integers(0, len(sums), (RESAMPLES, len(sums)))
    weights = np.ones(len(sums)) if counts is None else counts
    low, high = np.quantile(sums[draws].sum(axis=1) / weights[draws].sum(axis=1), (0.025, 0.975))
    return float(low), float(high)
