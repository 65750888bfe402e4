"""A training run: its log, its checkpoints, its learning-rate schedule and its facts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from toposcale.forecasting.runs.curves import (
    Curve,
    LevelShift,
    after_warmup,
    binned,
    find_level_shift,
    without_false_start,
)
from toposcale.forecasting.runs.facts import RunFacts, StepCost
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.metrics import TRAINING_LOSS, VALIDATION_LOSS, metric_name
from toposcale.forecasting.runs.series import Series, in_order, last_of_each, logged_again, noise_of, on_grid, read_only

MINIMUM_POINTS = 5
"""Losses that a law with three parameters needs: two degrees of freedom for its interval."""

MIN_STEPS_RATIO_AFTER_SHIFT = 1.5
"""Ratio of the last step to that of a shift of level from which on a law is fitted to the rows after it."""


class Progress(NamedTuple):
    """Progress of a run: the last step of which anything is known, and the last measured loss, nats per token.

    A row without a loss is not progress. Without a metric the loss is the median of the last rows; NaN if none is known.
    """

    step: int
    loss: float


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
    aspect_ratio : float
        Width of the model over its number of layers; NaN where unknown.
    """

    n_parameters: float
    learning_rates: np.ndarray
    step: int
    tokens_per_step: float = np.nan
    model: str = ""
    aspect_ratio: float = np.nan

    @property
    def cost(self) -> StepCost:
        """Tokens and compute of its steps."""
        return StepCost(self.n_parameters, self.tokens_per_step)


