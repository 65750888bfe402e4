"""Verdicts: whether a feature follows the metric, and whether it adds to norm and spectrum; yes, no, or not tested and why.

Corrected together (Benjamini and Hochberg 1995) for each question: the features of whole models (and, apart, of layers)
on one metric over all runs, and the same for each run.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from toposcale.analysis import series
from toposcale.analysis.aligned import aligned_series, warmups_of
from toposcale.analysis.controls import FOLLOWS_RHO, LEVEL, NO, NOT_TESTED, YES, Control, questions
from toposcale.analysis.correlations import RESAMPLES, correlation_tables
from toposcale.analysis.sensitivity import most_common_reason, sensitivity_tables
from toposcale.io import schemas
from toposcale.statistics.coefficients import spearman
from toposcale.statistics.multiple_testing import benjamini_hochberg

POOLED = "pooled"
"""Value of the `model` column in the verdict over all runs."""
REDUNDANT_RHO = 0.95
"""Features whose |Spearman| correlation is at least this move together and count as one group."""


def verdict_tables(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    *,
    seed: int = 42,
    resamples: int = RESAMPLES,
    tasks: Sequence[str] = (),
) -> dict[str, pd.DataFrame]:
    """Make the verdicts and every table behind them from features, metrics and models.

    models: model, and if known warmup_steps, configuration and final_step. tasks: `metrics.tasks`. ValueError: a
    missing column. Yes: q at most `LEVEL`; for following the metric, |Spearman| at least `FOLLOWS_RHO` with one sign in
    every configuration. Features of another run under this one's name give only false positives, which is how `make nulls`
    measures their rate.
    """
    series.require(features=features, metrics=metrics, models=models)
    if set(features["model"].unique()).isdisjoint(metrics["model"]):
        return {}
    headline = series.headline_metric(metrics["metric"], tasks)
    # Metrics of the user are tested as features are; each goes with itself.
    features = pd.concat([features, series.user_metrics(metrics).reindex(columns=features.columns)], ignore_index=True)
    tables = correlation_tables(features, metrics, models, seed=seed, resamples=resamples)
    correlations = {
        name: rows[(rows["source"] != schemas.METRIC_SOURCE) | (rows["feature"] != rows["metric"])]
        for name, rows in tables.items()
    }
    answers = [_answered(control, _correlation_rows(control, **correlations)) for control in questions()]
    verdicts = schemas.TABLES["verdicts"].frame(pd.concat(answers, ignore_index=True))
    judged = pooled_verdicts(verdicts, headline)
    on_headline = metrics[metrics["metric"] == headline]
    return {
        **correlations,
        "verdicts": verdicts,
        "tested_features": tested_features_table(features, on_headline, models, judged),
        **sensitivity_tables(features, on_headline, models, judged, seed=seed),
    }


def pooled_verdicts(verdicts: pd.DataFrame, metric: str | None) -> pd.DataFrame:
    """Return the verdicts that answers rest on: features of whole models, over all runs, on one metric."""
    return series.whole_model(verdicts[(verdicts["model"] == POOLED) & (verdicts["metric"] == metric)])


def _correlation_rows(control: Control, correlations: pd.DataFrame, pooled_correlations: pd.DataFrame) -> pd.DataFrame:
    """Return estimate, range over configurations, p and reason of each run, and of all runs."""
    name = control.estimate
    runs = correlations[correlations["control"] == control.name].rename(columns={"residual_p": "p"})
    runs = runs.assign(lowest=runs[name], highest=runs[name])
    pooled = pooled_correlations[pooled_correlations["control"] == control.name].assign(model=POOLED)
    pooled = pooled.rename(columns={f"{name}_lowest": "lowest", f"{name}_highest": "highest"})
    columns = ["model", *series.PAIR_KEY, "estimate", "lowest", "highest", "p", "reason"]
    return pd.concat([table.assign(estimate=table[name])[columns] for table in (runs, pooled)], ignore_index=True)


def _answered(control: Control, rows: pd.DataFrame) -> pd.DataFrame:
    """Add q, answer and the family of the correction to the rows of a question."""
    layers = np.where(rows["layer"] == schemas.ALL_LAYERS, "whole models", "layers")
    rows["corrected_with"] = control.question + ", " + layers + ", " + rows["metric"] + ", " + rows["model"]
    if control.is_tested:
        grouped_p = rows.groupby("corrected_with")["p"]
        rows["q"] = grouped_p.transform(lambda p: benjamini_hochberg(p.to_numpy(np.float64)))
        is_answered, is_yes = rows["q"].notna(), rows["q"] <= LEVEL
    else:
        is_answered, is_yes = (
            rows["estimate"].notna(),
            (rows["lowest"] >= FOLLOWS_RHO) | (rows["highest"] <= -FOLLOWS_RHO),
        )
    rows["answer"] = np.where(is_answered, np.where(is_yes, YES, NO), NOT_TESTED)
    return rows.drop(columns=["lowest", "highest"]).assign(question=control.question, control=control.name)


def tested_features_table(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, pooled: pd.DataFrame
) -> pd.DataFrame:
    """Count whole-model features measured, testable, tested and distinct, by source and question."""
    warmups = warmups_of(models)
    testable: set[tuple[str, ...]] = set()
    correlations: dict[str, list[pd.DataFrame]] = {}
    for group in aligned_series(series.whole_model(features), metrics):
        segment, reason = group.testable(warmups)
        if reason:
            continue
        testable |= set(zip(*group.keys.values(), strict=True))
        for source in dict.fromkeys(group.keys["source"]):
            rows = group.keys["source"] == source
            names, values = group.keys["feature"][rows], spearman(segment.values[rows], segment.values[rows])
            correlations.setdefault(source, []).append(pd.DataFrame(np.abs(values), names, names))
    table = []
    tests = [control.question for control in questions() if control.is_tested]
    for (question, source), answers in pooled[pooled["question"].isin(tests)].groupby(["question", "source"]):
        tested = answers[answers["p"].notna()]
        table.append(
            {
                "question": question,
                "source": source,
                "measured": len(answers),
                "testable": sum(tuple(key) in testable for key in answers[series.SERIES_KEY].to_numpy()),
                "tested": len(tested),
                "distinct": count_distinct(list(tested["feature"]), correlations.get(str(source), [])),
                "found": int((tested["answer"] == YES).sum()),
                "reason": most_common_reason(answers.loc[answers["p"].isna(), "reason"]),
            }
        )
    return schemas.TABLES["tested_features"].frame(table)


def count_distinct(names: list[str], correlations: Sequence[pd.DataFrame]) -> int:
    """Count clusters of features by complete linkage: any two of one have a mean |correlation| of `REDUNDANT_RHO` or more.

    correlations: |correlations| of each run, by feature; a pair without one counts as uncorrelated.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # slow to import, as is scipy.spatial: figures need neither
    from scipy.spatial.distance import squareform

    if len(names) < 2:
        return len(names)
    mean_correlation = pd.concat(correlations).groupby(level=0).mean().reindex(index=names, columns=names).fillna(0.0)
    distance = 1.0 - mean_correlation.to_numpy()
    np.fill_diagonal(distance, 0.0)
    tree = linkage(squareform((distance + distance.T) / 2, checks=False), "complete")
    return int(fcluster(tree, 1.0 - REDUNDANT_RHO + 1e-12, "distance").max())
