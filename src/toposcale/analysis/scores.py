"""Forecasts of task scores, such as arc_easy.acc: from the forecast loss, and from the score's own curve.

In two stages: the loss is forecast, and a sigmoid that all models share turns it into a score.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.special import expit

from toposcale.analysis.forecasts import calibrated_rows, has_reached
from toposcale.analysis.methods import default_method, forecast, make
from toposcale.analysis.training_runs import trainings_from_tables
from toposcale.forecasting.laws.power_law import fit_loss_curve
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.laws.residuals import student_t
from toposcale.forecasting.runs.metrics import VALIDATION_LOSS
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io import schemas
from toposcale.io.errors import UserError

PARAMETERS = 4
MIN_CHECKPOINTS = PARAMETERS + 4


class ScoreLaw(NamedTuple):
    """Sigmoid score = floor + rise / (1 + exp(slope (loss - middle)))."""

    floor: float  # score at chance
    rise: float
    slope: float
    middle: float
    spread: float  # standard deviation of the residuals
    n_points: int

    def __call__(self, losses: np.ndarray | float) -> np.ndarray:
        """Return the fitted scores at losses in nats per token."""
        above = np.asarray(losses, dtype=np.float64) - self.middle
        return np.asarray(self.floor + self.rise * expit(-self.slope * above))

    def predict(self, loss: Prediction) -> Prediction:
        """Return the score at a forecast loss; its 95% interval combines that of the loss and the residuals."""
        value, worst, best = (float(self(at)) for at in (loss.value, loss.high, loss.low))
        noise = student_t(self.n_points - PARAMETERS) * self.spread
        low, high = value - np.hypot(value - worst, noise), value + np.hypot(best - value, noise)
        return Prediction(value, max(float(low), 0.0), min(float(high), 1.0))


def fit_score_law(losses: np.ndarray, scores: np.ndarray) -> ScoreLaw:
    """Fit the sigmoid to points (n,) by least squares: 0 <= floor <= 1, 0 <= rise <= 1, slope >= 0.

    ValueError: fewer than 8 finite points, a score that is not from 0 to 1, or losses that are all the same.
    """
    losses, scores = np.asarray(losses, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    usable = np.isfinite(losses) & np.isfinite(scores)
    losses, scores = losses[usable], scores[usable]
    if len(losses) < MIN_CHECKPOINTS:
        raise ValueError(f"{len(losses)} checkpoints have a loss and a score; {MIN_CHECKPOINTS} are needed at least")
    if scores.min() < 0 or scores.max() > 1:
        raise ValueError("the score is not a number from 0 to 1")
    low, high = float(losses.min()), float(losses.max())
    width = high - low
    if not width > 0:
        raise ValueError("the loss is the same at all checkpoints")

    def residuals(parameters: np.ndarray) -> np.ndarray:
        floor, rise, slope, middle = parameters
        return ScoreLaw(floor, rise, slope, middle, spread=0.0, n_points=len(losses))(losses) - scores

    floor, rise = float(scores.min()), float(np.clip(np.ptp(scores), 1e-3, 1.0))
    bounds = ([0, 0, 0, low - width], [1, 1, 100 / width, high])
    starts = [(floor, rise, slope / width, low + share * width) for slope in (3, 12) for share in (0.0, 0.2, 0.5)]
    fits = [least_squares(residuals, start, bounds=bounds, x_scale=[1, 1, 1 / width, width]) for start in starts]
    best = min(fits, key=lambda fit: float(fit.cost))
    spread = float(np.sqrt(2 * best.cost / (len(losses) - PARAMETERS)))
    floor, rise, slope, middle = best.x.tolist()
    return ScoreLaw(floor, rise, slope, middle, spread, len(losses))


def score_tables(
    metrics: pd.DataFrame,
    models: pd.DataFrame,
    training: pd.DataFrame,
    schedules: pd.DataFrame,
    *,
    fractions: Sequence[float],
    score_metrics: Sequence[str],
    loss_metric: str | None,
) -> dict[str, pd.DataFrame]:
    """Make the tables score_forecasts and score_evaluation; UserError: a metric that is not measured.

    loss_metric: a loss, or a perplexity whose logarithm counts; None: the validation loss, else the training loss.
    """
    measured_metrics = sorted(metrics["metric"].unique())
    for name in [*score_metrics, *([loss_metric] if loss_metric else [])]:
        if name not in measured_metrics:
            raise UserError(f"forecasts: no metric {name}; there are {', '.join(measured_metrics) or 'none'}")
    if loss_metric:
        training = training.iloc[:0]  # a training log is of another loss than that metric
        losses = metrics[metrics["metric"] == loss_metric].assign(metric=VALIDATION_LOSS)
        if loss_metric.endswith(("ppl", "perplexity")):
            losses = losses.assign(value=np.log(losses["value"]))
        metrics = pd.concat([metrics[metrics["metric"].isin(score_metrics)], losses])
    trainings = trainings_from_tables(pd.DataFrame(), metrics, training, models, schedules=schedules)
    rows = []
    for name in score_metrics:
        rows_of_metric = metrics[metrics["metric"] == name].dropna(subset=["value"]).drop_duplicates(["model", "step"])
        series = {
            model: rows.set_index("step")["value"].sort_index() for model, rows in rows_of_metric.groupby("model")
        }
        started = [run for run in trainings if run.model in series]
        for fraction in fractions:
            family = [run.first(fraction) for run in started]
            reached = [beginning for beginning, run in zip(family, started, strict=True) if has_reached(run, fraction)]
            actual = [_final_score(run, series[run.model]) for run in started if has_reached(run, fraction)]
            observed_scores = {
                beginning.model: series[beginning.model].loc[: fraction * beginning.final_step + 1e-6]
                for beginning in family
            }
            for method, predictions in (
                ("two_stages", _two_stages(family, reached, observed_scores)),
                (
                    "power_law",
                    [_own_curve(observed_scores[beginning.model], beginning.final_step) for beginning in reached],
                ),
            ):
                columns = {"metric": name, "fraction": fraction, "method": method}
                rows += calibrated_rows(reached, predictions, actual, **columns)
    table = schemas.TABLES["score_forecasts"].frame(rows)
    return {"score_forecasts": table, "score_evaluation": evaluation_table(table)}


def evaluation_table(forecasts: pd.DataFrame) -> pd.DataFrame:
    """Make the table score_evaluation: mean absolute error and coverage of each metric, fraction and method."""
    rows = []
    key = ["metric", "fraction", "method"]
    for names, group in forecasts.groupby(key):
        usable = group.dropna(subset=["forecast", "actual"])
        inside = (usable["own_low"] <= usable["actual"]) & (usable["actual"] <= usable["own_high"])
        means = {"mae": usable["error"].abs().mean(), "interval_coverage": inside.mean() if len(usable) else np.nan}
        rows.append(dict(zip(key, names, strict=True)) | means | {"n_models": len(usable)})
    return schemas.TABLES["score_evaluation"].frame(rows)


def _final_score(training: TrainingRun, scores: pd.Series) -> float:
    return float(scores.iloc[-1]) if training.is_finished and scores.index[-1] >= training.progress.step else np.nan


def _two_stages(
    family: Sequence[TrainingRun], reached: Sequence[TrainingRun], observed_scores: Mapping[str, pd.Series]
) -> list[Prediction]:
    names = {beginning.family for beginning in family}
    laws = {
        name: _shared_law([beginning for beginning in family if beginning.family == name], observed_scores)
        for name in names
    }
    predictions = []
    for beginning in reached:
        law, loss = laws[beginning.family], forecast(make(default_method(beginning)), beginning, family)
        if isinstance(law, str) or loss.reason:
            predictions.append(Prediction.none(law if isinstance(law, str) else loss.reason))
        else:
            predictions.append(law.predict(loss))
    return predictions


def _shared_law(family: Sequence[TrainingRun], observed_scores: Mapping[str, pd.Series]) -> ScoreLaw | str:
    """Fit one sigmoid to all models of a family; return the reason if there is none."""
    losses, scores = [], []
    for beginning in family:
        curve = pd.Series(beginning.checkpoint_losses, index=beginning.checkpoint_steps).dropna()
        common = curve.index.intersection(observed_scores[beginning.model].index)
        losses.append(curve[common].to_numpy())
        scores.append(observed_scores[beginning.model][common].to_numpy())
    try:
        return fit_score_law(np.concatenate(losses), np.concatenate(scores))
    except ValueError as error:
        return str(error)


def _own_curve(observed_scores: pd.Series, final_step: int) -> Prediction:
    """Forecast a score by a power law in the step of its distance to 1: the baseline, which reads no loss."""
    after_start = observed_scores[observed_scores.index > 0]
    try:
        law = fit_loss_curve(after_start.index.to_numpy(dtype=np.float64), 1 - after_start.to_numpy())
    except ValueError as error:
        return Prediction.none(str(error))
    low, high = law.interval(float(final_step))
    return Prediction(1 - float(law(float(final_step))), max(1 - high, 0.0), min(1 - low, 1.0))