@dataclass(frozen=True)
class TrainingRun:
    """A training run, or its beginning, as read-only arrays.

    Parameters
    ----------
    facts : RunFacts
        Name, size, batch, family and seed.
    schedule : LearningRateSchedule
        Learning rates, as far as they are known, to the end of the run.
    steps, losses, gradient_norms : ndarray of shape (n_rows,)
        Training log: ascending steps, losses in nats per token (NaN: not logged; infinite: logged as not a number), and
        gradient norms.
    checkpoint_steps, checkpoint_losses : ndarray of shape (n_checkpoints,)
        Steps, ascending, and the metric that is forecast, in nats per token; NaN where it was not measured.
    metric : str
        Name of the loss that is forecast, for messages.
    notes : tuple of str
        What a reader of the forecast has to know of the log, a clause each.
    low_confidence_reasons : tuple of str
        Reasons for low confidence that were found in the log.

    Raises
    ------
    ValueError
        If arrays differ in length, or steps are below 0 or do not increase.

    Examples
    --------
    >>> import numpy as np
    >>> from toposcale.forecasting import LearningRateSchedule, RunFacts, TrainingRun
    >>> run = TrainingRun(
    ...     RunFacts("25M", n_parameters=25_000_000, tokens_per_step=500_000),
    ...     LearningRateSchedule(final_step=1000, rates=np.full(1001, 3e-4)),
    ...     steps=np.array([100, 200, 400]),
    ...     losses=np.array([6.0, 5.0, 4.0]),
    ... )
    >>> run.progress.step, run.is_finished, run.first(0.2).progress.step
    (400, False, 200)
    """

    facts: RunFacts
    schedule: LearningRateSchedule
    steps: np.ndarray = field(default_factory=lambda: np.empty(0))
    losses: np.ndarray = field(default_factory=lambda: np.empty(0))
    gradient_norms: np.ndarray = field(default_factory=lambda: np.empty(0))
    checkpoint_steps: np.ndarray = field(default_factory=lambda: np.empty(0))
    checkpoint_losses: np.ndarray = field(default_factory=lambda: np.empty(0))
    metric: str = "loss"
    notes: tuple[str, ...] = ()
    low_confidence_reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("steps", "losses", "gradient_norms", "checkpoint_steps", "checkpoint_losses"):
            object.__setattr__(self, name, read_only(getattr(self, name)))
        if not len(self.gradient_norms):
            object.__setattr__(self, "gradient_norms", read_only(np.full(len(self.steps), np.nan)))
        for name in ("losses", "gradient_norms"):
            if (values := getattr(self, name)).ndim != 1 or len(values) != len(self.steps):
                raise ValueError(f"{name}: one for each of the {len(self.steps)} steps of {self.model}")
        if self.checkpoint_losses.ndim != 1 or len(self.checkpoint_losses) != len(self.checkpoint_steps):
            raise ValueError(f"checkpoint_losses: one for each of the {len(self.checkpoint_steps)} of {self.model}")
        for name in ("steps", "checkpoint_steps"):
            values = getattr(self, name)
            if values.ndim != 1 or not np.all(np.diff(values, prepend=-1.0) > 0):
                raise ValueError(f"{name}: at least 0 and strictly increasing in {self.model}")

    @classmethod
    def of(
        cls,
        facts: RunFacts,
        schedule: LearningRateSchedule,
        log: Mapping[str, ArrayLike],
        metrics: Mapping[str, Series],
        *,
        checkpoints: ArrayLike = (),
        notes: Sequence[str] = (),
        low_confidence_reasons: Sequence[str] = (),
    ) -> Self:
        """Return the run of these columns, whatever they were read from.

        log: columns step, loss and gradient_norm (rows,), which may be empty; of a step that was logged twice the last row
        counts, since a resumed training repeats steps. metrics: by name; the validation loss is forecast if it was
        measured in the second half of the log, else the training loss. checkpoints: steps of checkpoints besides those
        of the metric.
        """
        order = last_of_each(np.asarray(log["step"], dtype=np.float64))
        rows = {name: np.asarray(values, dtype=np.float64)[order] for name, values in log.items()}
        name, metric, note = _metric_to_forecast(metrics, Curve.finite(rows["step"], rows["loss"]))
        notes = [*notes, *([note] if note else [])]
        if repeated := len(np.asarray(log["step"])) - len(order):
            notes.append(logged_again(repeated))
        grid = np.union1d(metric.steps, np.asarray(checkpoints, dtype=np.float64))
        return cls(
            facts,
            schedule,
            steps=rows["step"],
            losses=rows["loss"],
            gradient_norms=rows.get("gradient_norm", np.empty(0)),
            checkpoint_steps=grid,
            checkpoint_losses=on_grid(grid, *metric),
            metric=metric_name(name),
            notes=tuple(notes),
            low_confidence_reasons=tuple(low_confidence_reasons),
        )

    def unstarted(self, **facts: Any) -> Self:
        """Return the same schedule before its first step, with these facts instead, such as those of another size."""
        return type(self)(replace(self.facts, **facts), replace(self.schedule, stated_warmup=0))

    def first(self, fraction: float) -> Self:
        """Return the run as it stood after `fraction` of `final_step`: no row of a later step is left."""
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction: above 0 and at most 1, got {fraction}")
        # the tolerance keeps 0.3 * 100 = 30.000000000000004 from being a matter of luck
        return replace(self, **self.rows_until(fraction * self.final_step + 1e-6))

    def rows_until(self, last: float) -> dict[str, Any]:
        """Return the arrays of a run without the rows of later steps, by the names of their fields."""
        logged, kept = self.steps <= last, self.checkpoint_steps <= last
        rows = {name: getattr(self, name)[logged] for name in ("steps", "losses", "gradient_norms")}
        return rows | {name: getattr(self, name)[kept] for name in ("checkpoint_steps", "checkpoint_losses")}

    def target(self, step: int | None = None) -> Target:
        """Return the loss at the end of the schedule, or at a step, as a target of a forecast."""
        step = self.final_step if step is None else step
        rates = self.schedule.rates_to(step)
        return Target(self.n_parameters, rates, step, self.tokens_per_step, self.model, self.facts.aspect_ratio)

    @property
    def model(self) -> str:
        """Name of the run."""
        return self.facts.model

    @property
    def n_parameters(self) -> float:
        """Number of parameters, embeddings included; NaN where unknown."""
        return self.facts.n_parameters

    @property
    def tokens_per_step(self) -> float:
        """Tokens that one step reads; NaN where unknown."""
        return self.facts.tokens_per_step

    @property
    def family(self) -> str:
        """Family of the run."""
        return self.facts.family

    @property
    def final_step(self) -> int:
        """Step at which the run ends."""
        return self.schedule.final_step

    @cached_property
    def progress(self) -> Progress:
        """Progress of the run: its last step and its last measured loss."""
        logged = self.steps[np.isfinite(self.losses)]
        step = int(max(logged.max(initial=0), self.checkpoint_steps.max(initial=0)))
        losses = self.measured.losses
        return Progress(step, float(losses[-1]) if len(losses) else np.nan)

    @cached_property
    def best(self) -> Progress:
        """Lowest measured loss and its step, the first of equal ones; NaN at step 0 without a loss."""
        steps, losses = self.measured
        if not len(losses):
            return Progress(0, np.nan)
        lowest = int(np.argmin(losses))
        return Progress(int(steps[lowest]), float(losses[lowest]))

    @property
    def cost(self) -> StepCost:
        """Tokens and compute of its steps."""
        return self.facts.cost

    def flop_of_steps(self, steps: float) -> float:
        """Return the compute of a number of steps in FLOP; NaN where the tokens per step are unknown."""
        return float(self.cost.flop(steps))

    @property
    def flop_left(self) -> float:
        """Compute from now to the end of the schedule in FLOP."""
        return self.flop_of_steps(max(self.final_step - self.progress.step, 0))

    @property
    def is_finished(self) -> bool:
        """Return whether the last loss is that of the end; a log may stop one interval before it, at most 1% of the run."""
        measured = self.metric_curve.steps
        interval = float(np.median(np.diff(measured))) if len(measured) > 1 else 0.0
        return bool(len(measured) and measured[-1] >= self.final_step - min(interval, 0.01 * self.final_step))

    @property
    def has_steps_left(self) -> bool:
        """Return whether steps remain; a run at its last step has none, whether its loss there is known or not."""
        return not self.is_finished and self.progress.step < self.final_step

    @property
    def has_known_rates(self) -> bool:
        """Return whether the rate is known up to the present step; a checkpoint may follow the last logged row."""
        return len(self.schedule.rates) > 0.95 * self.progress.step

    @property
    def lowest_loss(self) -> float:
        """Lowest loss of the log and of the metric; one of 0 or less, as of a policy or a flow, is not in nats."""
        return float(np.fmin.reduce(np.concatenate([self.losses, self.checkpoint_losses]), initial=np.inf))

    @cached_property
    def metric_curve(self) -> Curve:
        """Measured values of the metric at the checkpoints."""
        return Curve.finite(self.checkpoint_steps, self.checkpoint_losses)

    @property
    def measured(self) -> Curve:
        """Measured losses: the metric at the checkpoints, or, without them, the points of its curve."""
        return self.loss_curve if self.metric_curve.is_empty else self.metric_curve

    @cached_property
    def level_shift(self) -> LevelShift | None:
        """Shift of the level of the log or, without one, of the metric, that the learning rate does not explain."""
        logged = Curve.finite(self.steps, self.losses)
        rows = logged if len(logged.steps) >= MINIMUM_POINTS else self.metric_curve
        return find_level_shift(*rows, self.schedule)

    @property
    def rests_on_shift(self) -> bool:
        """Return whether the loss curve has points on both sides of a shift of its level."""
        return self.level_shift is not None and bool(self.loss_curve.steps[0] <= self.level_shift.before)

    @property
    def shift_remark(self) -> str:
        """Sentence on the shift of the level of the curve, and what is done about it; "" without one."""
        if (shift := self.level_shift) is None:
            return ""
        joined = (
            "the rows before it were moved by as much" if self.rests_on_shift else "the rows before it are left out"
        )
        return (
            f"between steps {shift.before:,} and {shift.after:,} the loss shifts by {shift.change:+.2f} nats, which its "
            f"schedule does not explain (a resume, or other data?); {joined}"
        )

    @cached_property
    def loss_curve(self) -> Curve:
        """Points that every curve fit reads: the training log, smoothed and shifted to the metric.

        Medians of the log in geometric bins from the end of the warm-up on, without spikes, shifted by the median of
        (metric - binned log) over the last three checkpoints. Without a log of `MINIMUM_POINTS` rows: the
        metric at the checkpoints after the warm-up (after step 0, if too few). Points before a shift of the level are left
        out where those after it suffice, else moved by the shift.
        """
        curve = self._whole_curve
        if self.level_shift is None:
            return curve
        later = curve.since(self.level_shift.after)
        reaches_far = curve.steps[-1] >= MIN_STEPS_RATIO_AFTER_SHIFT * self.level_shift.after
        if reaches_far and len(later.steps) >= MINIMUM_POINTS:
            return later
        return Curve(curve.steps, curve.losses + self.level_shift.change * (curve.steps < self.level_shift.after))

    @property
    def _whole_curve(self) -> Curve:
        """Return the points of the whole curve, whatever its shifts."""
        steps, losses = without_false_start(*binned(self.steps, self.losses, self.schedule))
        if len(steps) >= MINIMUM_POINTS:
            metric = self.metric_curve.since(steps[0])
            if self.forecasts_training_loss or metric.is_empty:
                return Curve(steps, losses)
            offsets = metric.losses - np.interp(np.log(metric.steps), np.log(steps), losses)
            return Curve(steps, losses + np.median(offsets[-3:]))
        warm = self.metric_curve.since(max(self.schedule.warmup_steps, 1))
        return Curve(*without_false_start(*(warm if len(warm.steps) >= MINIMUM_POINTS else self.metric_curve.since(1))))

    @property
    def logged(self) -> np.ndarray:
        """Losses that were logged after the warm-up, spikes included, (rows,)."""
        return after_warmup(self.steps, self.losses, self.schedule).losses

    @property
    def noise(self) -> float:
        """Standard deviation of one row around the curve, nats, from the log or, without one, the metric; 0 if unknown."""
        rows = self.logged if len(self.logged) else self.metric_curve.losses
        return noise_of(np.log(rows[rows > 0])) * self.loss_curve.level

    @property
    def forecasts_training_loss(self) -> bool:
        """Return whether the loss that is forecast is that of single training batches."""
        return self.metric == metric_name(TRAINING_LOSS)

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


def _metric_to_forecast(metrics: Mapping[str, Series], logged: Curve) -> tuple[str, Curve, str]:
    """Return name and values of the metric to forecast, and why the validation loss is not, where there is one.

    It is one that was measured in the second half of the log, else the log itself.
    """
    note = ""
    for name in (VALIDATION_LOSS, TRAINING_LOSS):
        steps, values = in_order(metrics.get(name, ((), ())))
        measured = Curve.finite(steps, values)
        if not measured.is_empty and measured.steps[-1] >= 0.5 * logged.steps.max(initial=0):
            return name, measured, note
        if name == VALIDATION_LOSS and len(steps):
            in_first_half = f"its last is of step {measured.steps.max(initial=0):,.0f}, in the first half of the log"
            because = "none of it is a number" if measured.is_empty else in_first_half
            note = f"the validation loss was not read: {because}"
    return TRAINING_LOSS, logged, note
