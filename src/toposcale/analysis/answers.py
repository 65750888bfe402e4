"""Answers about features, forecasts and decisions, in at most 40 words each."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import bdtr

from toposcale.analysis.controls import FOLLOWS_RHO, LEVEL, NOT_TESTED, NOTHING, YES, Control
from toposcale.analysis.decisions import POLICIES
from toposcale.analysis.forecasts import BASELINES, MIN_COVERAGE, MIN_FORECAST_SHARE
from toposcale.analysis.methods import METHODS
from toposcale.analysis.sensitivity import MEASURED, POWER_WANTED
from toposcale.analysis.series import SERIES_KEY
from toposcale.features.feature import WEIGHT_NORM
from toposcale.features.names import feature_name, sentence
from toposcale.features.registry import group_of
from toposcale.forecasting.decision.candidates import CONTINUE, EXTEND
from toposcale.forecasting.laws.prediction import CONFIDENCE
from toposcale.forecasting.runs.metrics import metric_name
from toposcale.io.errors import counted
from toposcale.io.schemas import METRIC_SOURCE
from toposcale.statistics.multiple_testing import holm

WHICH_ADD = "Which predict the loss beyond"  # begins the questions that tests answer
UNTESTED = "Could not be tested"
POWERLESS = "This run could not have shown it"
HOW_TO_ADD_A_LOSS = (
    "name a file of losses in the entry of the model (losses: FILE), keep trainer_state.json with the weights, or save "
    "the loss in each checkpoint (loss, val_loss)"
)
MAX_NAMED = 5
IMPROVES = "Yes"
"""Verdict on forecasts with topology that have less error than the best one without."""
NOT_SHOWN = "Not shown"
"""Verdict where the interval of a difference holds 0."""
WORSENS = "No, it makes it worse"
"""Verdict on forecasts with topology that all have more error."""
MIN_FOR_A_VERDICT = 10
"""Fewest configurations, and fewest decisions, for a verdict."""
MIN_COVERAGE_P = 0.025
"""Probability, if the nominal coverage were true, of as few covered ends, below which it is refuted: 7 of 10, 16 of 20."""


class Answer(NamedTuple):
    """A verdict in a few words, a sentence or two, and the numbers behind them."""

    verdict: str
    text: str
    numbers: str = ""


def answer_correlated(verdicts: pd.DataFrame, pooled: pd.DataFrame) -> Answer:
    """Count the whole-model features that follow the metric, with the closest topological one and the weight norm."""
    answers = verdicts[verdicts["question"] == "follows_the_loss"].drop(columns="control")
    plain = pooled.loc[pooled["control"] == NOTHING, [*SERIES_KEY, "spearman_lowest", "spearman_highest"]]
    correlated = answers.dropna(subset=["estimate"]).merge(plain, on=SERIES_KEY, how="left")
    if correlated.empty:
        return Answer(UNTESTED, "No feature could be correlated: too few checkpoints.")
    followers = correlated[correlated["answer"] == YES]
    several = bool(pooled["n_configurations"].max() > 1)
    verdict = f"{len(followers)} of {len(correlated)} features"
    signs = "The sign is the same in every configuration. " if several else ""
    text = f"{signs}Drift can cause this, too." if len(followers) else "No feature follows it."
    numbers = []
    if n_undefined := len(answers) - len(correlated):
        numbers.append(f"Not counted, since constant or undefined: {counted(n_undefined, 'feature')}")
    topological = followers[is_topology(followers)]
    if len(topological):
        closest = topological.iloc[topological["estimate"].abs().argmax()]
        text += f" The closest topological feature is the {name_with_source(closest)}."
        numbers.append(f"{name_with_source(closest)}: {_rank_correlation_text(closest, several)}")
    norm = correlated[(correlated[SERIES_KEY] == list(WEIGHT_NORM)).all(axis=1)]
    if len(norm):
        text += f" The norm of the weights {_follow_clause(norm.iloc[0])}."
        numbers.append(f"norm: {_rank_correlation_text(norm.iloc[0], several)}")
    return Answer(verdict, text, ". ".join(numbers) + "." if numbers else "")


def answer_beyond(
    verdicts: pd.DataFrame, tested_features: pd.DataFrame, sensitivity: pd.DataFrame, control: Control, metric: str
) -> Answer:
    """Answer which features add information to a control, with positive control and power."""
    power, reason = sensitivity_row(sensitivity, control.question)
    counts = tested_sentence(tested_features[tested_features["question"] == control.question])
    if power is None:
        return Answer(UNTESTED, f"No feature could be tested: {reason}.", counts)
    answers = verdicts[verdicts["question"] == control.question]
    significant = answers[answers["answer"] == YES].sort_values("q")
    numbers = (
        f"Positive control ({metric_name(metric)} with noise, "
        f"correlation of prewhitened residuals {power['correlation']:.2f}): "
        f"p = {power['p']:.2g}, q = {power['q']:.2g}. Tested: {counts}"
    )
    limit = ""
    if power["outside"]:
        limit = f" Its false-positive rate was not measured at {power['outside']}."
        numbers += f" False-positive rate: {MEASURED}."
    median = "median " if power["n_runs"] > 1 else ""
    for _, row in answers.dropna(subset=["p"]).nsmallest(1, "p").iterrows():
        numbers += f" Strongest: {name_with_source(row)}, {median}correlation of prewhitened residuals "
        numbers += f"{row['estimate']:.2f}, p = {row['p']:.2g}, q = {row['q']:.2g}."
    power_text = f" {power_sentence(power['detectable'])}."
    if len(significant):
        n_tested = int(power["n_tested"])
        text = f"The most significant for the {metric_name(metric)} is the {name_with_source(significant.iloc[0])}."
        if power["found"] != YES:
            text += f" But the test does not detect the {metric_name(metric)} itself (positive control)."
        # Where something was found, the limit comes first.
        text, numbers = (text + limit, numbers + power_text) if limit else (text + power_text, numbers)
        return Answer(f"{len(significant)} of {n_tested} tested features", text, numbers)
    if power["found"] != YES:
        text = f"The test does not detect the {metric_name(metric)} itself (positive control) given {control.adds_to}."
        return Answer(POWERLESS, text, numbers)
    return Answer(
        "None found", f"No feature was found to predict the loss beyond {control.adds_to}.{power_text}{limit}", numbers
    )


def tested_sentence(tested_features: pd.DataFrame) -> str:
    """Describe how many features of each source were tested, and why others were not."""
    parts = [
        f"{_source_words(row.source)} {row.tested} of {row.testable} testable ({row.measured} measured), "
        f"{row.distinct} distinct"
        for row in tested_features[tested_features["tested"] > 0].itertuples()
    ]
    for reason, rows in tested_features[tested_features["tested"] == 0].groupby("reason", sort=False):
        sources = ", ".join(f"{row.measured} of {_source_words(row.source)}" for row in rows.itertuples())
        parts.append(f"not tested: {sources} ({reason})")
    return "; ".join(parts) + "." if parts else ""


def _source_words(source: Any) -> str:
    """Name the source of features: the user's metrics are those of `metrics.tables`."""
    return "your tables" if source == METRIC_SOURCE else str(source)


