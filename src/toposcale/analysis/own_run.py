"""First questions about a training: has it finished learning, is anything odd, and what changed most.

Each answer is a sentence or two, the same in the report and on the watch page, and names what the data do not tell.
"""

import math
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from toposcale.analysis.answers import HOW_TO_ADD_A_LOSS
from toposcale.analysis.transitions import SETTLED_SHARE, largest_change
from toposcale.features.feature import RELATIVE_CHANGE, SUMMARY, WEIGHT_NORM
from toposcale.features.names import feature_name, short_layer
from toposcale.features.roles import MIN_LAYERS, comparable_layers, odd_layers
from toposcale.forecasting.runs.checks import METRIC_WINDOW
from toposcale.forecasting.runs.curves import Curve, rise
from toposcale.forecasting.runs.metrics import TRAINING_LOSS, VALIDATION_LOSS, metric_name
from toposcale.forecasting.runs.training_run import MINIMUM_POINTS
from toposcale.io.errors import counted, listed
from toposcale.io.schemas import ALL_LAYERS

FINISHED = "Has it finished learning?"
ODD = "Is anything odd?"
CHANGED = "What changed most, and where?"

FURTHER_SHARE = 0.1
"""Share of the steps so far for which the present slope is extrapolated."""

SLOPE_SINCE = 0.5
"""Share of the steps so far from which on the loss is fitted by a line over log step."""

N_MEDIANS = 10
"""Medians of consecutive rows of a log that stand for it in the fit: single rows are noisy."""

NEGLIGIBLE_GAIN = 0.002
"""Share of the loss below which the gain of `FURTHER_SHARE` of the steps is almost none: 0.005 of a loss of 2.5."""

CLEAR_SLOPE = 3.0
"""Standard errors by which a slope differs from 0 in a sentence; those of neighbours are not independent, so not 2."""

MAX_NAMED = 3
"""Matrices or features that a sentence names."""


class RunAnswer(NamedTuple):
    """A question about a training, its answer, and the name of the figure that shows it."""

    question: str
    text: str
    figure: str

    def __str__(self) -> str:
        return f"{self.question} {self.text}"


class Learning(StrEnum):
    """Trend of the loss at present; begins the first answer."""

    FALLING = "Still learning"
    ALMOST = "Almost"
    FLAT = "Not falling beyond noise"
    RISING = "The loss is rising"


class Slope(NamedTuple):
    """Line through losses over log step: the gain of a further tenth of the steps, and its standard error, by that line."""

    gain: float
    error: float
    loss: float
    since: int
    n_points: int
    points: str

    @property
    def learning(self) -> Learning:
        """Trend of the loss, by this line."""
        if abs(self.gain) <= CLEAR_SLOPE * self.error:
            return Learning.FLAT
        if self.gain < 0:
            return Learning.RISING
        return Learning.ALMOST if self.gain < NEGLIGIBLE_GAIN * abs(self.loss) else Learning.FALLING


def run_answers(metrics: pd.DataFrame, features: pd.DataFrame, log: pd.DataFrame) -> list[RunAnswer]:
    """Answer the three questions about one model, from its rows of these tables; log has step, loss and learning_rate."""
    weights = features[features["source"] == "weights"]
    return [
        RunAnswer(FINISHED, " ".join(_learning_sentences(metrics, weights, log)), "loss_curves"),
        RunAnswer(ODD, " ".join(odd_sentences(metrics, weights)), "layer_heat_map"),
        RunAnswer(CHANGED, " ".join(changed_sentences(weights)), "layer_heat_map"),
    ]


def rise_sentence(metrics: pd.DataFrame, log: pd.DataFrame) -> str:
    """Return how the validation loss of a model has risen beyond noise since it was lowest; "" if it has not."""
    losses = _Losses.of(metrics, log)
    return losses.lowest_sentence if losses.has_risen else ""


def _curve(rows: pd.DataFrame, value: str = "value") -> Curve:
    """Return the finite values of a table over its steps."""
    ordered = rows.drop_duplicates("step", keep="last").sort_values("step")
    return Curve.finite(ordered["step"].to_numpy(np.float64), ordered[value].to_numpy(np.float64))


