"""Forecasts of every model at every share of training, with calibrated intervals, and their errors."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from toposcale.analysis.methods import METHODS, Family, forecast, make
from toposcale.analysis.series import configurations_of
from toposcale.analysis.training_runs import features_of, trainings_from_tables
from toposcale.forecasting.laws.joint import Joint, largest_run
from toposcale.forecasting.laws.prediction import CONFIDENCE, Prediction
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io import schemas
from toposcale.io.errors import NoForecast

MIN_RUNS = 5
"""Finished runs below which an interval stays that of the method, and its coverage unknown."""


class Calibration(NamedTuple):
    """Factor on the intervals of a method, in the logarithm of the loss, and the nominal coverage that it gives."""

    factor: float
    coverage: float

    def __call__(self, prediction: Prediction) -> tuple[Prediction, float]:
        """Return the forecast with its calibrated interval, and its coverage; NaN where it could not be rescaled."""
        value = prediction.value
        if not (np.isfinite(self.coverage) and 0 < prediction.low <= value <= prediction.high < np.inf):
            return prediction, np.nan
        low, high = (value * (end / value) ** self.factor for end in (prediction.low, prediction.high))
        return Prediction(value, low, high, prediction.reason), self.coverage


def nonconformity(prediction: Prediction, actual: float) -> float:
    """Return the error of a forecast in units of its interval, the nonconformity score; NaN without one.

    Above 1 the interval does not cover the actual loss.
    """
    if not (0 < prediction.low < prediction.value < prediction.high < np.inf and actual > 0):
        return np.nan
    end = prediction.high if actual > prediction.value else prediction.low
    return float(np.log(actual / prediction.value) / np.log(end / prediction.value))


def calibrate(nonconformities: Sequence[float] | np.ndarray) -> Calibration:
    """Calibrate by the ceil(0.95 (n + 1))-th smallest nonconformity of n exchangeable finished runs (Vovk et al. 2005).

    With fewer than 19 runs the largest is used, and the nominal coverage is n / (n + 1).
    """
    finite = np.sort(np.asarray(nonconformities, dtype=np.float64))
    finite = finite[np.isfinite(finite)]
    n = len(finite)
    if n < MIN_RUNS:
        return Calibration(1.0, np.nan)
    rank = int(np.ceil(CONFIDENCE * (n + 1)))
    return Calibration(float(finite[min(rank, n) - 1]), CONFIDENCE if rank <= n else n / (n + 1))


def calibrate_on_others(
    predictions: Sequence[Prediction], actual: Sequence[float] | np.ndarray
) -> list[tuple[Prediction, float]]:
    """Calibrate the interval of every forecast on all others; return it with the nominal coverage that this gives.

    actual: the final loss, NaN of a run that is not finished.
    """
    nonconformities = np.array(
        [nonconformity(prediction, truth) for prediction, truth in zip(predictions, actual, strict=True)]
    )
    return [calibrate(np.delete(nonconformities, index))(prediction) for index, prediction in enumerate(predictions)]


FRACTIONS = (0.2, 0.3, 0.5)
BASELINES = [name for name, method in METHODS.items() if method.reads in ("loss", "size")]
"""Baselines: the methods that read only the loss, or only the number of parameters."""
MIN_FORECAST_SHARE = 0.8
"""A method that forecasts at least this share of the models is compared with the methods that forecast all of them."""
MIN_COVERAGE = 0.8


def forecast_tables(
    *, fractions: Sequence[float], seed: int, resamples: int, **tables: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Make the tables forecasts and forecast_evaluation; tables: those of `trainings_from_tables`."""
    trainings = trainings_from_tables(**tables)
    forecasts = forecast_table(trainings, fractions=fractions, seed=seed)
    evaluated = evaluate(forecasts, configurations_of(tables["models"]), resamples=resamples, seed=seed)
    return {"forecasts": forecasts, "forecast_evaluation": evaluated}