def coincidence_sentence(pooled: pd.DataFrame) -> str:
    """Say that rank correlations given the norm and given the step coincide, if they do."""
    by_series = pooled.set_index(SERIES_KEY)
    norm, step = (by_series[by_series["control"] == name] for name in ("weight_norm", "step"))
    columns = ["spearman", "spearman_lowest", "spearman_highest"]
    apart = (norm[columns] - step[columns]).dropna()
    if len(apart) and np.allclose(apart, 0.0, rtol=0, atol=1e-9):
        return " Rank correlations given the norm and given the step coincide, because the norm is monotonic."
    return ""


def sensitivity_row(sensitivity: pd.DataFrame, question: str) -> tuple[pd.Series | None, str]:
    """Return the row of a question in `sensitivity`; None and the reason if it was not tested."""
    rows = sensitivity[sensitivity["question"] == question]
    if rows.empty:
        return None, "nothing was measured"
    power = rows.iloc[0]
    return (None, power["reason"]) if power["found"] == NOT_TESTED else (power, "")


def power_sentence(detectable: float, subject: str = "This run") -> str:
    """Describe the smallest correlation that would have been found."""
    if math.isnan(detectable):
        return f"{subject} had power only for features that are almost the loss itself"
    return f"{subject} had {POWER_WANTED:.0%} power for correlations of {detectable:.2f} or more"