class _Losses(NamedTuple):
    """Validation loss of a model or, without one, its training loss; the name of it; and the training loss."""

    measured: Curve
    title: str
    training: Curve

    @classmethod
    def of(cls, metrics: pd.DataFrame, log: pd.DataFrame) -> Self:
        """Return the losses in these rows; the training loss is that of the log, if there is one."""
        logged, curves = _curve(log, "loss"), {name: _curve(rows) for name, rows in metrics.groupby("metric")}
        training = curves.get(TRAINING_LOSS, logged) if logged.is_empty else logged
        validation = curves.get(VALIDATION_LOSS)
        if validation is None or validation.is_empty:
            return cls(training, metric_name(TRAINING_LOSS), training)
        return cls(validation, metric_name(VALIDATION_LOSS), training)

    @property
    def has_risen(self) -> bool:
        """Return whether the validation loss has risen beyond noise since it was lowest."""
        return self.measured is not self.training and rise(self.measured.losses, METRIC_WINDOW) is not None

    @property
    def lowest_sentence(self) -> str:
        """Sentence on where the loss was lowest, and what has happened since."""
        steps, losses = self.measured
        at, now = int(np.argmin(losses)), losses[-1]
        if losses[at] == now:
            return f"The lowest {self.title} is the last one, {now:.4g} at step {steps[-1]:,.0f}."
        text = f"The lowest {self.title} was {losses[at]:.4g} at step {steps[at]:,.0f}; the last one is {now:.4g}"
        if not self.has_risen:
            return f"{text}."
        is_earlier = self.training.steps <= steps[at]
        earlier, later = self.training.losses[is_earlier], self.training.losses[~is_earlier]
        if not len(earlier) or not len(later):
            return f"{text}. Whether that is overfitting is not known: no training loss on both sides of that step."
        has_fallen = np.median(later[-METRIC_WINDOW:]) < np.median(earlier[-METRIC_WINDOW:])
        return f"{text}, and the training loss has {'fallen since: overfitting' if has_fallen else 'not fallen since'}."


def _learning_sentences(metrics: pd.DataFrame, weights: pd.DataFrame, log: pd.DataFrame) -> Iterator[str]:
    """Yield what a further tenth of the steps would gain, the lowest loss, and when the large changes were over."""
    losses = _Losses.of(metrics, log)
    if losses.measured.is_empty:
        yield f"Not known: there is no loss; {HOW_TO_ADD_A_LOSS}."
    else:
        slope = slope_of(losses.measured, losses.title)
        slope = slope or slope_of(_medians(losses.training), "medians of the training loss")
        yield _slope_sentence(slope, losses)
        yield losses.lowest_sentence
        yield from _rate_sentences(log)
    yield _settled_sentence(losses.measured, losses.title, weights)


def slope_of(curve: Curve, points: str) -> Slope | None:
    """Return the slope of a loss over the second half of its steps; None with fewer than `MINIMUM_POINTS` values there."""
    last = curve.steps.max(initial=0.0)
    recent = curve.since(max(SLOPE_SINCE * last, 1.0))
    if len(recent.steps) < MINIMUM_POINTS:
        return None
    x = np.log(recent.steps)
    coefficients, residuals = np.polynomial.polynomial.polyfit(x, recent.losses, 1, full=True)[:2]
    squares = float(residuals[0].sum()) if len(residuals[0]) else 0.0
    error = math.sqrt(squares / (len(x) - 2) / float(np.square(x - x.mean()).sum()))
    further, level = math.log1p(FURTHER_SHARE), recent.level
    return Slope(-float(coefficients[1]) * further, error * further, level, int(recent.steps[0]), len(x), points)


def _medians(logged: Curve) -> Curve:
    """Return medians of the second half of a log, in parts of as many rows, at their median steps."""
    recent = logged.since(max(SLOPE_SINCE * logged.steps.max(initial=0.0), 1.0))
    if recent.is_empty:
        return recent
    parts = zip(*(np.array_split(rows, min(N_MEDIANS, len(recent.steps))) for rows in recent), strict=True)
    medians = np.array([[np.median(part) for part in pair] for pair in parts])
    return Curve(medians[:, 0], medians[:, 1])


def _slope_sentence(slope: Slope | None, losses: _Losses) -> str:
    """Say whether the loss still falls, and what a further tenth of the steps would gain."""
    if losses.has_risen:
        return f"It no longer improves: the {losses.title} has risen beyond noise since it was lowest."
    if slope is None:
        return f"Not known: a slope needs {MINIMUM_POINTS} losses in the second half of the steps."
    share = abs(slope.gain / slope.loss) if slope.loss else math.nan
    change = f"{'gain' if slope.gain >= 0 else 'lose'} {abs(slope.gain):.2g}, {share:.2%} of the loss"
    line = f"a line through {slope.n_points} {slope.points} values since step {slope.since:,}, over log step"
    return f"{slope.learning}: at the present slope a further tenth of the steps would {change} ({line})."


def _rate_sentences(log: pd.DataFrame) -> Iterator[str]:
    """Yield that the learning rate has decayed: what a decay gains ends with it."""
    rates = _curve(log, "learning_rate").losses
    peak = rates.max(initial=0.0)
    if peak > 0 and (share := rates[-1] / peak) < 0.5:
        yield f"The learning rate is at {share:.0%} of its peak; what its decay gains is in that slope, and ends with it."


