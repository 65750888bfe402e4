"""The questions of `test_metric` over checkpoints: the test of prewhitened residuals, its power, and its placebos."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.linalg import solve_toeplitz
from scipy.signal import lfilter
from scipy.special import ndtri

from toposcale.analysis.aligned import join_rows
from toposcale.analysis.controls import LEVEL, NOT_TESTED, Control
from toposcale.analysis.correlations import ControlledRun, controlled_runs, joint_test, run_weights, segment_test
from toposcale.analysis.metric_input import ALIASES, LEARNING_RATE, STEP, MetricTable
from toposcale.analysis.metric_questions import (
    CONTROLS_DRAWN,
    HALF_WIDTH,
    MAX_RATE,
    PLACEBOS,
    Question,
    answered,
    given_words,
    untestable,
)
from toposcale.analysis.sensitivity import POWER_WANTED
from toposcale.analysis.series import MIN_FOR_CORRELATION, configurations_of
from toposcale.features.feature import WEIGHT_NORM
from toposcale.io.schemas import ALL_LAYERS
from toposcale.statistics.coefficients import Floats, orthogonal_to, spearman
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

POINTS, POINTS_PER_COVARIATE, POINTS_OF_A_SCHEDULE = 20, 15, 10
"""Checkpoints of a run that the test needs: with fewer no degrees of freedom are left for the past, and the false-positive
rate rises above 7% (`make nulls ONLY=metrics`). A learning rate is smooth, and takes fewer than other covariates."""
POINTS_AHEAD = 100
"""The same for each checkpoint that the metric looks ahead, where that is more than one: such losses overlap."""
MIN_FREEDOM_OF_RUN, MIN_FREEDOM = 15, 30
"""Degrees of freedom of a run, and of all runs together, below which an interval covers less than it says, and metrics of
the promised size are found less often."""
RANK_VARIANCE = 1.06
"""Variance of a rank correlation's Fisher z, relative to Pearson's (Fieller, Hartley and Pearson 1957)."""
MEDIAN_SD = np.sqrt(np.pi / 2)
"""Standard deviation of a median relative to that of a mean, at most."""
SIMULATIONS = 100
"""Simulated metrics of each effect."""
AROUND, LARGEST_EFFECT = np.array([0.8, 1.15, 1.6, 2.2]), 0.95
"""Effects around the first guess of what is found, and the largest that is simulated."""
BURN_IN = 100
POWER, PLACEBO, CONTROL = range(10, 13)


@dataclass(frozen=True)
class Covariates(Control):
    """The user's covariates; the trend in the step is always held fixed, so that there is a test without any."""

    @property
    def is_tested(self) -> bool:
        """Always."""
        return True


def over_checkpoints(
    data: MetricTable, question: Question, lead: int, seed: int
) -> tuple[pd.DataFrame, list[ControlledRun]]:
    """Answer a question over checkpoints; lead: by how many the loss leads the metric and is a covariate itself."""
    covariates = data.given if lead == 0 else (data.target, *data.given)
    control = Covariates("given", covariates, past_of_metric=lead == 0, missing="a covariate is not there")
    reasons = {name: untestable(data, name) for name in data.metrics}
    usable = [name for name in data.metrics if not reasons[name]]
    features = _long(data.rows, [*usable, *covariates], "feature").assign(source=WEIGHT_NORM.source, layer=ALL_LAYERS)
    targets = _long(leading(data.rows, data.target, lead), [data.target], "metric")
    models = pd.DataFrame(
        [(run, warmup, data.settings.get(run, run)) for run, warmup in data.warmups.items()],
        columns=["model", "warmup_steps", "configuration"],
    )
    nothing = pd.DataFrame({"metric": [*data.metrics], "reason": [reasons[name] for name in data.metrics]})
    nothing = nothing.assign(
        question=question, target=data.target, given=given_words(data), n_runs=0, answer=NOT_TESTED
    )
    if not usable or targets.empty:
        return answered(nothing.assign(p=np.nan)), []
    least = least_points(covariates, lead)
    runs = [_with_enough(one, least) for one in controlled_runs(features, targets, models, control)]
    tests = joint_test(runs, models).set_index("feature").reindex(usable).reset_index()
    tested = [name for name, p in zip(tests["feature"], tests["p"], strict=True) if np.isfinite(p)]
    rows = tests.drop(columns=["source", "layer", "metric"]).rename(columns={"feature": "metric", "n_tested": "n_runs"})
    rows = rows.assign(question=question, target=data.target, given=given_words(data))
    rows = rows.merge(estimates(runs, models), left_on="metric", right_index=True, how="left")
    placebos = {name: placebo(runs, name, models, seed) for name in usable}
    for place, column in enumerate(("false_positive_rate", "spearman", "spearman_placebo")):
        rows[column] = [placebos[name][place] for name in rows["metric"]]
    powers = {name: power(runs, name, len(tested), models, seed) for name in tested}
    for place, column in enumerate(("detectable", "positive_control")):
        rows[column] = [powers.get(name, (np.nan, np.nan))[place] for name in rows["metric"]]
    for at, row in rows.iterrows():
        if np.isfinite(row["p"]):
            rows.loc[at, "reason"] = doubt(row, runs if not data.given and lead == 0 else [])
    return answered(pd.concat([rows, nothing[nothing["reason"] != ""]], ignore_index=True)), runs