def forecast_table(
    trainings: Sequence[TrainingRun],
    *,
    fractions: Sequence[float] = FRACTIONS,
    methods: Sequence[str] = tuple(METHODS),
    seed: int = 0,
) -> pd.DataFrame:
    """Make the table forecasts; intervals are calibrated over the other finished runs.

    A run under way has rows up to its last step. Fraction 0 is the joint law without any run of that size.
    """
    finals = {training.model: training.progress.loss if training.is_finished else np.nan for training in trainings}
    finished = {training.model: training for training in trainings if training.is_finished}
    rows = []
    started = [training for training in trainings if not training.loss_curve.is_empty or features_of(training)]
    for fraction in fractions:
        family = [training.first(fraction) for training in started]
        # A run that has not come so far has no first part of this length.
        reached = [
            beginning for beginning, training in zip(family, started, strict=True) if has_reached(training, fraction)
        ]
        actual = [finals[beginning.model] for beginning in reached]
        for method in methods:
            forecaster = make(method, Family(family, finished, seed))
            predictions = [forecast(forecaster, training, family) for training in reached]
            rows += calibrated_rows(reached, predictions, actual, fraction=fraction, method=method)
    if "joint" in methods:
        rows += _rows_of_unseen_sizes(trainings, finals)
    return schemas.TABLES["forecasts"].frame(rows)


def has_reached(training: TrainingRun, fraction: float) -> bool:
    """Return whether a run has come to `fraction` of its end, or to its end."""
    return training.is_finished or training.progress.step >= fraction * training.final_step * (1 - 1e-9)


def calibrated_rows(
    trainings: Sequence[TrainingRun], predictions: Sequence[Prediction], actual: Sequence[float], **columns: object
) -> list[dict[str, Any]]:
    """Return a row for each training, its interval calibrated over the other finished ones; columns: of every row."""
    calibrated_forecasts = calibrate_on_others(predictions, actual)
    return [
        columns | _row(training, uncalibrated, calibrated, coverage, truth)
        for training, uncalibrated, (calibrated, coverage), truth in zip(
            trainings, predictions, calibrated_forecasts, actual, strict=True
        )
    ]


def _rows_of_unseen_sizes(trainings: Sequence[TrainingRun], finals: Mapping[str, float]) -> list[dict[str, Any]]:
    """Forecast every run with a known schedule from finished runs of other sizes: fraction 0, method joint."""
    laws: dict[tuple[str, float], Joint | NoForecast] = {}
    rows = []
    for training in trainings:
        key = training.family, training.n_parameters
        if key not in laws:
            finished = [other for other in trainings if other.is_finished and other.family == training.family]
            other_sizes = [other for other in finished if other.n_parameters != training.n_parameters]
            try:
                laws[key] = Joint(check=False).fit(largest_run(other_sizes), other_sizes)
            except NoForecast as error:
                laws[key] = error
        law = laws[key]
        if isinstance(law, NoForecast):
            if not training.loss_curve.is_empty:
                continue  # no other size: nothing to say, and nothing was asked
            prediction = Prediction.none(str(law))
        elif not training.schedule.is_known:
            prediction = Prediction.none(training.schedule.unknown_because)
        else:
            prediction = law.forecast(training)
        row = _row(training, prediction, prediction, np.nan, finals[training.model])
        rows.append({"fraction": 0.0, "method": "joint"} | row)
    return rows


def _row(
    training: TrainingRun, uncalibrated: Prediction, calibrated: Prediction, coverage: float, actual: float
) -> dict[str, Any]:
    return {
        "model": training.model,
        "forecast": calibrated.value,
        "low": calibrated.low,
        "high": calibrated.high,
        "calibrated_to": coverage,
        "own_low": uncalibrated.low,
        "own_high": uncalibrated.high,
        "actual": actual,
        "error": calibrated.value - actual,
        "reason": calibrated.reason,
    }


