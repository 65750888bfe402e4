"""A training run: its log, its checkpoints, its learning-rate schedule and its metadata."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.metadata import RunMetadata
from toposcale.forecasting.runs.metrics import TRAINING_LOSS, VALIDATION_LOSS, metric_name
from toposcale.forecasting.runs.outliers import is_dip, is_excursion, is_spike, without_false_start
from toposcale.forecasting.runs.series import (
    Series,
    bin_medians,
    in_order,
    last_of_each,
    logged_again,
    on_grid,
    read_only,
)

MINIMUM_POINTS = 5
"""Losses that a law with three parameters needs: two degrees of freedom for its interval."""

LOG_BINS = 40
"""Geometric bins of a training log; a bin is worth the median of its rows."""


class Curve(NamedTuple):
    """Points of a loss curve: ascending steps and values, both (points,)."""

    steps: np.ndarray
    losses: np.ndarray

    @property
    def level(self) -> float:
        """Level at the end: the median of the last three points; NaN without a point."""
        return float(np.median(self.losses[-3:])) if len(self.losses) else np.nan


class Progress(NamedTuple):
    """Progress of a run.

    Parameters
    ----------
    step : int
        Last step of which anything is known; a row without a loss is not progress.
    loss : float
        Last measured loss, nats per token; of a log alone the median of its last rows; NaN without one.
    is_over : bool
        Whether no step remains, with or without a loss at the end.
    """

    step: int
    loss: float
    is_over: bool


class Target(NamedTuple):
    """A loss to be forecast.

    Parameters
    ----------
    n_parameters : float
        Number of parameters, embeddings included.
    learning_rates : ndarray of shape (step + 1,)
        One rate a step.
    step : int
        Step of the loss.
    tokens_per_step : float
        Tokens that one step reads; NaN where unknown.
    model : str
        Name of the run whose loss it is, where it has begun; else "".
    """

    n_parameters: float
    learning_rates: np.ndarray
    step: int
    tokens_per_step: float = np.nan
    model: str = ""


@dataclass(frozen=True)
class TrainingRun:
    """A training run, or its beginning, as read-only arrays.

    Parameters
    ----------
    metadata : RunMetadata
        Name, size, batch, family and seed.
    schedule : LearningRateSchedule
        Learning rates, as far as they are known, to the end of the run.
    steps, losses, gradient_norms : ndarray of shape (n_rows,)
        Training log: ascending steps, losses in nats per token (NaN: not logged; infinite: logged as not a number), and
        gradient norms.
    checkpoint_steps, checkpoint_losses : ndarray of shape (n_checkpoints,)
        Steps, ascending, and the metric that is forecast, in nats per token; NaN where it was not measured.

    Raises
    ------
    ValueError
        If arrays differ in length or steps do not increase.

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.forecasting import LearningRateSchedule, RunMetadata, TrainingRun
    >>> run = TrainingRun(
    ...     RunMetadata("25M", n_parameters=25_000_000, tokens_per_step=500_000),
    ...     LearningRateSchedule(final_step=1000, rates=np.full(1001, 3e-4)),
    ...     steps=np.array([100, 200, 400]),
    ...     losses=np.array([6.0, 5.0, 4.0]),
    ... )
    >>> run.progress.step, run.is_finished, run.first(0.2).progress.step
    (400, False, 200)
    """

    metadata: RunMetadata
    schedule: LearningRateSchedule
    steps: np.ndarray = field(default_factory=lambda: np.empty(0))
    losses: np.ndarray = field(default_factory=lambda: np.empty(0))
    gradient_norms: np.ndarray = field(default_factory=lambda: np.empty(0))
    checkpoint_steps: np.ndarray = field(default_factory=lambda: np.empty(0))
    checkpoint_losses: np.ndarray = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        for name in ("steps", "losses", "gradient_norms", "checkpoint_steps", "checkpoint_losses"):
            object.__setattr__(self, name, read_only(getattr(self, name)))
        if not len(self.gradient_norms):
            object.__setattr__(self, "gradient_norms", read_only(np.full(len(self.steps), np.nan)))
        for name in ("losses", "gradient_norms"):
            if len(getattr(self, name)) != len(self.steps):
                raise ValueError(f"{name}: one for each of the {len(self.steps)} steps of {self.model}")
        if len(self.checkpoint_losses) != len(self.checkpoint_steps):
            raise ValueError(f"checkpoint_losses: one for each of the {len(self.checkpoint_steps)} of {self.model}")
        for name in ("steps", "checkpoint_steps"):
            if np.any(np.diff(getattr(self, name)) <= 0):
                raise ValueError(f"{name}: strictly increasing in {self.model}")

    @classmethod
    def of(
        cls,
        metadata: RunMetadata,
        schedule: LearningRateSchedule,
        log: Mapping[str, ArrayLike],
        metrics: Mapping[str, Series],
        checkpoints: ArrayLike = (),
    ) -> Self:
        """Return the run of these columns.

        log: columns step, loss and gradient_norm (rows,), which may be empty; of a step that was logged twice the last row
        counts, since a resumed training repeats steps. metrics: by name; the validation loss is forecast if it was
        measured in the second half of the log, else the training loss. checkpoints: steps of checkpoints beside those
        of the metric.
        """
        order = last_of_each(np.asarray(log["step"], dtype=np.float64))
        rows = {name: np.asarray(values, dtype=np.float64)[order] for name, values in log.items()}
        metric = newest_metric(metrics, rows["step"], rows["loss"])
        notes = metadata.notes + _notes_on(metric, metrics)
        if repeated := len(np.asarray(log["step"])) - len(order):
            notes += (logged_again(repeated),)
        grid = np.union1d(metric.steps, np.asarray(checkpoints, dtype=np.float64))
        return cls(
            replace(metadata, metric=metric_name(metric.name), notes=notes),
            schedule,
            steps=rows["step"],
            losses=rows["loss"],
            gradient_norms=rows.get("gradient_norm", np.empty(0)),
            checkpoint_steps=grid,
            checkpoint_losses=on_grid(grid, metric.steps, metric.values),
        )

    def unstarted(self, model: str | None = None, n_parameters: int | None = None) -> Self:
        """Return the same schedule before its first step, of this model or of another size."""
        metadata = replace(
            self.metadata,
            model=self.model if model is None else model,
            n_parameters=self.n_parameters if n_parameters is None else n_parameters,
            metric="loss",
            reached_step=0,
            notes=(),
        )
        return type(self)(metadata, replace(self.schedule, stated_warmup=0, warmup_assumed=False))

    def first(self, fraction: float) -> Self:
        """Return the run as it stood after `fraction` of `final_step`: no row of a later step is left."""
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction: above 0 and at most 1, got {fraction}")
        # the tolerance keeps 0.3 * 100 = 30.000000000000004 from being a matter of luck
        last = fraction * self.final_step + 1e-6
        reached_step = min(self.metadata.reached_step, int(last))
        return replace(self, metadata=replace(self.metadata, reached_step=reached_step), **self.rows_until(last))

    def rows_until(self, last: float) -> dict[str, Any]:
        """Return the arrays of a run without the rows of later steps, by the names of their fields."""
        logged, kept = self.steps <= last, self.checkpoint_steps <= last
        rows = {name: getattr(self, name)[logged] for name in ("steps", "losses", "gradient_norms")}
        return rows | {name: getattr(self, name)[kept] for name in ("checkpoint_steps", "checkpoint_losses")}

    def target(self, step: int | None = None) -> Target:
        """Return the loss at the end of the schedule, or at a step, as a target of a forecast."""
        step = self.final_step if step is None else step
        return Target(self.n_parameters, self.schedule.rates_to(step), step, self.tokens_per_step, self.model)

    @property
    def model(self) -> str:
        """Name of the run."""
        return self.metadata.model

    @property
    def n_parameters(self) -> int:
        """Number of parameters, embeddings included."""
        return self.metadata.n_parameters

    @property
    def tokens_per_step(self) -> float:
        """Tokens that one step reads; NaN where unknown."""
        return self.metadata.tokens_per_step

    @property
    def family(self) -> str:
        """Family of the run."""
        return self.metadata.family

    @property
    def final_step(self) -> int:
        """Step at which the run ends."""
        return self.schedule.final_step

    @cached_property
    def progress(self) -> Progress:
        """Progress of the run: its last step, its last measured loss, and whether no step remains."""
        logged = self.steps[np.isfinite(self.losses)]
        step = int(max(logged.max(initial=0), self.checkpoint_steps.max(initial=0), self.metadata.reached_step))
        losses = self.measured.losses
        loss = float(losses[-1]) if len(losses) else np.nan
        return Progress(step, loss, self.is_finished or step >= self.final_step)

    @property
    def is_finished(self) -> bool:
        """Return whether the last loss is that of the end; a log may stop one interval before it, at most 1% of the run."""
        measured = self.checkpoint_steps[np.isfinite(self.checkpoint_losses)]
        interval = float(np.median(np.diff(measured))) if len(measured) > 1 else 0.0
        return bool(len(measured) and measured[-1] >= self.final_step - min(interval, 0.01 * self.final_step))

    @property
    def rates_known(self) -> bool:
        """Return whether the rate is known as far as the run has come; a checkpoint may follow the last logged row."""
        return len(self.schedule.rates) > 0.95 * self.progress.step

    @property
    def has_begun(self) -> bool:
        """Return whether the run has a loss that a law can read."""
        return bool(len(self.loss_curve.steps))

    @property
    def measured(self) -> Curve:
        """Measured losses: the metric at the checkpoints, or, of a log alone, the points of its curve."""
        usable = np.isfinite(self.checkpoint_losses)
        if not usable.any():
            return self.loss_curve
        return Curve(self.checkpoint_steps[usable], self.checkpoint_losses[usable])

    @cached_property
    def loss_curve(self) -> Curve:
        """Points that every curve fit reads: the training log, smoothed and shifted to the metric.

        Medians of the log in geometric bins from the end of the warm-up on, without spikes, shifted by the median of
        (metric - binned log) over the last three checkpoints. Without a log of `MINIMUM_POINTS` rows: the
        metric at the checkpoints after the warm-up (after step 0, if too few).
        """
        steps, losses = without_false_start(*self.binned(self.losses))
        if len(steps) >= MINIMUM_POINTS:
            return Curve(steps, losses + self._metric_offset(steps, losses))
        usable = np.isfinite(self.checkpoint_losses) & (self.checkpoint_steps > 0)
        warm = usable & (self.checkpoint_steps >= self.schedule.warmup_steps)
        usable = warm if warm.sum() >= MINIMUM_POINTS else usable
        return Curve(*without_false_start(self.checkpoint_steps[usable], self.checkpoint_losses[usable]))

    @property
    def logged(self) -> np.ndarray:
        """Losses that were logged after the warm-up, spikes included, (rows,)."""
        return self.losses[np.isfinite(self.losses) & (self.steps >= max(self.schedule.warmup_steps, 1))]

    @property
    def forecasts_training_loss(self) -> bool:
        """Return whether the loss that is forecast is that of single training batches."""
        return self.metadata.metric == metric_name(TRAINING_LOSS)

    def is_the_same_as(self, other: Self) -> bool:
        """Return whether both are one training: one size, and equal losses at every step that both have."""
        if self.n_parameters != other.n_parameters:
            return False
        logged = on_grid(self.steps, other.steps, other.losses)
        measured = on_grid(self.checkpoint_steps, other.checkpoint_steps, other.checkpoint_losses)
        mine = np.concatenate([self.losses, self.checkpoint_losses])
        theirs = np.concatenate([logged, measured])
        comparable = np.isfinite(mine) & np.isfinite(theirs)
        return int(comparable.sum()) >= MINIMUM_POINTS and bool(np.all(mine[comparable] == theirs[comparable]))

    def binned(self, values: np.ndarray) -> Curve:
        """Return medians of a column of the log after the warm-up, in `LOG_BINS` geometric bins and more in a decay."""
        usable = np.isfinite(values) & (self.steps >= max(self.schedule.warmup_steps, 1))
        usable[usable] = ~(is_spike(values[usable]) | is_excursion(values[usable]) | is_dip(values[usable]))
        return Curve(*bin_medians(self.steps[usable], values[usable], LOG_BINS, self.schedule.rates))

    def _metric_offset(self, steps: np.ndarray, losses: np.ndarray) -> float:
        """Return the median of (metric - log) over the last three checkpoints."""
        if self.forecasts_training_loss:
            return 0.0
        usable = np.isfinite(self.checkpoint_losses) & (self.checkpoint_steps >= steps[0])
        if not usable.any():
            return 0.0
        at = self.checkpoint_steps[usable][-3:]
        return float(np.median(self.checkpoint_losses[usable][-3:] - np.interp(np.log(at), np.log(steps), losses)))


class Metric(NamedTuple):
    """A measured loss: its name in the tables, and its finite values at ascending steps (n,)."""

    name: str
    steps: np.ndarray
    values: np.ndarray


def newest_metric(metrics: Mapping[str, Series], steps: np.ndarray, losses: np.ndarray) -> Metric:
    """Return the metric to forecast: one that was measured in the second half of the log, else the log itself.

    steps, losses (rows,): the log.
    """
    seen = steps[np.isfinite(losses)]
    for name in (VALIDATION_LOSS, TRAINING_LOSS):
        metric = _finite(name, metrics)
        if len(metric.steps) and metric.steps[-1] >= 0.5 * seen.max(initial=0):
            return metric
    return Metric(TRAINING_LOSS, seen, losses[np.isfinite(losses)])


def _finite(name: str, metrics: Mapping[str, Series]) -> Metric:
    """Return the finite values of a metric."""
    steps, values = in_order(metrics.get(name, ((), ())))
    return Metric(name, steps[np.isfinite(values)], values[np.isfinite(values)])


def _notes_on(metric: Metric, metrics: Mapping[str, Series]) -> tuple[str, ...]:
    """Return why the validation loss is not the metric, where there is one."""
    if metric.name == VALIDATION_LOSS or VALIDATION_LOSS not in metrics:
        return ()
    if len(measured := _finite(VALIDATION_LOSS, metrics).steps):
        return (
            f"the validation loss was not read: its last is of step {measured[-1]:,.0f}, in the first half of the log",
        )
    return ("the validation loss was not read: none of it is a number",) if np.size(metrics[VALIDATION_LOSS][0]) else ()
