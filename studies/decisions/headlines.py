"""The means that README and docs/decisions.md quote: of decisions by scope and policy, and of forecasts by method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import scipy.stats

from studies.decisions.forecasts import ALONE, OTHERS
from studies.decisions.judge import EXPECTED_REGRET, interval_over_sizes
from toposcale.datasets.contestants import JOINT
from toposcale.forecasting.evaluation import GROUP, WITH_SMALLER, measured
from toposcale.forecasting.laws.priors import SIZES_KNOWN
from toposcale.forecasting.runs.published_run import PublishedRun

METHODS = (JOINT, *OTHERS)
KNOWN, SURFACE = "smaller sizes known", "published scaling law"
"""Comparisons of `regret_differences`."""

MANY_FORECASTS = 20
"""Forecasts of a source from which on its mean error counts in the headline. It was chosen after the sources were seen."""


def scopes(table: pd.DataFrame) -> dict[str, pd.Series]:
    """The rows of each scope of a table with the columns of `GROUP` and `source`."""
    usual, alone = table["usual"].astype(bool), table["setting"] == ALONE
    smaller, gemstones = table["setting"] == WITH_SMALLER, table["source"] == "gemstones"
    return {
        "all shapes": usual | ~usual,
        "usual shapes": usual,
        "usual shapes, alone": usual & alone,
        "usual shapes, with smaller sizes": usual & smaller,
        "usual shapes, gemstones": usual & gemstones,
        "usual shapes, other sources": usual & ~gemstones,
        "other shapes": ~usual,
        "other shapes, alone": ~usual & alone,
        "other shapes, with smaller sizes": ~usual & smaller,
    }


def policy_means(policies: pd.DataFrame, sources: Mapping[str, str]) -> pd.DataFrame:
    """A row for each scope and policy: groups, sources, decisions, the means of regret and share_best over the groups, and
    the regret of the advice less that of the policy, with a 95% interval of Student's t over the groups.

    sources: the source of each family.
    """
    table = policies.assign(source=policies["family"].map(sources))
    regrets = policies.pivot_table(index=GROUP, columns="policy", values="regret")
    less = regrets.rsub(regrets[EXPECTED_REGRET], axis=0)
    rows = []
    for scope, inside in scopes(table).items():
        for policy, part in table[inside].groupby("policy"):
            difference = less[policy].reindex(pd.MultiIndex.from_frame(part[GROUP])).dropna()
            interval = (np.nan, np.nan)
            if len(difference) > 1 and policy != EXPECTED_REGRET:
                interval = scipy.stats.t.interval(0.95, len(difference) - 1, difference.mean(), difference.sem())
            rows.append(
                {"scope": scope, "policy": policy, "groups": len(part), "sources": part["source"].nunique()}
                | {"decisions": part["n_decisions"].sum(), "regret": part["regret"].mean()}
                | {"share_best": part["share_best"].mean(), "advice_less": difference.mean()}
                | {"advice_less_low": interval[0], "advice_less_high": interval[1]}
            )
    return pd.DataFrame(rows)


def regret_differences(decisions: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """A row for each source and comparison: decisions, the mean difference of their regrets, and its 95% interval.

    The advice with smaller sizes known less that without (`KNOWN`), and less the published scaling law (`SURFACE`), on the
    same decisions. Unusual shapes are a source of their own. The interval is by resampling sizes of base runs.
    """
    source = decisions["source"].where(decisions["usual"].astype(bool), decisions["source"] + ", other shapes")
    rows = decisions.assign(source=source, knows_smaller=decisions["setting"].str.endswith(WITH_SMALLER))
    rows["setting"] = rows["setting"].str.removesuffix(WITH_SMALLER).str.removesuffix(ALONE)
    key = ["source", *GROUP, "decision", "base_size"]
    regrets = rows.pivot(index=[*key, "knows_smaller"], columns="policy", values="regret")
    known = regrets[EXPECTED_REGRET].unstack("knows_smaller")
    differences = {KNOWN: known[True] - known[False], SURFACE: regrets[EXPECTED_REGRET] - regrets["chinchilla"]}
    table = []
    for comparison, difference in differences.items():
        for name, part in difference.dropna().rename("less").reset_index().groupby("source"):
            low, high = interval_over_sizes(part, "less", resamples, seed)
            row = {"source": name, "comparison": comparison, "decisions": len(part), "difference": part["less"].mean()}
            table.append(row | {"low": low, "high": high})
    return pd.DataFrame(table)


def confident_answers(groups: pd.DataFrame, sources: Mapping[str, str]) -> pd.DataFrame:
    """A row for each scope: groups, decisions, the confident answers and those of them that chose the best candidate."""
    table = groups.assign(source=groups["family"].map(sources), answers=groups["decisions"] * groups["confident"])
    table["right"] = (table["answers"] * table["confident_right"]).fillna(0)
    return pd.DataFrame(
        {"scope": scope, "groups": int(inside.sum()), "decisions": table.loc[inside, "decisions"].sum()}
        | {name: round(table.loc[inside, name].sum()) for name in ("answers", "right")}
        for scope, inside in scopes(table).items()
    )


def forecast_means(forecasts: pd.DataFrame) -> pd.DataFrame:
    """A row for each scope and method, of forecasts from a run's own curve: sources, points, those that are answered, means
    over sources of the share that is refused, the error, the score and the coverage, the coverage over points, the number
    of sources in which it is 100% (sources_covered), and the error on the points that all methods answer (common_error).

    Scopes: the sources of pretraining with at least `MANY_FORECASTS` forecasts, and all sources of pretraining.
    """
    key, alone = ["source", "family", "run", "share"], forecasts[forecasts["known"] == ALONE]
    alone = alone[~alone["source"].str.contains(", ")]
    answered = measured(alone).assign(size=lambda rows: rows["error"].abs())
    n_methods = answered.groupby(key)["method"].transform("nunique")
    counts = alone[alone["method"] == JOINT].groupby("source").size()
    rows = []
    for scope, least in (("many forecasts", MANY_FORECASTS), ("all", 1)):
        some = counts.index[counts >= least]
        for method in METHODS:
            asked = alone[(alone["method"] == method) & alone["source"].isin(some)]
            kept = answered[(answered["method"] == method) & answered["source"].isin(some)]
            common = kept[n_methods.loc[kept.index] == len(METHODS)]
            covered = kept.groupby("source")["coverage"].mean()
            refused = 1 - kept.groupby("source").size().reindex(some, fill_value=0) / counts[some]
            rows.append(
                {"scope": scope, "method": method, "sources": len(some), "points": len(asked)}
                | {"answered": len(kept), "refused": refused.mean(), "mean_error": _by_source(kept, "size")}
                | {"score": _by_source(kept, "score"), "coverage": _by_source(kept, "coverage")}
                | {"point_coverage": kept["coverage"].mean()}
                | {"sources_covered": int((covered == 1).sum()), "common_points": len(common)}
                | {"common_sources": common["source"].nunique(), "common_error": _by_source(common, "size")}
            )
    return pd.DataFrame(rows)


def _by_source(rows: pd.DataFrame, column: str) -> float:
    """The mean over sources, in each of which families count the same."""
    return float(rows.groupby(["source", "family"])[column].mean().groupby("source").mean().mean())


def run_counts(runs: Sequence[PublishedRun]) -> pd.DataFrame:
    """One row: runs, sources, the smallest and the largest size, and the runs below and above `SIZES_KNOWN`."""
    sizes, (least, most) = np.array([run.n_parameters for run in runs]), SIZES_KNOWN
    row = {
        "runs": len(runs),
        "sources": len({run.source for run in runs}),
        "smallest": sizes.min(),
        "largest": sizes.max(),
    }
    return pd.DataFrame([row | {"below": (sizes < least).sum(), "above": (sizes > most).sum()}])
