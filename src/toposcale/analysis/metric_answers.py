"""The questions of `test_metric`: over checkpoints (within runs and ahead) and between runs, each with its power.

Over checkpoints the test is that of prewhitened residuals, of all runs together; between runs it is a partial correlation
with the end of the runs, given the loss so far. Both have placebos and simulated metrics of the size that is found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import solve_toeplitz
from scipy.signal import lfilter
from scipy.special import ndtri

from toposcale.analysis.controls import LEVEL, NO, NOT_TESTED, YES, Control
from toposcale.analysis.correlations import ControlledRun, controlled_runs, joint_test, run_weights, segment_test
from toposcale.analysis.metric_table import ALIASES, LEARNING_RATE, MetricTable, long_rows
from toposcale.analysis.sensitivity import EFFECTS, POWER_WANTED, SIMULATIONS, detectable_correlation
from toposcale.analysis.series import MIN_FOR_CORRELATION, configurations_of
from toposcale.features.feature import WEIGHT_NORM
from toposcale.forecasting.laws.prediction import NORMAL
from toposcale.io.errors import counted
from toposcale.io.schemas import ALL_LAYERS
from toposcale.statistics.coefficients import Floats, orthogonal_to, spearman
from toposcale.statistics.freedman_lane import between_runs, fit_of_configuration, members_of
from toposcale.statistics.multiple_testing import benjamini_hochberg
from toposcale.statistics.prewhitening import (
    ResidualTest,
    SharedFlips,
    max_order,
    phase_randomised,
    prewhiten,
    residual_test,
    trend,
    with_squares,
)

PLACEBOS = 200
CONTROLS_DRAWN = 100
"""Losses with noise, the positive control."""
MAX_RATE = 0.07
"""False-positive rate of the placebos above which, by two standard errors, nothing is tested."""

POINTS = 20
"""Checkpoints of a run that the test needs: with fewer no degrees of freedom are left for the past, and the false-positive
rate rises above 7% (`make nulls ONLY=metrics`)."""
POINTS_PER_COVARIATE = 15
"""Further checkpoints for each covariate."""
POINTS_OF_A_SCHEDULE = 10
"""Further checkpoints for a learning rate, which is smooth, and takes fewer than other covariates."""
POINTS_AHEAD = 100
"""Checkpoints for each one that the metric looks ahead, where that is more than one: such losses overlap."""
MIN_DEGREES_OF_FREEDOM_OF_RUN = 15
"""Degrees of freedom of a run below which an interval covers less than it says."""
MIN_DEGREES_OF_FREEDOM = 30
"""The same of all runs together; below it metrics of the promised size are found less often, too."""
RANK_VARIANCE = 1.06
"""Variance of a rank correlation's Fisher z, relative to Pearson's (Fieller, Hartley and Pearson 1957)."""
MEDIAN_SD = np.sqrt(np.pi / 2)
"""Standard deviation of a median relative to that of a mean, at most."""
SIMULATED_AT_AN_EFFECT = 100
"""Simulated metrics of each effect over checkpoints."""
AROUND = np.array([0.8, 1.15, 1.6, 2.2])
"""Effects that are simulated, relative to the first guess of what is found."""
LARGEST_EFFECT = 0.95
"""Largest effect that is simulated."""
BURN_IN = 100
POWER = 10
PLACEBO = 11
CONTROL = 12
"""Purposes of random numbers: each has its own stream."""

MIN_RUNS = 12
"""Runs, or settings, that are compared at least."""
MIN_SEEDS = 8
"""Seeds of a setting that is compared: fewer have too few orders for a p-value."""
SIMULATED_DRAWS = 999
"""Permutations of the test of a simulated metric between runs."""


class Question(StrEnum):
    """Question about a metric."""

    WITHIN = "within runs"
    AHEAD = "ahead"
    BETWEEN = "between runs"
    SEEDS = "between seeds"
    SETTINGS = "between settings"


@dataclass(frozen=True)
class Covariates(Control):
    """The user's covariates; the trend in the step is always held fixed, so that there is a test without any."""

    @property
    def is_tested(self) -> bool:
        """Always."""
        return True


