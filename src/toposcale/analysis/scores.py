"""Forecasts of task scores, such as arc_easy.acc: from the forecast loss, and from the score's own curve."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from toposcale.analysis.forecasts import calibrated_rows, has_reached
from toposcale.analysis.methods import default_method, forecast, make
from toposcale.analysis.score_law import ScoreLaw, fit_score_law
from toposcale.analysis.training_runs import trainings_from_tables
from toposcale.forecasting.laws.power_law import fit_loss_curve
from toposcale.forecasting.laws.prediction import Prediction
from toposcale.forecasting.runs.metrics import VALIDATION_LOSS
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io import schemas
from toposcale.io.errors import UserError


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
    present = sorted(metrics["metric"].unique())
    for name in [*score_metrics, *([loss_metric] if loss_metric else [])]:
        if name not in present:
            raise UserError(f"forecasts: no metric {name}; there are {', '.join(present) or 'none'}")
    if loss_metric:
        training = training.iloc[:0]  # a training log is of another loss than that metric
        losses = metrics[metrics["metric"] == loss_metric].assign(metric=VALIDATION_LOSS)
        if loss_metric.endswith(("ppl", "perplexity")):
            losses = losses.assign(value=np.log(losses["value"]))
        metrics = pd.concat([metrics[metrics["metric"].isin(score_metrics)], losses])
    trainings = trainings_from_tables(pd.DataFrame(), metrics, training, models, schedules=schedules)
    rows = []
    for name in score_metrics:
        measured = metrics[metrics["metric"] == name].dropna(subset=["value"]).drop_duplicates(["model", "step"])
        series = {model: rows.set_index("step")["value"].sort_index() for model, rows in measured.groupby("model")}
        started = [run for run in trainings if run.model in series]
        for fraction in fractions:
            family = [run.first(fraction) for run in started]
            due = [cut for cut, run in zip(family, started, strict=True) if has_reached(run, fraction)]
            actual = [_final(run, series[run.model]) for run in started if has_reached(run, fraction)]
            observed = {cut.model: series[cut.model].loc[: fraction * cut.final_step + 1e-6] for cut in family}
            for method, predictions in (
                ("two_stages", _two_stages(family, due, observed)),
                ("power_law", [_own_curve(observed[cut.model], cut.final_step) for cut in due]),
            ):
                where = {"metric": name, "fraction": fraction, "method": method}
                rows += calibrated_rows(due, predictions, actual, **where)
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


def _final(training: TrainingRun, scores: pd.Series) -> float:
    return float(scores.iloc[-1]) if training.is_finished and scores.index[-1] >= training.progress.step else np.nan


def _two_stages(
    family: Sequence[TrainingRun], due: Sequence[TrainingRun], observed: Mapping[str, pd.Series]
) -> list[Prediction]:
    names = {cut.family for cut in family}
    laws = {name: _shared_law([cut for cut in family if cut.family == name], observed) for name in names}
    predictions = []
    for cut in due:
        law, loss = laws[cut.family], forecast(make(default_method(cut)), cut, family)
        if isinstance(law, str) or loss.reason:
            predictions.append(Prediction.none(law if isinstance(law, str) else loss.reason))
        else:
            predictions.append(law.predict(loss))
    return predictions


def _shared_law(family: Sequence[TrainingRun], observed: Mapping[str, pd.Series]) -> ScoreLaw | str:
    """Fit one sigmoid to all models of a family; return the reason if there is none."""
    losses, scores = [], []
    for cut in family:
        curve = pd.Series(cut.checkpoint_losses, index=cut.checkpoint_steps).dropna()
        common = curve.index.intersection(observed[cut.model].index)
        losses.append(curve[common].to_numpy())
        scores.append(observed[cut.model][common].to_numpy())
    try:
        return fit_score_law(np.concatenate(losses), np.concatenate(scores))
    except ValueError as error:
        return str(error)


def _own_curve(observed: pd.Series, final_step: int) -> Prediction:
    """Forecast a score by a power law in the step of its distance to 1: the baseline, which reads no loss."""
    later = observed[observed.index > 0]
    try:
        law = fit_loss_curve(later.index.to_numpy(dtype=np.float64), 1 - later.to_numpy())
    except ValueError as error:
        return Prediction.none(str(error))
    low, high = law.interval(float(final_step))
    return Prediction(1 - float(law(float(final_step))), max(1 - high, 0.0), min(1 - low, 1.0))