def least_points(covariates: Sequence[str], lead: int) -> int:
    """Return the checkpoints of a run that a test with these covariates needs."""
    n_rates = len({*covariates} & {*ALIASES[LEARNING_RATE]})
    points = POINTS + POINTS_PER_COVARIATE * (len(covariates) - n_rates) + POINTS_OF_A_SCHEDULE * n_rates
    return max(points, POINTS_AHEAD * lead if lead > 1 else 0)


def leading(rows: pd.DataFrame, target: str, lead: int) -> pd.DataFrame:
    """Return the rows with the loss of `lead` checkpoints later, by the commonest distance of checkpoints of the run."""
    if lead == 0:
        return rows
    parts = []
    for _, of_run in rows.dropna(subset=[target]).groupby("run"):
        loss = of_run.set_index(STEP)[target]
        distances = np.diff(loss.index.to_numpy(np.float64))
        distance = pd.Series(distances).mode().iloc[0] if len(distances) else 1.0
        parts.append(of_run.assign(**{target: loss.reindex(loss.index + lead * distance).to_numpy()}))
    return pd.concat(parts) if parts else rows.iloc[:0]


def _long(rows: pd.DataFrame, columns: Sequence[str], name: str) -> pd.DataFrame:
    """Return columns of the table as rows of model, step, name and value."""
    chosen = rows.rename(columns={"run": "model"})[["model", STEP, *dict.fromkeys(columns)]]
    return chosen.melt(["model", STEP], var_name=name, value_name="value").dropna(subset=["value"])


def _with_enough(run: ControlledRun, least: int) -> ControlledRun:
    """Return a run without its test if it has fewer checkpoints than the covariates take."""
    if run.test is None or run.segment.n >= least:
        return run
    points = f"{run.segment.n} evenly spaced checkpoints after twice the warm-up"
    return replace(run, test=None, reason=f"{points}; the test needs {least} here")


def power(
    runs: Sequence[ControlledRun], feature: str, n_tested: int, models: pd.DataFrame, seed: int
) -> tuple[float, float]:
    """Return the correlation that is found in 80% of cases, and the share of further metrics of that size that are found.

    The correlation is that of the innovations. Around a first guess a line is fitted to the probits of the shares found.
    """
    pairs = [
        (run, values) for run in runs if run.test for values in run.segment.values[run.group.keys["feature"] == feature]
    ]
    weights = run_weights({run.group.model for run, _ in pairs}, models)
    level = LEVEL / n_tested

    def shares(effects: Floats, simulations: int, purpose: int) -> Floats:
        planted = np.repeat(effects, simulations)
        pool = SharedFlips(len(planted), np.concatenate([run.segment.steps for run, _ in pairs]))
        for index, (run, values) in enumerate(pairs):
            drawn = planted_metrics(run, values, planted, np.random.default_rng([seed, purpose, index]))
            pool.add(segment_test(run.segment, drawn, run.control), run.segment.steps, weight=weights[run.group.model])
        return (pool.p_values() <= level).reshape(-1, simulations).mean(axis=1)

    n_effective = sum(np.nanmax(run.test.degrees_of_freedom) for run, _ in pairs if run.test)
    if n_effective < MIN_FREEDOM:
        return np.nan, np.nan
    guess = np.tanh((ndtri(1 - level / 2) + ndtri(POWER_WANTED)) / np.sqrt(n_effective - 2))
    effects = np.minimum(guess * AROUND, LARGEST_EFFECT)
    found = shares(effects, SIMULATIONS, POWER)
    if found.max() < POWER_WANTED - 2 * np.sqrt(POWER_WANTED * (1 - POWER_WANTED) / SIMULATIONS):
        return np.nan, np.nan
    slope, offset = np.polyfit(effects, ndtri(np.clip(found, 0.5 / SIMULATIONS, 1 - 0.5 / SIMULATIONS)), 1)
    limit = (ndtri(POWER_WANTED) - offset) / slope if slope > 0 else np.inf
    if limit > LARGEST_EFFECT:
        return np.nan, np.nan
    return float(limit), float(shares(np.array([limit]), CONTROLS_DRAWN, CONTROL)[0])


