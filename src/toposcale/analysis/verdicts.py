"""Does a feature follow the metric, and does it tell more than the norm and the step do? Yes, no, or not tested and why.

One declared family a question: the features of whole models (and, apart, those of layers) on one metric over all runs, and
the same for each run alone. Its q-values (Benjamini and Hochberg 1995) stand here and in no other table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from toposcale.analysis.correlations import PAIR_KEY, RESAMPLES, correlation_table
from toposcale.analysis.over_seeds import between_runs_table, full_cells, run_permutation_table
from toposcale.analysis.partial_correlations import NORM_AND_VARIANCE, partial_correlation_table
from toposcale.analysis.pooled import NOTHING, TESTED_KEY, pooled_table
from toposcale.analysis.sensitivity import LEVEL, most_common, sensitivity_tables
from toposcale.analysis.series import (
    EXPLAINED_BY_VARIANCE,
    SERIES_KEY,
    aligned_series,
    headline_metric,
    warmups_of,
    whole_model,
)
from toposcale.io import schemas
from toposcale.io.schemas import ALL_LAYERS
from toposcale.statistics.coefficients import spearman
from toposcale.statistics.multiple_testing import benjamini_hochberg
from toposcale.statistics.run_permutation import MIN_SEEDS

POOLED = "pooled"
"""Value of the `model` column in the verdict over all runs."""
YES, NO, NOT_TESTED = "yes", "no", "not tested"
CLOSE = 0.5
"""A feature follows the metric where the Spearman correlation is at least so large, with one sign in every cell."""
ALIKE = 0.95
"""Features whose |Spearman| correlation is at least this move together and count as one group."""
NO_SEEDS = f"no cell has {MIN_SEEDS} seeds"

OF_NEURAL_PERSISTENCE = "asked of neural persistence alone"
NO_VARIANCE = "no norm or variance of the weights at these checkpoints"

_OF_ALL = {"beyond_the_norm": "weight_norm", "beyond_the_step": "step"}
_GIVEN = {**_OF_ALL, "beyond_the_variance": NORM_AND_VARIANCE}
QUESTIONS = (*_GIVEN, "within_cells", "between_runs")
"""The questions that a test answers; each has a p-value, a q-value and a reason."""


def verdict_tables(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    *,
    seed: int = 42,
    resamples: int = RESAMPLES,
    tasks: Sequence[str] = (),
) -> dict[str, pd.DataFrame]:
    """Every table behind the verdicts, by name, from the features, the metrics and the models alone.

    features: model, step, source, layer, feature, value; metrics: model, step, metric, value; models: model, and where they
    are known warmup_steps, cell (what runs share but for their seed) and final_step. Hand it features that cannot know the
    losses, such as those of another run under this one's name, and nothing should be found. tasks: `metrics.tasks`.
    """
    if set(features["model"]).isdisjoint(metrics["model"]):
        return {}
    headline = headline_metric(metrics["metric"], tasks)
    plain = correlation_table(features, metrics, seed=seed, resamples=resamples)
    partial = partial_correlation_table(features, metrics, models, seed=seed, resamples=resamples)
    pooled = pooled_table(features, metrics, models, plain, partial)
    on_headline = metrics[metrics["metric"] == headline]
    seeds = {
        "run_permutation": schemas.TABLES["run_permutation"].frame([]),
        "between_runs": schemas.TABLES["between_runs"].frame([]),
    }
    if headline is not None:
        for name, table in (("run_permutation", run_permutation_table), ("between_runs", between_runs_table)):
            seeds[name] = table(features, metrics, models, metric=headline, seed=seed)
    has_seeds = headline is not None and bool(full_cells(features, metrics, models, headline))
    verdicts = verdict_table(plain, partial, pooled, **seeds, headline=headline, has_seeds=has_seeds)
    family = family_of(verdicts, headline)
    return {
        "correlations": plain,
        "partial_correlations": partial,
        "pooled_correlations": pooled,
        **seeds,
        "verdicts": verdicts,
        "tested_features": tested_features_table(features, on_headline, models, family),
        **sensitivity_tables(features, on_headline, models, family, seed=seed),
    }


def family_of(verdicts: pd.DataFrame, metric: str | None) -> pd.DataFrame:
    """The verdicts that answers rest on: features of whole models, over all runs, on one metric."""
    return whole_model(verdicts[(verdicts["model"] == POOLED) & (verdicts["metric"] == metric)])


def verdict_table(
    correlations: pd.DataFrame,
    partials: pd.DataFrame,
    pooled: pd.DataFrame,
    run_permutation: pd.DataFrame,
    between_runs: pd.DataFrame,
    *,
    headline: str | None,
    has_seeds: bool,
) -> pd.DataFrame:
    """Verdicts, one row per (run or "pooled", source, layer, feature, metric), from the tables of those names.

    follows_the_loss: |Spearman| of at least `CLOSE`, with one sign in every cell; drifting together is enough. The other
    questions: yes where q is at most `LEVEL`. `reason` columns say why something was not tested. headline: the metric that
    the tests over seeds were made for; has_seeds: whether a cell has enough of them.
    """
    alone = correlations[[*PAIR_KEY, "spearman", "reason"]].assign(
        spearman_lowest=correlations["spearman"], spearman_highest=correlations["spearman"]
    )
    together = pooled[pooled["given"] == NOTHING].assign(model=POOLED, reason="")
    together.loc[together["spearman"].isna(), "reason"] = "no run has a correlation"
    columns = [*PAIR_KEY, "spearman", "spearman_lowest", "spearman_highest", "reason"]
    table = pd.concat([alone, together[columns]], ignore_index=True)
    ends = {name: f"follows_the_loss_{name.replace('spearman', 'rho')}" for name in columns[5:8]}
    table = table.rename(columns=ends | {"reason": "follows_the_loss_reason"})
    low, high = table["follows_the_loss_rho_lowest"], table["follows_the_loss_rho_highest"]
    table["follows_the_loss"] = _words(low.notna(), (low >= CLOSE) | (high <= -CLOSE))
    for question, given in _GIVEN.items():
        both = [partials[partials["given"] == given], pooled[pooled["given"] == given].assign(model=POOLED)]
        both[0] = both[0].rename(columns={"partial_spearman": "spearman"})
        names = {
            "spearman": f"{question}_rho",
            "innovation_correlation": f"{question}_innovation",
            "p_surrogate": f"{question}_p",
            "reason": f"{question}_reason",
        }
        rows = pd.concat([part[[*PAIR_KEY, *names]] for part in both], ignore_index=True).rename(
            columns=names
        )
        table = table.merge(rows, on=PAIR_KEY, how="left", validate="one_to_one")
    asked = (table["source"] == "weights") & table["feature"].isin(EXPLAINED_BY_VARIANCE)
    missing = table["beyond_the_variance_reason"].isna()
    table.loc[missing, "beyond_the_variance_reason"] = np.where(asked, NO_VARIANCE, OF_NEURAL_PERSISTENCE)[
        missing
    ]
    whole = table["layer"] == ALL_LAYERS
    for question, rows in (("within_cells", run_permutation), ("between_runs", between_runs)):
        names = {"correlation": f"{question}_correlation", "p_value": f"{question}_p"}
        rows = rows[[*TESTED_KEY, *names]].rename(columns=names).assign(model=POOLED)
        table = table.merge(rows, on=PAIR_KEY, how="left", validate="one_to_one")
        known = pd.MultiIndex.from_frame(table[TESTED_KEY]).isin(pd.MultiIndex.from_frame(rows[TESTED_KEY]))
        said = np.select(
            [
                table["model"] != POOLED,
                ~whole,
                table["metric"] != headline,
                [not has_seeds] * len(table),
                known,
            ],
            [
                "asked of all runs together",
                "asked of whole models",
                f"asked of {headline}",
                NO_SEEDS,
                "fully explained by the controls, or too few runs",
            ],
            "not measured at the same checkpoints in every run",
        )
        table[f"{question}_reason"] = np.where(table[f"{question}_p"].isna(), said, "")
    table["family"] = np.where(whole, "whole models, ", "layers, ") + table["metric"] + ", " + table["model"]
    for question in QUESTIONS:
        q = table.groupby("family")[f"{question}_p"].transform(
            lambda p: benjamini_hochberg(p.to_numpy(np.float64))
        )
        table[f"{question}_q"] = q
        table[question] = _words(q.notna(), q <= LEVEL)
    return schemas.TABLES["verdicts"].frame(table)


def _words(tested: pd.Series, passed: pd.Series) -> np.ndarray:
    return np.where(tested, np.where(passed, YES, NO), NOT_TESTED)


def tested_features_table(
    features: pd.DataFrame, metrics: pd.DataFrame, models: pd.DataFrame, family: pd.DataFrame
) -> pd.DataFrame:
    """How many features of whole models were measured, testable, tested, and how many move apart, by source and question.

    metrics: those of the headline metric alone; family: the verdicts over all runs on it.
    """
    warmups = warmups_of(models)
    testable: set[tuple[str, ...]] = set()
    likeness: dict[tuple[str, str], list[tuple[list[str], np.ndarray]]] = {}
    for group in aligned_series(whole_model(features), metrics):
        cut, reason = group.testable(warmups)
        if reason:
            continue
        testable |= set(map(tuple, group.keys.to_numpy()))
        for source, keys in group.keys.reset_index(drop=True).groupby("source"):
            values = spearman(cut.values[keys.index], cut.values[keys.index])
            likeness.setdefault((str(source), group.model), []).append(
                (list(keys["feature"]), np.abs(values))
            )
    rows = []
    for (question, source), own in (
        ((question, str(source)), own) for question in _OF_ALL for source, own in family.groupby("source")
    ):
        tested = own[own[f"{question}_p"].notna()]
        rows.append(
            {
                "question": question,
                "source": source,
                "measured": len(own),
                "testable": sum(tuple(key) in testable for key in own[SERIES_KEY].to_numpy()),
                "tested": len(tested),
                "distinct": distinct(list(tested["feature"]), [part for key, parts in likeness.items()
                                                               if key[0] == source for part in parts]),
                "found": int((tested[question] == YES).sum()),
                "reason": most_common(own.loc[own[f"{question}_p"].isna(), f"{question}_reason"]),
            }
        )  # fmt: skip
    return schemas.TABLES["tested_features"].frame(rows)


def distinct(names: Sequence[str], likeness: Sequence[tuple[list[str], np.ndarray]]) -> int:
    """Groups of features of which any two have a mean |correlation| over runs of at least `ALIKE` (complete linkage).

    likeness: of each run the names of features and their |correlations|; a pair that was never measured is not alike.
    """
    if len(names) < 2:
        return len(names)
    place = {name: number for number, name in enumerate(names)}
    total, count = np.zeros((len(names), len(names))), np.zeros((len(names), len(names)))
    for present, values in likeness:
        kept = [number for number, name in enumerate(present) if name in place]
        at = np.array([place[present[number]] for number in kept], dtype=np.int64)
        own = values[np.ix_(kept, kept)]
        total[np.ix_(at, at)] += np.nan_to_num(own)
        count[np.ix_(at, at)] += np.isfinite(own)
    distance = 1.0 - total / np.maximum(count, 1)
    np.fill_diagonal(distance, 0.0)
    tree = linkage(squareform((distance + distance.T) / 2, checks=False), "complete")
    return int(fcluster(tree, 1.0 - ALIKE + 1e-12, "distance").max())