def evaluate(
    forecasts: pd.DataFrame, configurations: Mapping[str, str] | None = None, *, resamples: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Make the table forecast_evaluation: one row for each fraction and method.

    Errors are averaged over the seeds of a configuration; intervals are 95% bootstraps over configurations. The
    baseline has the least error of those in `BASELINES` that forecast at least `MIN_FORECAST_SHARE` of the models, and is
    compared by a two-sided signed-rank test.
    """
    rows = []
    configurations = configurations or {}
    for _, group in forecasts.groupby(["fraction", "method"], sort=True):
        fraction, method = group["fraction"].iloc[0], group["method"].iloc[0]
        cohort = forecasts[forecasts["fraction"] == fraction]
        baseline = _best_baseline(cohort)
        row: dict[str, Any] = {"fraction": fraction, "method": method, "baseline": baseline}
        row |= _accuracy(group, configurations, resamples, seed)
        row |= _against_baseline(group, cohort[cohort["method"] == baseline], configurations, resamples, seed)
        power_law = _against_baseline(group, cohort[cohort["method"] == "power_law"], configurations, resamples, seed)
        row["over_power_law_percent"] = power_law.get("improvement_percent", np.nan)
        rows.append(row)
    return schemas.TABLES["forecast_evaluation"].frame(rows)


def bootstrap_interval(values: np.ndarray, resamples: int, seed: int) -> tuple[float, float]:
    """Return the 95% percentile interval of the mean over the rows of `values`; NaN for fewer than two."""
    if len(values) < 2:
        return np.nan, np.nan
    draws = np.random.default_rng(seed).integers(0, len(values), size=(resamples, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


def _sizes_by_configuration(errors: pd.Series, models: pd.Series, configurations: Mapping[str, str]) -> np.ndarray:
    """Average absolute errors over the seeds of each configuration."""
    return errors.abs().groupby(models.map(lambda model: configurations.get(model, model))).mean().to_numpy(np.float64)


def _accuracy(group: pd.DataFrame, configurations: Mapping[str, str], resamples: int, seed: int) -> dict[str, Any]:
    from scipy.stats import spearmanr  # slow to import: see docs/performance.md

    usable = group[group["forecast"].notna() & group["actual"].notna()]
    errors = _sizes_by_configuration(usable["error"], usable["model"], configurations)
    low, high = bootstrap_interval(errors, resamples, seed)
    varied = len(usable) >= 3 and usable["forecast"].nunique() > 1 and usable["actual"].nunique() > 1
    # Of intervals calibrated on the other ones of fewer than 20 runs exactly one misses, whatever the method.
    covered = (usable["own_low"] <= usable["actual"]) & (usable["actual"] <= usable["own_high"])
    return {
        "n_models": int(group["actual"].notna().sum()),
        "n_forecasts": len(usable),
        "mae": float(errors.mean()) if len(errors) else np.nan,
        "mae_low": low,
        "mae_high": high,
        "spearman": float(spearmanr(usable["forecast"], usable["actual"])[0]) if varied else np.nan,
        "interval_coverage": float(covered.mean()) if len(usable) else np.nan,
    }


def _against_baseline(
    group: pd.DataFrame, baseline: pd.DataFrame, configurations: Mapping[str, str], resamples: int, seed: int
) -> dict[str, Any]:
    from scipy.stats import wilcoxon  # slow to import: see docs/performance.md

    pair = group.merge(baseline[["model", "error"]], on="model", suffixes=("", "_baseline"))
    pair = pair.dropna(subset=["error", "error_baseline"])
    errors, base = (
        _sizes_by_configuration(pair[name], pair["model"], configurations) for name in ("error", "error_baseline")
    )
    if len(errors) < 2 or base.sum() == 0:
        return {"n_compared": len(errors)}
    draws = np.random.default_rng(seed).integers(0, len(errors), size=(resamples, len(errors)))
    totals = base[draws].sum(axis=1)
    improvements = 100 * (1 - errors[draws].sum(axis=1)[totals > 0] / totals[totals > 0])
    low, high = np.quantile(improvements, (0.025, 0.975))
    same = np.allclose(errors, base, rtol=0, atol=1e-15)
    return {
        "improvement_percent": float(100 * (1 - errors.sum() / base.sum())),
        "improvement_low": float(low),
        "improvement_high": float(high),
        "n_compared": len(errors),
        "improvement_p": 1.0 if same else float(wilcoxon(errors, base).pvalue),
    }


def _best_baseline(forecasts: pd.DataFrame) -> str:
    """Return the best of `BASELINES` that forecasts at least `MIN_FORECAST_SHARE` of the models; "" without one."""
    judged = forecasts[forecasts["method"].isin(BASELINES)].dropna(subset=["error"])
    if judged.empty:
        return ""
    errors = judged.assign(error=judged["error"].abs()).groupby("method")["error"].agg(["count", "mean"])
    return str(errors.loc[errors["count"] >= MIN_FORECAST_SHARE * errors["count"].max(), "mean"].idxmin())
