"""What was wrong in the study, computed again: docs/study.md, "Corrections". All of it is after the fact."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from studies.over_seeds import fisher_interval
from studies.study.forecasts import gain_row, predictors
from studies.study.one_slope import one_slope
from studies.study.questions import SEED, one_slope_controls
from toposcale.analysis.over_seeds import EarlyValues, early_values
from toposcale.features.feature import WEIGHT_NORM
from toposcale.io.metrics import VALIDATION_LOSS
from toposcale.statistics.coefficients import Floats, orthogonal_to
from toposcale.statistics.freedman_lane import fit_of_configuration
from toposcale.statistics.multiple_testing import benjamini_hochberg
from toposcale.statistics.permutations import DRAWS

FEATURES = ("h0_total_scaled", "neural_persistence", "h0_total", "h0_mean")
LEVEL, STRICTEST = 0.05, 0.0125
NULLS, PERMUTATIONS = 200, 499
EFFECTS = (0.15, 0.20)
MANY = 20
"""Times `DRAWS` permutations of the p-values that were close to a limit."""


def corrections(
    features: pd.DataFrame,
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    early: tuple[pd.DataFrame, pd.DataFrame],
    exploratory: pd.DataFrame,
    *,
    confirmatory: bool,
) -> pd.DataFrame:
    """Rows of what, feature, estimate, its 95% interval, p and q. Rates are estimates, too.

    early: the small tables `series` and `early`; exploratory: the results of the plan, whose family is corrected again.
    """
    losses, gaps = (
        early_values(features, metrics, models, metric, (WEIGHT_NORM.feature,))
        for metric in (VALIDATION_LOSS, "generalisation_gap")
    )
    assert losses is not None
    assert gaps is not None
    rows = [*own_configurations(losses)]
    if confirmatory:
        rows += [*rates_without_effect(losses), *power_with_real_spreads(losses)]
        rows += close_calls(losses, gaps, exploratory)
        rows += forecasts_with_products(early, models)
    return pd.DataFrame(rows).reindex(columns=["what", "feature", "estimate", "low", "high", "p", "q"])


def own_configurations(read: EarlyValues) -> Iterator[dict[str, object]]:
    """Question A with slopes and a spread of each configuration: the test of the library now."""
    test = read._replace(features=_chosen(read)).test(seed=SEED, draws=MANY * DRAWS)
    low, high = fisher_interval(test.correlation, test.degrees_of_freedom - test.n_configurations)
    for index, feature in enumerate(FEATURES):
        yield {
            "what": "A, slopes and spread of each configuration",
            "feature": feature,
            "estimate": test.correlation[index],
            "low": low[index],
            "high": high[index],
            "p": test.p[index],
        }


def rates_without_effect(read: EarlyValues) -> Iterator[dict[str, object]]:
    """How often the two tests reject where no feature tells anything: outcomes from the slopes of each configuration."""
    values, controls = _chosen(read).to_numpy(np.float64), one_slope_controls(read)
    random, planned, now = np.random.default_rng(SEED), [], []
    for draw in range(NULLS):
        outcome = outcomes(read, 0.0, 0, random)
        test = one_slope(values, outcome, read.configurations, controls, draws=PERMUTATIONS, seed=draw)
        planned.append((test.p <= LEVEL, test.correlation))
        own = read._replace(features=_chosen(read), outcome=outcome).test(seed=draw, draws=PERMUTATIONS)
        now.append((own.p <= LEVEL, own.correlation))
    for words, found in (("one slope for all", planned), ("slopes and spread of each configuration", now)):
        rejected, estimate = np.mean(found, axis=0)
        for index, feature in enumerate(FEATURES):
            yield {"what": f"rejected without an effect, {words}", "feature": feature, "estimate": rejected[index]}
            yield {"what": f"mean estimate without an effect, {words}", "feature": feature, "estimate": estimate[index]}


def power_with_real_spreads(read: EarlyValues) -> Iterator[dict[str, object]]:
    """How often question A finds an effect at the strictest level, and how often its interval holds it."""
    values, controls = _chosen(read).to_numpy(np.float64), one_slope_controls(read)
    for effect in EFFECTS:
        random, found, holds = np.random.default_rng([SEED, int(100 * effect)]), [], []
        for draw in range(NULLS):
            index = draw % 2  # the primary features by turns
            outcome = outcomes(read, effect, index, random, one_slope_for_all=True)
            test = one_slope(
                values[index : index + 1], outcome, read.configurations, controls, draws=PERMUTATIONS, seed=draw
            )
            low, high = fisher_interval(test.correlation, test.degrees_of_freedom - 1)
            found.append(test.p[0] <= STRICTEST)
            holds.append(low[0] <= effect <= high[0])
        yield {"what": f"found, an effect of {effect:.2f}, real spreads", "estimate": np.mean(found)}
        yield {"what": f"interval holds an effect of {effect:.2f}", "estimate": np.mean(holds)}


def outcomes(
    read: EarlyValues, effect: float, index: int, random: np.random.Generator, *, one_slope_for_all: bool = False
) -> Floats:
    """Final losses that follow the controls, with slopes of each configuration or of all; the residuals of each
    configuration are permuted, with an effect of one feature."""
    values, labels = _chosen(read).to_numpy(np.float64)[index : index + 1], np.array(read.configurations)
    drawn = read.outcome.copy()
    if one_slope_for_all:
        inside = np.array(
            [labels == configuration for configuration in dict.fromkeys(read.configurations)], dtype=np.float64
        )
        rest, _ = orthogonal_to(read.outcome[None], np.vstack([inside, one_slope_controls(read)]))
        drawn -= rest[0]
    for configuration in dict.fromkeys(read.configurations):
        own = np.flatnonzero(labels == configuration)
        fit = fit_of_configuration(values, read.outcome[None], read.controls, own)
        rest = random.permutation(fit.residuals)
        told = effect * fit.features[0] * np.sqrt(rest @ rest)
        drawn[own] += told + np.sqrt(1 - effect**2) * rest - (0.0 if one_slope_for_all else fit.residuals)
    return drawn


def close_calls(losses: EarlyValues, gaps: EarlyValues, exploratory: pd.DataFrame) -> Iterator[dict[str, object]]:
    """The family of the exploratory results again, with 200,000 permutations of the tests between runs."""
    family = exploratory.set_index(["question", "feature"])["p"].copy()
    for question, read, own in (("A", losses, False), ("A, own slopes", losses, True), ("gap", gaps, False)):
        values, controls = read.features.to_numpy(np.float64), one_slope_controls(read)
        names = read.features.index.get_level_values("feature")
        as_extreme = np.zeros(len(names))
        for seed in range(MANY):
            test = one_slope(values, read.outcome, read.configurations, controls, own_slopes=own, seed=1000 + seed)
            as_extreme += test.p * (DRAWS + 1) - 1  # without the identity
        for name, count in zip(names, as_extreme, strict=True):
            if (question, name) in family.index:
                family[question, name] = (1 + count) / (1 + MANY * DRAWS)
    q = pd.Series(benjamini_hochberg(family.to_numpy(np.float64)), index=family.index)
    told = (("A", "h0_total"), ("A, own slopes", "h0_mean"), ("gap", "h0_total_scaled"))
    for question, feature in told:
        yield {"what": f"{question}, 200,000 permutations", "feature": feature} | {
            "p": family[question, feature],
            "q": q[question, feature],
        }


def forecasts_with_products(
    early: tuple[pd.DataFrame, pd.DataFrame], models: pd.DataFrame
) -> Iterator[dict[str, object]]:
    """What topology adds to ridge forecasts once the products of loss, rate and size are predictors too."""
    runs = models.sort_values("model", ignore_index=True)
    twins = runs["n_parameters"].astype(str) + " " + runs["learning_rate"].astype(str)
    for words, products, groups in (
        ("configurations left out", False, runs["configuration"]),
        ("configurations left out, with products", True, runs["configuration"]),
        ("configurations left out with their twins of another weight decay", False, twins),
        ("configurations left out with their twins, with products", True, twins),
    ):
        sets, target, _ = predictors(*early, models, products=products)
        gain, low, high = gain_row(sets, target, groups.to_numpy(), runs["configuration"].to_numpy())
        yield {"what": f"gain of topology, ridge, {words}", "estimate": gain, "low": low, "high": high}


def _chosen(read: EarlyValues) -> pd.DataFrame:
    names = list(read.features.index.get_level_values("feature"))
    return read.features.iloc[[names.index(name) for name in FEATURES]]