def is_topology(rows: pd.DataFrame) -> np.ndarray:
    """Return which rows are of a topological feature."""
    pairs = zip(rows["source"], rows["feature"], strict=True)
    return np.array([source != METRIC_SOURCE and group_of(name) == "topology" for source, name in pairs], dtype=bool)


def _follow_clause(row: pd.Series) -> str:
    """Say whether a feature follows the metric; two configurations may follow it with opposite signs."""
    if row["answer"] == YES:
        return "follows it too"
    has_both_signs = row["spearman_lowest"] <= -FOLLOWS_RHO and row["spearman_highest"] >= FOLLOWS_RHO
    return "follows it with opposite signs" if has_both_signs else "does not follow it"


def _rank_correlation_text(row: pd.Series, several: bool) -> str:
    """Return the rank correlation of a run, or the median over several configurations and its range."""
    low, high = row["spearman_lowest"], row["spearman_highest"]
    over = f" (median over configurations; {low:.2f} to {high:.2f})" if several else ""
    return f"rank correlation {row['estimate']:.2f}{over}"


def name_with_source(row: pd.Series) -> str:
    """Name a feature and its source: "scaled H₀ total persistence of the weights"."""
    if row["source"] == METRIC_SOURCE:
        return f"{metric_name(row['feature'])} of your tables"
    name = feature_name(row["feature"], row["source"])
    scaled = "scaled " if name.endswith(", scaled") else ""
    return f"{scaled}{name.removesuffix(', scaled')} of the {row['source']}"


def answer_best_forecast(evaluation: pd.DataFrame) -> Answer:
    """Name the forecast without topology that can be trusted, at the smallest share of training at which one can be judged.

    The method with the least error is trusted if it forecasts at least `MIN_FOR_A_VERDICT` configurations, its error is
    below that of the number of parameters, and the coverage of its intervals does not contradict the nominal one.
    """
    rows = _at_smallest_share(evaluation[evaluation["method"].isin(BASELINES)].dropna(subset=["mae"]))
    if rows.empty:
        return Answer(UNTESTED, "No finished run has a forecast to evaluate.")
    comparable_methods = rows[rows["n_forecasts"] >= MIN_FORECAST_SHARE * rows["n_forecasts"].max()].sort_values("mae")
    best, others = comparable_methods.iloc[0], comparable_methods.iloc[1:4]
    numbers = ", ".join(f"{_method_words(row.method)} has an error of {row.mae:.3f}" for row in others.itertuples())
    numbers += "." if numbers else ""
    unsafe = map(_method_words, rows.loc[rows["interval_coverage"] < MIN_COVERAGE, "method"])
    if names := " and ".join(unsafe):
        numbers += f" The intervals of {names} have a coverage below {MIN_COVERAGE:.0%}."
    start, coverage = f"From the first {best['fraction']:.0%} of training", f"{best['interval_coverage']:.0%}"
    error = f"{best['mae']:.3f} nats over {counted(int(best['n_forecasts']), 'run')}"
    if obstacles := _obstacles_to_trust(best, rows):
        text = f"{start}, {_method_words(best['method'])} has the least error, {error}, but {'; '.join(obstacles)}."
        coverage_text = f"The empirical coverage of its own 95% interval, before calibration, is {coverage}. "
        return Answer("None, yet", text, (coverage_text + numbers).strip())
    text = (
        f"{start}, its mean absolute error for the final loss is {error}. The empirical coverage of its own 95% "
        f"interval, before calibration, is {coverage}."
    )
    return Answer(sentence(_method_words(best["method"])), text, numbers.strip())


