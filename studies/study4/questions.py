"""The questions of the fourth study: six primary tests at each rate, what they would mean, and what is secondary.

studies/study4/README.md says what is asked, and said so before a run was trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from studies.norms import NORMS
from studies.over_seeds import (
    SHARE,
    STUDY_DRAWS,
    EarlyValues,
    between_rows,
    early_values,
    fisher_interval,
    later_loss,
    partial_correlations,
)
from studies.study4.configurations import (
    FEATURES,
    H0,
    LOSS_SHARES,
    NUCLEAR,
    SCORE,
    loss_column,
    surrogate,
    surrogate_error,
)
from toposcale.forecasting.runs.metrics import VALIDATION_LOSS
from toposcale.io.errors import UserError
from toposcale.statistics.coefficients import Floats, orthogonal_to
from toposcale.statistics.freedman_lane import (
    fit_of_configuration,
    fitted_configurations,
    permuted_correlations,
    share_as_extreme,
)
from toposcale.statistics.multiple_testing import benjamini_hochberg, holm

LEVEL = 0.05
STRICTEST = LEVEL / 6
"""The strictest level that Holm asks for among the primary tests of a rate."""
SECONDARY_DRAWS = 10_000
SEED = 42
YARDSTICK = -0.10
"""What `h0_mean` would keep given the nuclear norm, were H0 alone the cause of what study 3 found (README.md)."""
LOW_RATE, HIGH_RATE = 0.003, 0.01
MEAN, SQUARES = "mean", "sum of squares"
"""The two statistics of the partial correlations of the configurations; the second one does not depend on their signs."""
Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]
"""Features, metrics and models."""


class Question(NamedTuple):
    """Does the feature at 30% tell how the outcome of the runs of a configuration will end, given some features at 30%?

    Given are also the outcome at 20 and at 30%, and the square of the latter.
    """

    name: str
    feature: str
    outcome: str
    given: tuple[str, ...]


BEYOND_SURROGATES = Question("h0 beyond surrogates", "h0_mean", VALIDATION_LOSS, (*NORMS, surrogate("h0_mean")))
BEYOND_NUCLEAR = Question("h0 beyond the nuclear norm", "h0_mean", VALIDATION_LOSS, (*NORMS, NUCLEAR))
BEYOND_H0 = Question("nuclear norm beyond h0", NUCLEAR, VALIDATION_LOSS, (*NORMS, *H0))
PRIMARY = (BEYOND_SURROGATES, BEYOND_NUCLEAR, BEYOND_H0)
SECONDARY = (
    Question("h0_total beyond surrogates", "h0_total", VALIDATION_LOSS, (*NORMS, surrogate("h0_total"))),
    Question("h0_total beyond the nuclear norm", "h0_total", VALIDATION_LOSS, (*NORMS, NUCLEAR)),
    Question("h0_mean given the norms", "h0_mean", VALIDATION_LOSS, NORMS),
    Question("h0_mean of surrogates given the norms", surrogate("h0_mean"), VALIDATION_LOSS, NORMS),
    Question("nuclear norm given the norms", NUCLEAR, VALIDATION_LOSS, NORMS),
    Question("surrogates beyond h0", surrogate("h0_mean"), VALIDATION_LOSS, (*NORMS, "h0_mean")),
    Question("nuclear norm beyond surrogates", NUCLEAR, VALIDATION_LOSS, (*NORMS, surrogate("h0_mean"))),
    Question("score of h0 among surrogates", SCORE, VALIDATION_LOSS, (*NORMS, NUCLEAR)),
)


class Answer(NamedTuple):
    """What the two tests of a question found at one rate: the mean partial correlation with the lower bound of its 95%
    interval, and whether each statistic was found after Holm's correction."""

    estimate: float
    low: float
    found: bool
    found_by_squares: bool

    @property
    def is_negative(self) -> bool:
        """Whether the mean partial correlation was found, with a negative sign."""
        return self.found and self.estimate < 0

    @property
    def is_absent(self) -> bool:
        """Whether neither statistic was found, and the interval lies above the yardstick."""
        return not self.found and not self.found_by_squares and self.low > YARDSTICK