def answered(data: MetricTable, question: Question, results: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Return a row for each metric from the result of its test, with q over all; one with a reason is not tested."""
    shared = {"question": question, "target": data.target, "given": data.given_words, "n_runs": 0, "p": np.nan}
    rows = pd.DataFrame([{"metric": name, **shared, **results[name]} for name in data.metrics])
    p = np.where(rows["reason"] == "", rows["p"], np.nan)
    q = benjamini_hochberg(p)
    answers = np.where(np.isnan(q), NOT_TESTED, np.where(q <= LEVEL, YES, NO))
    return rows.assign(p=p, q=q, answer=answers)


def over_checkpoints(
    data: MetricTable, question: Question, lead: int, seed: int
) -> tuple[pd.DataFrame, list[ControlledRun]]:
    """Answer a question over checkpoints; lead: by how many the loss leads the metric and is a covariate itself."""
    covariates = data.given if lead == 0 else (data.target, *data.given)
    control = Covariates("given", covariates, past_of_metric=lead == 0, missing="a covariate is not there")
    results: dict[str, dict[str, Any]] = {name: {"reason": data.untestable(name)} for name in data.metrics}
    usable = [name for name, result in results.items() if not result["reason"]]
    targets = long_rows(data.leading(lead), [data.target], "metric")
    if not usable or targets.empty:
        late = {"reason": f"no checkpoint has a loss {counted(lead, 'checkpoint')} later"}
        return answered(data, question, results | dict.fromkeys(usable, late)), []
    features = long_rows(data.rows, [*usable, *covariates], "feature").assign(
        source=WEIGHT_NORM.source, layer=ALL_LAYERS
    )
    models = pd.DataFrame(
        [(run, warmup, data.settings.get(run, run)) for run, warmup in data.warmups.items()],
        columns=["model", "warmup_steps", "configuration"],
    )
    least = least_points(covariates, lead)
    runs = [_with_enough(run, least) for run in controlled_runs(features, targets, models, control)]
    tests = joint_test(runs, models).set_index("feature").reindex(usable)
    n_tested = int(tests["p"].notna().sum())
    for name, test in tests.iterrows():
        result = {"p": test["p"], "n_runs": test["n_tested"], "reason": test["reason"]}
        result |= estimate(runs, str(name), models) | placebo(runs, str(name), models, seed)
        if np.isfinite(test["p"]):
            result |= power(runs, str(name), n_tested, models, seed)
            result["reason"] = doubt(result, runs if not data.given and lead == 0 else [], str(name))
        results[str(name)] = result
    return answered(data, question, results), runs


def least_points(covariates: Sequence[str], lead: int) -> int:
    """Return the checkpoints of a run that a test with these covariates needs."""
    n_rates = len({*covariates} & {*ALIASES[LEARNING_RATE]})
    points = POINTS + POINTS_PER_COVARIATE * (len(covariates) - n_rates) + POINTS_OF_A_SCHEDULE * n_rates
    return max(points, POINTS_AHEAD * lead if lead > 1 else 0)


def _with_enough(run: ControlledRun, least: int) -> ControlledRun:
    """Return a run without its test if it has fewer checkpoints than the covariates take."""
    if run.segment.missing or run.segment.n >= least:
        return run
    points = f"{run.segment.n} evenly spaced checkpoints after twice the warm-up"
    return replace(run, test=None, reason=f"{points}; the test needs {least} here")


def _tested_series(runs: Sequence[ControlledRun], feature: str) -> list[tuple[ControlledRun, int]]:
    """Return the tested runs of a metric, each with the row of the metric in its arrays."""
    rows = [(run, np.flatnonzero(run.group.keys["feature"] == feature)) for run in runs if run.test]
    return [(run, int(row)) for run, rows_of_run in rows for row in rows_of_run]


def power(
    runs: Sequence[ControlledRun], feature: str, n_tested: int, models: pd.DataFrame, seed: int
) -> dict[str, float]:
    """Return the correlation that is found in 80% of cases, and the share of losses with noise of that size that are found.

    The correlation is that of the innovations. Around a first guess a line is fitted to the probits of the shares found of
    metrics with the memory of this one; the losses with noise are the positive control.
    """
    pairs = [(run, run.segment.values[row]) for run, row in _tested_series(runs, feature)]
    weights = run_weights({run.group.model for run, _ in pairs}, models)
    level = LEVEL / n_tested

    def shares(effects: Floats, simulations: int, purpose: int) -> Floats:
        planted = np.repeat(effects, simulations)
        pool = SharedFlips(len(planted), np.concatenate([run.segment.steps for run, _ in pairs]))
        for index, (run, values) in enumerate(pairs):
            rng = np.random.default_rng([seed, purpose, index])
            drawn = (
                noisy_losses(run, planted, rng) if purpose == CONTROL else planted_metrics(run, values, planted, rng)
            )
            pool.add(segment_test(run.segment, drawn, run.control), run.segment.steps, weight=weights[run.group.model])
        return (pool.p_values() <= level).reshape(-1, simulations).mean(axis=1)

    n_effective = sum(np.nanmax(run.test.degrees_of_freedom) for run, _ in pairs if run.test)
    if n_effective < MIN_DEGREES_OF_FREEDOM:
        return {}
    guess = np.tanh((ndtri(1 - level / 2) + ndtri(POWER_WANTED)) / np.sqrt(n_effective - 2))
    effects, count = np.minimum(guess * AROUND, LARGEST_EFFECT), SIMULATED_AT_AN_EFFECT
    shares_found = shares(effects, count, POWER)
    if shares_found.max() < POWER_WANTED - 2 * np.sqrt(POWER_WANTED * (1 - POWER_WANTED) / count):
        return {}
    slope, offset = np.polyfit(effects, ndtri(np.clip(shares_found, 0.5 / count, 1 - 0.5 / count)), 1)
    limit = (ndtri(POWER_WANTED) - offset) / slope if slope > 0 else np.inf
    if limit > LARGEST_EFFECT:
        return {}
    control = shares(np.array([limit]), CONTROLS_DRAWN, CONTROL)[0]
    return {"detectable": float(limit), "positive_control": float(control)}


def planted_metrics(run: ControlledRun, values: Floats, effects: Floats, rng: np.random.Generator) -> Floats:
    """Return metrics (S, T) with the memory of `values` (T,) whose innovations correlate with those of the loss."""
    residuals, sd = _innovations(run)
    shocks = rng.standard_normal((len(effects), BURN_IN + run.segment.n)) * np.sqrt(1 - effects[:, None] ** 2)
    shocks[:, -len(residuals) :] += effects[:, None] * residuals / sd
    return lfilter([1.0], [1.0, *-memory(values)], shocks, axis=1)[:, BURN_IN:]


def noisy_losses(run: ControlledRun, effects: Floats, rng: np.random.Generator) -> Floats:
    """Return the loss with noise (S, T) of its memory, whose innovations correlate with those of the loss."""
    loss = run.segment.targets[0]
    sd = loss.std() * _innovations(run)[1]
    shocks = rng.standard_normal((len(effects), BURN_IN + len(loss))) * sd * np.sqrt(1 / effects[:, None] ** 2 - 1)
    return loss + lfilter([1.0], [1.0, *-memory(loss)], shocks, axis=1)[:, BURN_IN:]


def _innovations(run: ControlledRun) -> tuple[Floats, float]:
    """Return the innovations (n,) of the loss given the covariates, in units of the sd of the loss, and their own sd."""
    loss = prewhiten(
        run.segment.targets, with_squares(run.segment.controls), half_cosine=True, own_past=run.control.past_of_metric
    )
    return loss.values[0], np.sqrt((loss.values**2).sum() / (loss.values.shape[1] - loss.n_fitted[0]))


def memory(values: Floats) -> Floats:
    """Return the coefficients of an autoregression of a series (T,) around its trend, by Yule and Walker: stationary."""
    deviations = orthogonal_to(values[None], trend(len(values)))[0][0]
    order = max_order(len(values))
    covariance = np.correlate(deviations, deviations, "full")[len(values) - 1 :][: order + 1]
    return solve_toeplitz(covariance[:order], covariance[1:]) if covariance[0] > 0 else np.zeros(order)


def estimate(runs: Sequence[ControlledRun], feature: str, models: pd.DataFrame) -> dict[str, float]:
    """Return the correlation over runs as in the verdicts, its 95% interval, and the checkpoints of a run."""
    configurations = configurations_of(models)
    series = _tested_series(runs, feature)
    rows = pd.DataFrame(
        {
            "configuration": [configurations[run.group.model] for run, _ in series],
            "correlation": [run.test.correlation[row, 0] for run, row in series if run.test],
            "variance": [z_variance(run.test)[row, 0] for run, row in series if run.test],
            "n_points": [run.segment.n for run, _ in series],
        }
    ).dropna(subset=["correlation"])
    if rows.empty:
        return {}
    groups = rows.groupby("configuration")
    variances = groups["variance"].sum() / groups.size() ** 2
    interval = pooled_interval(groups["correlation"].mean().to_numpy()[None], variances.to_numpy()[None])
    middle, low, high = (float(end[0]) for end in interval)
    return {"estimate": middle, "low": low, "high": high, "n_points": float(rows["n_points"].median())}


def pooled_interval(correlations: Floats, variances: Floats) -> tuple[Floats, Floats, Floats]:
    """Return medians over configurations of correlations (S, C), NaN where there is none, and their 95% intervals.

    The interval is Fisher's, from variances of z (S, C), for a correlation that all share; it is wide enough for a median.
    NaN with too few degrees of freedom.
    """
    median, count = np.nanmedian(correlations, axis=1), np.isfinite(correlations).sum(axis=1)
    error = np.sqrt(np.nansum(variances, axis=1)) / count * np.where(count > 2, MEDIAN_SD, 1.0)
    is_wide_enough = (np.nansum(RANK_VARIANCE / variances, axis=1) >= MIN_DEGREES_OF_FREEDOM) & np.isfinite(error)
    error = np.where(is_wide_enough, error, np.nan)
    return median, *_fisher_interval(median, error)


def _fisher_interval(correlation: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Return the 95% interval of correlations from the standard error of their Fisher z."""
    z = np.arctanh(np.clip(correlation, -1 + 1e-12, 1 - 1e-12))
    return np.tanh(z - NORMAL * error), np.tanh(z + NORMAL * error)


def z_variance(test: ResidualTest) -> Floats:
    """Return the variance of Fisher's z of correlations (S, M), infinite with too few degrees of freedom."""
    degrees = test.degrees_of_freedom
    return np.where(degrees >= MIN_DEGREES_OF_FREEDOM_OF_RUN, RANK_VARIANCE / np.maximum(degrees - 2, 1), np.inf)


def placebo(runs: Sequence[ControlledRun], feature: str, models: pd.DataFrame, seed: int) -> dict[str, float]:
    """Return how often placebos of a feature are found, and the rank correlations with the loss of feature and placebos."""
    weights = run_weights({run.group.model for run in runs}, models)
    pool = SharedFlips(PLACEBOS, np.concatenate([run.group.steps for run in runs]))
    plain, of_placebos, is_tested = [], [], False
    for index, run in enumerate(runs):
        for values in run.group.values[run.group.keys["feature"] == feature]:
            if run.group.n < MIN_FOR_CORRELATION:
                continue
            drawn = phase_randomised(values, PLACEBOS, np.random.default_rng([seed, PLACEBO, index]))
            plain.append(spearman(values, run.group.targets)[0, 0])
            of_placebos.append(spearman(drawn, run.group.targets)[:, 0])
            if run.test:
                inside = np.isin(run.group.steps, run.segment.steps)
                test = segment_test(run.segment, drawn[:, inside], run.control)
                pool.add(test, run.segment.steps, weight=weights[run.group.model])
                is_tested = True
    rates = {"false_positive_rate": float((pool.p_values() <= LEVEL).mean())} if is_tested else {}
    if not plain:
        return rates
    return rates | {
        "spearman": float(np.median(plain)),
        "spearman_placebo": float(np.median(np.concatenate(of_placebos))),
    }


def doubt(result: Mapping[str, Any], runs: Sequence[ControlledRun], feature: str) -> str:
    """Return why a p-value is not an answer: placebos are found, nothing could be, or losses of other runs are followed."""
    error = np.sqrt(MAX_RATE * (1 - MAX_RATE) / PLACEBOS)
    if result["false_positive_rate"] > MAX_RATE + 2 * error:
        return f"{result['false_positive_rate']:.0%} of its placebos are found, where 5% may be"
    if result["p"] > LEVEL and "detectable" not in result:
        return "there are too few checkpoints to say what would be found"
    if result["p"] <= LEVEL and len(runs) > 1 and follows_other_runs(runs, feature):
        return "it follows the losses of other runs, too, whose course the runs share; give a covariate (--given)"
    return ""


def follows_other_runs(runs: Sequence[ControlledRun], feature: str) -> bool:
    """Return whether half of the ways to pair a metric with the losses of the next runs are significant as well."""
    pairs = [(run.segment, run.segment.values[run.group.keys["feature"] == feature]) for run in runs if run.test]
    series = [(segment, values[0]) for segment, values in pairs if len(values)]
    significant = []
    for shift in range(1, len(series)):
        pool = SharedFlips(1, np.concatenate([segment.steps for segment, _ in series]))
        for (segment, values), (other, _) in zip(series, series[shift:] + series[:shift], strict=True):
            if np.array_equal(segment.steps, other.steps):
                pool.add(residual_test(values, other.targets), segment.steps)
        significant.append(bool(pool.p_values()[0] <= LEVEL))
    return bool(significant) and float(np.mean(significant)) >= 0.5


def between_answers(data: MetricTable, share: float, seed: int) -> pd.DataFrame:
    """Answer the questions between runs: of all runs, or with settings between their seeds and between them."""
    values = data.values_of_runs(share)
    if not data.settings:
        return _compared(data, Question.BETWEEN, values, ["all"] * len(values), share, seed)
    labels = values.index.map(data.settings)
    counts = labels.value_counts()
    seeds = values[[counts[label] >= MIN_SEEDS for label in labels]]
    means = values.groupby(labels).mean()
    return pd.concat(
        [
            _compared(data, Question.SEEDS, seeds, [data.settings[run] for run in seeds.index], share, seed),
            _compared(data, Question.SETTINGS, means, ["all"] * len(means), share, seed),
        ],
        ignore_index=True,
    )


def _compared(
    data: MetricTable, question: Question, values: pd.DataFrame, labels: Sequence[str], share: float, seed: int
) -> pd.DataFrame:
    """Answer a question from a row of values per run, compared within its label."""
    results: dict[str, dict[str, Any]] = {
        name: {"reason": data.untestable(name, by_run=False)} for name in data.metrics
    }
    usable = [name for name, result in results.items() if not result["reason"]]
    needed = ["end", "now", "earlier", *(f"at {name}" for name in data.given)]
    for name in usable:
        rows = values.assign(label=labels)
        rows = rows.dropna(subset=[*needed, f"at {name}"]) if len(rows) else rows
        results[name] = _tested(rows, f"at {name}", needed[1:], len(usable), seed) if len(rows) >= MIN_RUNS else {}
        if not results[name]:
            results[name] = {"n_runs": len(rows), "reason": _missing(question, len(rows), share)}
    return answered(data, question, results)


def _missing(question: Question, count: int, share: float) -> str:
    """Say what a comparison of runs takes."""
    if question is Question.SEEDS:
        return f"no setting has {MIN_SEEDS} runs with the metric and the loss at {share:.0%}, or they do not differ"
    noun = "setting" if question is Question.SETTINGS else "finished run"
    return f"{counted(count, noun)} with the metric and the loss at {share:.0%}; it takes {MIN_RUNS} that differ"


def _tested(rows: pd.DataFrame, name: str, covariates: Sequence[str], n_tested: int, seed: int) -> dict[str, Any]:
    """Test a metric of runs: partial correlation with the end, p by permutation, power, placebos and gain; {}: no test."""
    labels = list(rows["label"])
    square = (rows["now"] - rows.groupby("label")["now"].transform("mean")) ** 2
    controls = np.vstack([rows[[*covariates]].to_numpy(np.float64).T, square])
    outcome, metric = rows["end"].to_numpy(np.float64), rows[name].to_numpy(np.float64)
    test = between_runs(metric, outcome, labels, controls, seed=seed)
    if not np.isfinite(test.p[0]):
        return {}
    random = np.random.default_rng([seed, len(rows)])

    def p_values(effects: Floats) -> Floats:
        planted = _planted(metric, outcome, controls, labels, effects, random)
        return between_runs(planted, outcome, labels, controls, draws=SIMULATED_DRAWS).p

    p = p_values(np.concatenate([np.repeat(EFFECTS, SIMULATIONS), np.zeros(PLACEBOS)]))
    shares_found = (p <= LEVEL / n_tested)[:-PLACEBOS].reshape(len(EFFECTS), -1).mean(axis=1)
    limit = detectable_correlation(np.array(EFFECTS), shares_found)
    is_limited = np.isfinite(limit)
    control = float((p_values(np.full(CONTROLS_DRAWN, limit)) <= LEVEL / n_tested).mean()) if is_limited else np.nan
    spare = test.degrees_of_freedom - test.n_configurations
    (low,), (high,) = _fisher_interval(test.correlation, np.array([1 / np.sqrt(spare) if spare > 0 else np.inf]))
    return {
        "n_runs": test.n_runs,
        "p": test.p[0],
        "estimate": test.correlation[0],
        "low": low,
        "high": high,
        "detectable": limit,
        "positive_control": control,
        "false_positive_rate": float((p[-PLACEBOS:] <= LEVEL).mean()),
        "gain": gain(metric, outcome, controls, labels),
        "reason": "" if is_limited or test.p[0] <= LEVEL else "with so few runs no correlation would be found",
    }


def _planted(
    metric: Floats,
    outcome: Floats,
    controls: Floats,
    labels: Sequence[str],
    effects: Floats,
    random: np.random.Generator,
) -> Floats:
    """Return a simulated metric (S, R) for each partial correlation; one of 0 has the metric's own residuals, permuted."""
    simulated = np.zeros((len(effects), len(metric)))
    for runs in members_of(labels):
        fit = fit_of_configuration(metric[None], outcome[None], controls, runs)
        scale = np.sqrt((fit.residuals**2).sum() / max(fit.degrees_of_freedom, 1))
        signal = fit.residuals / scale if scale > 0 else fit.residuals
        residuals = np.tile(fit.features * np.sqrt(max(fit.degrees_of_freedom, 1)), (len(effects), 1))
        noise = np.where(
            effects[:, None] == 0, random.permuted(residuals, axis=1), random.standard_normal(residuals.shape)
        )
        simulated[:, runs] = effects[:, None] * signal + np.sqrt(1 - effects[:, None] ** 2) * noise
    return simulated


def gain(metric: Floats, outcome: Floats, controls: Floats, labels: Sequence[str]) -> float:
    """Return by what share the metric reduces the error of the end of runs that the fit has not seen, one left out each."""
    errors = np.zeros(2)
    for runs in members_of(labels):
        fit = fit_of_configuration(metric[None], outcome[None], controls, runs)
        for place, design in enumerate((fit.design, np.vstack([fit.design, fit.features]))):
            basis = np.linalg.svd(design / np.linalg.norm(design, axis=1, keepdims=True), full_matrices=False)[2]
            leverage = (basis**2).sum(axis=0)
            residuals = outcome[runs] - basis.T @ (basis @ outcome[runs])
            errors[place] += ((residuals / np.maximum(1.0 - leverage, 1e-9)) ** 2).sum()
    return float(1.0 - np.sqrt(errors[1] / errors[0])) if errors[0] > 0 else float("nan")