def _obstacles_to_trust(best: pd.Series, rows: pd.DataFrame) -> list[str]:
    """Return the reasons why the method with the least error is not trusted, a clause each."""
    obstacles = []
    if (count := int(best["n_compared"])) < MIN_FOR_A_VERDICT:
        obstacles.append(f"{count} of the {MIN_FOR_A_VERDICT} configurations needed")
    of_size = rows[[METHODS[method].reads == "size" for method in rows["method"]]]
    if METHODS[best["method"]].reads == "size":
        obstacles.append("it reads no loss")
    elif len(of_size) and not best["mae"] < of_size["mae"].min():
        obstacles.append("the size does as well")
    elif len(rows) == 1:
        obstacles.append("no other method has a forecast")
    n = int(best["n_forecasts"])
    if bdtr(round(best["interval_coverage"] * n), n, CONFIDENCE) < MIN_COVERAGE_P:
        obstacles.append(f"its 95% interval covers {best['interval_coverage']:.0%}")
    return obstacles


def answer_topological_forecast(evaluation: pd.DataFrame) -> Answer:
    """Compare each method that reads topology with the best baseline, at the smallest share of training that allows it.

    Yes only if the improvement and its interval are above 0, p passes Holm's correction, and at least
    `MIN_FOR_A_VERDICT` configurations have both forecasts.
    """
    topological = [name for name, method in METHODS.items() if method.reads == "topology"]
    baselines = evaluation[evaluation["method"] == evaluation["baseline"]].dropna(subset=["mae"])
    compared = evaluation[evaluation["method"].isin(topological)].dropna(subset=["improvement_percent"])
    comparable = baselines[baselines["fraction"].isin(compared["fraction"])]
    first = _at_smallest_share(baselines if comparable.empty else comparable)
    if first.empty:
        return Answer(UNTESTED, "No baseline could forecast the final loss, so there is nothing to compare with.")
    baseline = first.iloc[0]
    text = (
        f"From the first {baseline['fraction']:.0%} of training, the best forecast without topology, "
        f"{_method_words(baseline['method'])}, has a mean absolute error of {baseline['mae']:.3f} nats "
        f"over {counted(int(baseline['n_forecasts']), 'run')}."
    )
    at_share = compared[compared["fraction"] == baseline["fraction"]]
    if at_share.empty:
        return Answer(UNTESTED, text + " No method with topology could forecast from there.")
    enough = at_share["n_compared"] >= MIN_FOR_A_VERDICT
    judged = at_share[enough] if enough.any() else at_share
    # A method whose test could not be made counts among the tests, and is never found.
    passes = holm(at_share["improvement_p"].fillna(1.0).to_numpy(float)) <= LEVEL
    better = at_share[enough & (at_share["improvement_low"] > 0) & passes]
    best = (judged if better.empty else better)["improvement_percent"].max()
    text += f" Topology gives {_error_change(best)} at best."
    numbers = "; ".join(map(_comparison_with_baseline, at_share.to_dict("records"))) + "."
    if not enough.any():
        numbers += f" With fewer than {MIN_FOR_A_VERDICT} configurations there is no verdict."
        count = counted(int(at_share["n_compared"].max()), "configuration")
        return Answer(f"Not tested: {count}", text, numbers)
    if len(better):
        return Answer(IMPROVES, text, numbers)
    is_worse = (judged["improvement_high"] < 0).all()
    return Answer(WORSENS if is_worse else NOT_SHOWN, text, numbers)


def _comparison_with_baseline(row: Mapping[Any, Any]) -> str:
    """Return the change of the error of a method, with its interval."""
    # Lower errors are better; the interval is that of the same quantity, so it turns with the sign.
    sign = 1 if row["improvement_percent"] >= 0 else -1
    low, high = sorted(sign * row[end] for end in ("improvement_low", "improvement_high"))
    change = _error_change(row["improvement_percent"])
    return f"{_method_words(row['method'])} has {change} {_interval(low, high, '.0f')}"