class Verdict(Enum):
    """What the study says of H0, in the words of its plan."""

    SPECTRUM = (
        "Spectrum: at both rates H0 tells nothing beyond the singular values, and these tell something beyond H0."
    )
    TOPOLOGY = "Topology at .01: at the rate .01 H0 tells something that its surrogates and the nuclear norm do not."
    NEITHER = "Neither: the results are told as they came out."


def verdict(answers: Mapping[float, Mapping[Question, Answer]]) -> Verdict:
    """Return the verdict from the answers to the primary questions at both rates, by the rules of README.md."""
    rates = [answers[rate] for rate in (LOW_RATE, HIGH_RATE)]
    if all(
        at[BEYOND_SURROGATES].is_absent and at[BEYOND_NUCLEAR].is_absent and at[BEYOND_H0].is_negative for at in rates
    ):
        return Verdict.SPECTRUM
    high = answers[HIGH_RATE]
    if high[BEYOND_SURROGATES].is_negative and high[BEYOND_NUCLEAR].is_negative:
        return Verdict.TOPOLOGY
    return Verdict.NEITHER


def answers_of(primary: pd.DataFrame) -> dict[float, dict[Question, Answer]]:
    """Return the answers that the table of primary tests holds, by rate and question."""
    answers: dict[float, dict[Question, Answer]] = {LOW_RATE: {}, HIGH_RATE: {}}
    for rate, by_question in answers.items():
        for question in PRIMARY:
            rows = primary[(primary["rate"] == rate) & (primary["question"] == question.name)].set_index("statistic")
            mean, squares = (rows.loc[statistic] for statistic in (MEAN, SQUARES))
            significant = (bool(row["q"] <= LEVEL) for row in (mean, squares))
            by_question[question] = Answer(mean["estimate"].item(), mean["low"].item(), *significant)
    return answers


def tables_of(models: pd.DataFrame) -> Tables:
    """Return features, metrics and models in the long form of a run's tables, from a row for each run."""
    features = models.melt(["model", "final_step"], [*FEATURES, *map(surrogate, H0)], "feature", "value")
    features = features.assign(step=SHARE * features["final_step"], source="weights", layer="all")
    losses = [
        models[["model"]].assign(
            step=share * models["final_step"], metric=VALIDATION_LOSS, value=models[loss_column(share)]
        )
        for share in LOSS_SHARES
    ]
    return features.drop(columns="final_step"), pd.concat(losses, ignore_index=True), models


def at_rate(models: pd.DataFrame, rate: float) -> Tables:
    """Return the tables of the runs with a learning rate."""
    return tables_of(models[models["learning_rate"] == rate])


def study_tables(models: pd.DataFrame, *, seed: int = SEED) -> dict[str, pd.DataFrame]:
    """Return the results.

    `primary`, the tests that count; `control`, what must be found; `rates`, how far the rates differ; `configurations`, the
    partial correlations of each; `secondary`, corrected after Benjamini and Hochberg; `surrogates`, the noise of their
    means; `shares_left`, what the controls leave of the features.
    """
    primary = primary_table(models, STUDY_DRAWS, seed)
    return {
        "primary": primary,
        "control": control_table(models, SECONDARY_DRAWS, seed),
        "rates": rate_differences(primary),
        "configurations": by_configuration(tables_of(models), (*PRIMARY, *SECONDARY)),
        "secondary": secondary_table(models, SECONDARY_DRAWS, seed),
        "surrogates": surrogate_noise(models),
        "shares_left": shares_left(tables_of(models), PRIMARY),
    }


def read_of(question: Question, tables: Tables) -> EarlyValues:
    """Return what the test of a question compares. UserError: a control is not there."""
    features, metrics, models = tables
    own = features[features["feature"].isin([question.feature, *question.given])]
    read = early_values(own, metrics, models, question.outcome, question.given)
    if read is None:
        raise UserError(f"question {question.name}: its outcome or its controls are not there")
    return read


