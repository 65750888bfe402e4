"""Answers about features, in at most 40 words each: which follow the loss, and which add to norm and spectrum."""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd

from toposcale.analysis.controls import NOTHING
from toposcale.analysis.questions import CLOSE, NOT_TESTED, YES, Question
from toposcale.analysis.sensitivity import MEASURED, POWER_WANTED
from toposcale.analysis.series import SERIES_KEY
from toposcale.features.feature import WEIGHT_NORM
from toposcale.features.names import feature_name
from toposcale.features.registry import group_of
from toposcale.forecasting.runs.metrics import metric_name

UNTESTED = "Could not be tested"


class Answer(NamedTuple):
    """A verdict in a few words, a sentence or two, and the numbers behind them."""

    verdict: str
    text: str
    numbers: str = ""


def following(verdicts: pd.DataFrame, pooled: pd.DataFrame) -> Answer:
    """Count the whole-model features that follow the metric, with the closest topological one and the weight norm."""
    answers = verdicts[verdicts["question"] == "follows_the_loss"].drop(columns="control")
    plain = pooled.loc[pooled["control"] == NOTHING, [*SERIES_KEY, "spearman_lowest", "spearman_highest"]]
    correlated = answers.dropna(subset=["estimate"]).merge(plain, on=SERIES_KEY, how="left")
    if correlated.empty:
        return Answer(UNTESTED, "No feature could be correlated: too few checkpoints.")
    followers = correlated[correlated["answer"] == YES]
    count = f"{len(followers)} of {len(correlated)}"
    text = f"{count} features follow it, with one sign in every configuration. Drift alone can cause this."
    numbers = []
    topological = followers[is_topology(followers)]
    if len(topological):
        closest = topological.iloc[topological["estimate"].abs().argmax()]
        text += f" The closest topological feature is {name_of(closest)}."
        numbers.append(f"{name_of(closest)}: {_rho(closest)}")
    norm = correlated[(correlated[SERIES_KEY] == list(WEIGHT_NORM)).all(axis=1)]
    if len(norm):
        text += f" The norm of the weights {_follows(norm.iloc[0])}."
        numbers.append(f"norm: {_rho(norm.iloc[0])}")
    return Answer(count, text, ". ".join(numbers) + "." if numbers else "")


def beyond(
    verdicts: pd.DataFrame, tested: pd.DataFrame, sensitivity: pd.DataFrame, question: Question, metric: str
) -> Answer:
    """Answer which features add information to a control, with positive control and power."""
    control, (power, why) = question.beyond, power_of(sensitivity, question.name)
    counts = counted(tested[tested["question"] == question.name])
    if power is None:
        return Answer(UNTESTED, f"No feature could be tested: {why}.", counts)
    answers = verdicts[verdicts["question"] == question.name]
    passed = answers[answers["answer"] == YES].sort_values("q")
    numbers = (
        f"Positive control ({metric_name(metric)} with noise, "
        f"correlation of prewhitened residuals {power['correlation']:.2f}): "
        f"p = {power['p']:.2g}, q = {power['q']:.2g}. Tested: {counts}"
    )
    limit = ""
    if power["outside"]:
        limit = f" Its false-positive rate was not measured at {power['outside']}."
        numbers += f" False-positive rate: {MEASURED}."
    for _, row in answers.dropna(subset=["p"]).nsmallest(1, "p").iterrows():
        numbers += f" Strongest: {name_of(row)}, correlation of prewhitened residuals {row['estimate']:.2f}, "
        numbers += f"p = {row['p']:.2g}, q = {row['q']:.2g}."
    least = f" {could(power['detectable'])}."
    if len(passed):
        n_tested = int(power["n_tested"])
        text = (
            f"{len(passed)} of {n_tested} tested features passed for the {metric_name(metric)}; "
            f"the most significant is {name_of(passed.iloc[0])}."
        )
        # Where something was found, the limit comes first.
        text, numbers = (text + limit, numbers + least) if limit else (text + least, numbers)
        return Answer(f"{len(passed)} of {n_tested}", text, numbers)
    if power["found"] != YES:
        text = f"The test does not detect the {metric_name(metric)} itself (positive control) given {control}."
        return Answer("This run could not have shown it", text, numbers)
    return Answer("None found", f"No feature adds information to {control}.{least}{limit}", numbers)


def counted(tested: pd.DataFrame) -> str:
    """Describe how many features of each source were tested, and why others were not."""
    parts = [
        f"{row.source} {row.tested} of {row.testable} testable ({row.measured} measured), {row.distinct} distinct"
        for row in tested[tested["tested"] > 0].itertuples()
    ]
    for reason, rows in tested[tested["tested"] == 0].groupby("reason", sort=False):
        sources = ", ".join(f"{row.measured} of {row.source}" for row in rows.itertuples())
        parts.append(f"not tested: {sources} ({reason})")
    return "; ".join(parts) + "." if parts else ""


def coinciding(pooled: pd.DataFrame) -> str:
    """Say that rank correlations given the norm and given the step coincide, if they do."""
    by_series = pooled.set_index(SERIES_KEY)
    norm, step = (by_series[by_series["control"] == name] for name in ("weight_norm", "step"))
    columns = ["spearman", "spearman_lowest", "spearman_highest"]
    apart = (norm[columns] - step[columns]).dropna()
    if len(apart) and np.allclose(apart, 0.0, rtol=0, atol=1e-9):
        return " Rank correlations given the norm and given the step coincide, because the norm is monotonic."
    return ""


def power_of(sensitivity: pd.DataFrame, question: str) -> tuple[pd.Series | None, str]:
    """Return the row of a question in `sensitivity`; None and the reason if it was not tested."""
    rows = sensitivity[sensitivity["question"] == question]
    if rows.empty:
        return None, "nothing was measured"
    power = rows.iloc[0]
    return (None, power["reason"]) if power["found"] == NOT_TESTED else (power, "")


def could(detectable: float, subject: str = "This run") -> str:
    """Describe the smallest correlation that would have been found."""
    if math.isnan(detectable):
        return f"{subject} had power only for features that are almost the loss itself"
    return f"{subject} had {POWER_WANTED:.0%} power for correlations of {detectable:.2f} or more"


def is_topology(rows: pd.DataFrame) -> np.ndarray:
    """Return which rows are of a topological feature."""
    return np.array([group_of(feature) == "topology" for feature in rows["feature"]], dtype=bool)


def _follows(row: pd.Series) -> str:
    """Say whether a feature follows the metric; two configurations may follow it with opposite signs."""
    if row["answer"] == YES:
        return "follows it too"
    has_both_signs = row["spearman_lowest"] <= -CLOSE and row["spearman_highest"] >= CLOSE
    return "follows it with opposite signs" if has_both_signs else "does not follow it"


def _rho(row: pd.Series) -> str:
    low, high = row["spearman_lowest"], row["spearman_highest"]
    return f"rank correlation {row['estimate']:.2f} (median over configurations; {low:.2f} to {high:.2f})"


def name_of(row: pd.Series) -> str:
    """Name a feature and its source: "H₀ total persistence of the weights"."""
    return f"{feature_name(row['feature'], row['source'])} of the {row['source']}"


def counting(number: int, noun: str) -> str:
    """Return a count with its noun: "1 feature", "2 features"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