def _settled_sentence(measured: Curve, title: str, weights: pd.DataFrame) -> str:
    """Say since when the changes of loss and weights between checkpoints are below a tenth of the largest."""
    whole = weights[weights["layer"] == ALL_LAYERS]
    moves = _curve(whole[whole["feature"] == RELATIVE_CHANGE])
    if moves.is_empty:
        of_weights = _curve(whole[whole["feature"] == WEIGHT_NORM.feature])
    else:  # each is a change already
        of_weights = Curve(np.append(moves.steps[0] - 1, moves.steps), np.append(0.0, np.cumsum(moves.losses)))
    name = "norm of the weights" if moves.is_empty else "weights"
    settled = []
    for series, curve in ((title, measured), (name, of_weights)):
        if len(curve.steps) > 2 and not math.isnan((change := largest_change(*curve)).step):
            step = change.settled_step
            settled.append(f"not yet ({series})" if math.isnan(step) else f"at step {step:,.0f} ({series})")
    if not settled:
        return "When the large changes were over is not known from so few values."
    return f"Changes between checkpoints fell below {SETTLED_SHARE:.0%} of the largest: {', '.join(settled)}."


def odd_sentences(metrics: pd.DataFrame, weights: pd.DataFrame) -> Iterator[str]:
    """Yield what is not finite, and which matrices are unlike the same ones of other blocks at the last checkpoint."""
    steps = {name: rows.loc[~np.isfinite(rows["value"]), "step"].min() for name, rows in metrics.groupby("metric")}
    broken = [
        f"the {metric_name(str(name))} is not finite at step {step:,.0f}"
        for name, step in steps.items()
        if step == step
    ]
    layers = weights[weights["layer"] != ALL_LAYERS]
    last = layers[layers["step"] == layers["step"].max()]
    norms = last[(last["feature"] == WEIGHT_NORM.feature) & ~np.isfinite(last["value"])]
    if len(norms):
        broken.append(
            f"at step {norms['step'].iloc[0]:,} there are NaN or infinity in {listed(norms['layer'], MAX_NAMED)}"
        )
    if broken:
        yield f"Yes: {'; '.join(broken)}."
    if last.empty:
        yield "Weights were not measured."
        return
    summary = last[last["feature"].isin(SUMMARY)]
    values = {
        str(layer): dict(zip(rows["feature"], rows["value"], strict=True)) for layer, rows in summary.groupby("layer")
    }
    n_compared = sum(map(len, comparable_layers(values)))
    odd, step = odd_layers(values), f"at step {last['step'].iloc[0]:,}"
    if odd:
        n_more = len(odd) - MAX_NAMED
        more = f"; and {n_more} more" if n_more > 0 else ""
        yield f"{'Also' if broken else 'Yes'}, {step}: {'; '.join(map(str, odd[:MAX_NAMED]))}{more}."
    elif n_compared:
        none = f"of {counted(n_compared, 'matrix', 'matrices')} none is an outlier among the same ones of other blocks"
        yield f"Nothing{' else' if broken else ''}: {none}, {step}."
    else:
        yield f"Not known: fewer than {MIN_LAYERS} blocks have the same matrix."


def changed_sentences(weights: pd.DataFrame) -> Iterator[str]:
    """Yield which norm changed most, which matrix moved most and when, and what changed most of the whole model."""
    if weights["step"].nunique() < 2:
        yield "Not known: it needs two checkpoints with weights."
        return
    steps = weights["step"].min(), weights["step"].max()
    first, last = (weights[weights["step"] == step].set_index(["layer", "feature"])["value"] for step in steps)
    ratios = (last / first)[(first > 0) & (last > 0)].dropna()
    ratios = ratios.loc[(np.log(ratios).abs()).sort_values(ascending=False, kind="stable").index]
    norms = ratios.drop(ALL_LAYERS, level="layer")
    norms = norms[norms.index.get_level_values("feature") == WEIGHT_NORM.feature]
    if len(norms):
        (layer, _), ratio = norms.index[0], f"{norms.iloc[0]:.3g}"
        span = f"from step {steps[0]:,} to {steps[1]:,}"
        none = "No norm of a matrix changed by more than 0.5%"
        yield f"{none if ratio == '1' else f'The norm of {short_layer(layer)}, x {ratio}'}, {span}."
    moves = weights[
        (weights["feature"] == RELATIVE_CHANGE) & (weights["layer"] != ALL_LAYERS) & np.isfinite(weights["value"])
    ]
    if len(moves):
        most = moves.loc[moves["value"].idxmax()]
        move = f"by {most['value']:.0%} of its norm, up to step {most['step']:,}"
        yield f"Between two checkpoints {short_layer(most['layer'])} moved most, {move}."
    whole = ratios[(ratios.index.get_level_values("layer") == ALL_LAYERS)].droplevel("layer")
    named = [
        f"{feature_name(name)} x {ratio:.3g}"
        for name, ratio in whole.items()
        if name in SUMMARY and f"{ratio:.3g}" != "1"
    ]
    if named:
        yield f"Of the whole model: {', '.join(named[:MAX_NAMED])}."