def answer(question: Question, tables: Tables, draws: int, seed: int) -> dict[str, Any]:
    """Return the row of one question. detectable: see there."""
    features, metrics, models = tables
    rows = between_rows(
        question.name,
        features[features["feature"].isin([question.feature, *question.given])],
        metrics,
        models,
        seed=seed,
        draws=draws,
        norms=question.given,
        metric=question.outcome,
    )
    [own] = rows[rows["feature"] == question.feature].to_dict("records")
    key: dict[str, Any] = {"question": question.name, "feature": question.feature, "outcome": question.outcome}
    return key | {str(name): value for name, value in own.items()} | {"detectable": detectable(own["low"], own["high"])}


def detectable(low: float, high: float) -> float:
    """Return the smallest correlation that is found in 80% of studies at `STRICTEST`, of a test with this 95% interval."""
    half = (np.arctanh(high) - np.arctanh(low)) / 2
    return float(np.tanh(half * (ndtri(1 - STRICTEST / 2) + ndtri(0.8)) / ndtri(0.975)))


def by_configuration(tables: Tables, questions: Sequence[Question]) -> pd.DataFrame:
    """Return the partial correlation of each question in each configuration, whose weighted mean its test is of."""
    columns = {}
    for question in questions:
        correlations = partial_correlations(read_of(question, tables), [question.feature])
        columns[question.name] = {
            configuration: values[question.feature] for configuration, values in correlations.items()
        }
    return pd.DataFrame(columns).rename_axis("configuration").reset_index()


def primary_table(models: pd.DataFrame, draws: int, seed: int) -> pd.DataFrame:
    """Return both tests of every primary question at each rate, with Holm's correction over the six of a rate."""
    parts = []
    for rate in (LOW_RATE, HIGH_RATE):
        tables = at_rate(models, rate)
        rows = pd.DataFrame(
            [row for question in PRIMARY for row in both_tests(question, read_of(question, tables), draws, seed)]
        )
        rows.insert(0, "rate", rate)
        parts.append(rows.assign(q=holm(rows["p"].to_numpy())))
    return pd.concat(parts, ignore_index=True)