def planted_metrics(run: ControlledRun, values: Floats, effects: Floats, rng: np.random.Generator) -> Floats:
    """Return metrics (S, T) with the memory of `values` (T,) whose innovations correlate with those of the loss."""
    n = run.segment.n
    loss = prewhiten(
        run.segment.targets, with_squares(run.segment.controls), half_cosine=True, own_past=run.control.past_of_metric
    )
    residuals = loss.values[0] / np.sqrt((loss.values**2).sum() / (loss.values.shape[1] - loss.n_fitted[0]))
    shocks = rng.standard_normal((len(effects), BURN_IN + n)) * np.sqrt(1 - effects[:, None] ** 2)
    shocks[:, -len(residuals) :] += effects[:, None] * residuals
    return lfilter([1.0], [1.0, *-memory(values)], shocks, axis=1)[:, BURN_IN:]


def memory(values: Floats) -> Floats:
    """Return the coefficients of an autoregression of a series (T,) around its trend, by Yule and Walker: stationary."""
    deviations = orthogonal_to(values[None], trend(len(values)))[0][0]
    order = max_order(len(values))
    covariance = np.correlate(deviations, deviations, "full")[len(values) - 1 :][: order + 1]
    return solve_toeplitz(covariance[:order], covariance[1:]) if covariance[0] > 0 else np.zeros(order)


def estimates(runs: Sequence[ControlledRun], models: pd.DataFrame) -> pd.DataFrame:
    """Return by feature the correlation over runs as in the verdicts, its 95% interval, and the checkpoints of a run."""
    parts = [
        run.group.rows({"z": run.test.correlation, "variance": z_variance(run.test), "points": run.segment.n})
        for run in runs
        if run.test
    ]
    if not parts:
        return pd.DataFrame(columns=["estimate", "low", "high", "n_points"])
    rows = join_rows(parts).dropna(subset=["z"])
    rows["configuration"] = rows["model"].map(configurations_of(models))
    groups = rows.groupby(["feature", "configuration"])
    means, variances = groups["z"].mean(), groups["variance"].sum() / groups.size() ** 2
    estimate, low, high = pooled_interval(means.unstack().to_numpy(), variances.unstack().to_numpy())
    table = rows.groupby("feature")["points"].median().rename("n_points").to_frame()
    return table.assign(estimate=estimate, low=low, high=high)


def pooled_interval(correlations: Floats, variances: Floats) -> tuple[Floats, Floats, Floats]:
    """Return medians over configurations of correlations (S, C), NaN where there is none, and their 95% intervals.

    The interval is Fisher's, from variances of z (S, C), for a correlation that all share; it is wide enough for a median.
    NaN with too few degrees of freedom.
    """
    median, count = np.nanmedian(correlations, axis=1), np.isfinite(correlations).sum(axis=1)
    error = np.sqrt(np.nansum(variances, axis=1)) / count * np.where(count > 2, MEDIAN_SD, 1.0)
    is_wide_enough = (np.nansum(RANK_VARIANCE / variances, axis=1) >= MIN_FREEDOM) & np.isfinite(error)
    error = np.where(is_wide_enough, error, np.nan)
    z = np.arctanh(np.clip(median, -1 + 1e-12, 1 - 1e-12))
    return median, np.tanh(z - HALF_WIDTH * error), np.tanh(z + HALF_WIDTH * error)


def z_variance(test: ResidualTest) -> Floats:
    """Return the variance of Fisher's z of correlations (S, M), infinite with too few degrees of freedom."""
    freedom = test.degrees_of_freedom
    return np.where(freedom >= MIN_FREEDOM_OF_RUN, RANK_VARIANCE / np.maximum(freedom - 2, 1), np.inf)


def placebo(runs: Sequence[ControlledRun], feature: str, models: pd.DataFrame, seed: int) -> tuple[float, float, float]:
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
    rate = float((pool.p_values() <= LEVEL).mean()) if is_tested else np.nan
    return rate, *((np.median(plain), float(np.median(np.concatenate(of_placebos)))) if plain else (np.nan, np.nan))


def doubt(row: pd.Series, runs: Sequence[ControlledRun]) -> str:
    """Return why a p-value is no answer: placebos are found, nothing could be, or other runs' losses are followed, too."""
    error = np.sqrt(MAX_RATE * (1 - MAX_RATE) / PLACEBOS)
    if row["false_positive_rate"] > MAX_RATE + 2 * error:
        return f"{row['false_positive_rate']:.0%} of its placebos are found, where 5% may be"
    if row["p"] > LEVEL and np.isnan(row["detectable"]):
        return "there are too few checkpoints to say what would be found"
    if row["p"] <= LEVEL and len(runs) > 1 and follows_other_runs(runs, row["metric"]):
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