def answer_advice(evaluation: pd.DataFrame) -> Answer:
    """Answer whether the advice would have had less regret than always continuing, the next size, or a random stop."""
    first = _at_smallest_share(evaluation[evaluation["policy"] == "advice"])
    by: dict[Any, Any] = evaluation[evaluation["fraction"].isin(first["fraction"])].set_index("policy").to_dict("index")
    if "advice" not in by:
        return Answer(UNTESTED, "No finished run has a larger model in its family to compare with.")
    advised = by["advice"]
    count = int(advised["n_decisions"])
    costs = "; ".join(
        f"{words} {by[policy]['regret']:.3f} {_interval(by[policy]['regret_low'], by[policy]['regret_high'], '.3f')}"
        for policy, words in POLICIES.items()
        if policy in by
    )
    text = (
        f"Decided at {advised['fraction']:.0%} of training, the compute already spent counted, the regret of the advice is "
        f"{advised['regret']:.3f} nats, over {counted(count, 'decision')}."
    )
    numbers = (
        f"Mean regret, nats: {costs}. In {int(advised['n_modelled'])} of the {counted(count, 'decision')} the truth is a "
        "law fitted to all runs and not a training."
    )
    if count < MIN_FOR_A_VERDICT:
        numbers += f" With fewer than {MIN_FOR_A_VERDICT} decisions there is no verdict."
        return Answer(f"Not tested: {counted(count, 'decision')}", text, numbers)
    against = _interval(advised["regret_saved_low"], advised["regret_saved_high"], ".3f")
    numbers += f" Less than always continuing by {advised['regret_saved']:.3f} {against}."
    if int(advised["n_modelled"]) == count:
        return Answer("Not tested: no outcome was observed", text, numbers)
    if advised["regret_saved_low"] > 0:
        rules = {words: by[policy] for policy, words in POLICIES.items() if policy in by}
        better = [words for words, row in rules.items() if row["regret"] < advised["regret"]]
        but = f", but {better[0]} would have helped more" if better else ""
        return Answer(f"Yes, against always continuing{but}", text, numbers)
    return Answer("No, it would have cost loss" if advised["regret_saved_high"] < 0 else NOT_SHOWN, text, numbers)


def answer_live_runs(advice: pd.DataFrame) -> Answer | None:
    """Return the best choice for every run under way; None if there is none."""
    live = advice[advice["is_live"].astype(bool)].sort_values("model")
    if live.empty:
        return None
    rows = live.to_dict("records")
    sentences = [
        f"{row['model']} at {row['fraction']:.0%}: {row['sentence']}"
        + (f" On track: {row['on_track']}." if row["on_track"] else "")
        for row in rows[:MAX_NAMED]
    ]
    more = len(rows) - MAX_NAMED
    text = " ".join(sentences) + (f" {more} more are in the table advice." if more > 0 else "")
    short = [_choice_words(row) for row in rows]
    counts = {words: short.count(words) for words in dict.fromkeys(short)}
    verdict = ", ".join(words if len(short) == 1 else f"{words} {count}" for words, count in counts.items())
    return Answer(sentence(verdict), "`make advice` gives reasons and assumptions.", text)


def _method_words(method: Any) -> str:
    return METHODS[str(method)].description


def _error_change(percent: float) -> str:
    return f"{abs(percent):.0f}% {'less' if percent >= 0 else 'more'} error"


def _choice_words(row: Mapping[Any, Any]) -> str:
    if not row["choice"]:
        return "no advice"
    words = row["choice"] if row["choice"] in (CONTINUE, EXTEND) else "train another size"
    return words if row["confident"] or pd.isna(row["probability"]) else f"{words} (low confidence)"


def _at_smallest_share(evaluation: pd.DataFrame) -> pd.DataFrame:
    """Return the rows at the smallest share of training above 0."""
    rows = evaluation[evaluation["fraction"] > 0]
    return rows[rows["fraction"] == rows["fraction"].min()]


def _interval(low: float, high: float, form: str) -> str:
    if not (np.isfinite(low) and np.isfinite(high)):
        return "(no interval: too few)"
    return f"(95% interval {low:{form}} to {high:{form}})"