def both_tests(question: Question, read: EarlyValues, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of the two statistics of a question, from the same permutations.

    With r_c the partial correlation of configuration c and f_c its degrees of freedom: the mean, sum f_c r_c / sum f_c,
    two-sided as in `between_runs`; and sum f_c r_c^2, one-sided, whose null expectation is about the number of
    configurations.
    """
    values = read.features.xs(question.feature, level="feature").to_numpy(np.float64)
    tested = fitted_configurations(values, read.outcome[None], read.controls, read.configurations)
    degrees = np.array([one.degrees_of_freedom for one in tested])
    blocks = permuted_correlations(tested, draws=draws, seed=seed)
    correlations = np.concatenate([np.hstack(by_configuration) for by_configuration, _ in blocks])
    place = {
        "question": question.name,
        "feature": question.feature,
        "n_models": len(read.configurations),
        "n_configurations": len(tested),
    }
    means, squares = correlations @ degrees / degrees.sum(), correlations**2 @ degrees
    low, high = map(float, fisher_interval(means[0], degrees.sum() - len(tested)))
    row = {"statistic": MEAN, "estimate": means[0], "low": low, "high": high, "p": float(share_as_extreme(means))}
    yield place | row | {"detectable": detectable(low, high)}
    yield place | {"statistic": SQUARES, "estimate": squares[0], "p": share_as_large(squares)}


def share_as_large(statistics: Floats) -> float:
    """Return the share of P statistics (P,) that are at least the first, which rounding does not decide."""
    return float(np.mean(statistics >= statistics[0] * (1 - 1e-9)))


def control_table(models: pd.DataFrame, draws: int, seed: int) -> pd.DataFrame:
    """Return the test of what must be found at each rate: the loss at half of the training in the place of a feature."""
    parts = []
    for rate in (LOW_RATE, HIGH_RATE):
        features, metrics, own = at_rate(models, rate)
        later = later_loss(features, metrics, own, NORMS)
        rows = between_rows("control", later, metrics, own, seed=seed, draws=draws)
        parts.append(rows[~rows["feature"].isin(NORMS)].assign(rate=rate))
    return pd.concat(parts, ignore_index=True)


def secondary_table(models: pd.DataFrame, draws: int, seed: int) -> pd.DataFrame:
    """Return the secondary questions at each rate, and the primary ones for each number of parameters at each rate."""
    rows = []
    for rate in (LOW_RATE, HIGH_RATE):
        tables = at_rate(models, rate)
        rows += [{"rate": rate} | answer(question, tables, draws, seed) for question in SECONDARY]
        for count, own in tables[2].groupby("n_parameters"):
            part = tables_of(own)
            rows += [
                {"rate": rate}
                | answer(question._replace(name=f"{question.name}, {count} parameters"), part, draws, seed)
                for question in PRIMARY
            ]
    table = pd.DataFrame(rows).drop(columns="detectable")
    return table.assign(q=benjamini_hochberg(table["p"].to_numpy()))


def rate_differences(primary: pd.DataFrame) -> pd.DataFrame:
    """Return how far the mean partial correlations of the two rates differ: in Fisher's z, with its two-sided normal p."""
    means = primary[primary["statistic"] == MEAN]
    z, half = np.arctanh(means["estimate"]), (np.arctanh(means["high"]) - np.arctanh(means["low"])) / 2
    wide = means.assign(z=z, half=half).pivot(index="question", columns="rate", values=["z", "half"])
    difference = wide["z"][HIGH_RATE] - wide["z"][LOW_RATE]
    error = np.hypot(wide["half"][HIGH_RATE], wide["half"][LOW_RATE]) / ndtri(0.975)
    p = 2 * ndtr(-np.abs(difference / error))
    return pd.DataFrame({"difference": difference, "p": p}).reset_index()


def shares_left(tables: Tables, questions: Sequence[Question]) -> pd.DataFrame:
    """Return by configuration and question the share of the feature's variance that the controls leave beside the norms.

    The variance is that given the losses so far and the norms.
    """
    columns = {}
    for question in questions:
        norms_alone, all_given = (
            _variances_left(question._replace(given=given), tables) for given in (NORMS, question.given)
        )
        columns[question.name] = {name: variance / norms_alone[name] for name, variance in all_given.items()}
    return pd.DataFrame(columns).rename_axis("configuration").reset_index()


def _variances_left(question: Question, tables: Tables) -> dict[str, float]:
    read = read_of(question, tables)
    values, labels = (
        read.features.xs(question.feature, level="feature").to_numpy(np.float64),
        np.array(read.configurations),
    )
    variances = {}
    for name in dict.fromkeys(read.configurations):
        runs = np.flatnonzero(labels == name)
        fit = fit_of_configuration(values, read.outcome[None], read.controls, runs)
        rest, _ = orthogonal_to(values[:, runs], fit.design)
        # The degrees of freedom of a correlation are one less than those of what a fit leaves.
        variances[name] = float((rest**2).sum() / (fit.degrees_of_freedom + 1))
    return variances


def surrogate_noise(models: pd.DataFrame) -> pd.DataFrame:
    """Return the spread of the surrogates' means between the runs of a configuration, and the share of noise in it."""
    rows = []
    for configuration, own in models.groupby("configuration"):
        row: dict[str, Any] = {"configuration": configuration, "mean score": own[SCORE].mean()}
        for feature in H0:
            spread = own[surrogate(feature)].std(ddof=1)
            noise = (own[surrogate_error(feature)] ** 2).mean() / spread**2
            row |= {f"spread of {feature}": spread, f"noise of {feature}": noise}
        rows.append(row)
    return pd.DataFrame(rows)
