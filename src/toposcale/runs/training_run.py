"""A training as the program reads it: what was logged, what was measured, and the plan of what is to come.

`TrainingRun.of` is the one place where columns and facts become a training, whatever they came from: a file, columns, the
folder of a Trainer or of a monitor, the tables of a run. Forecasts, decisions and advice read nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from toposcale.features.names import TRAINING_LOSS, VALIDATION_LOSS, metric_name
from toposcale.runs.metadata import Facts, is_warmup_assumed, newest_metric, notes_on, rates_and_plan
from toposcale.runs.outliers import is_excursion, is_moving_average, is_spike, without_false_start
from toposcale.runs.series import Series, in_order, last_of_each, on_grid
from toposcale.runs.smoothing import bin_medians

MINIMUM_POINTS = 5
"""Losses that a law with three parameters needs: two degrees of freedom for its interval."""

LOG_BINS = 40
"""Geometric bins of a training log; a bin is worth the median of its rows."""


@dataclass(frozen=True)
class TrainingRun:
    """One training, or its beginning: arrays that cannot be written to.

    The training log has one row a step: `steps`, `losses`, `gradient_norms` (log_rows,). `learning_rates`
    (scheduled_steps,) are those of every step from 0 on, to the end where the plan is known (`plan_known`), for it is known
    before the run starts; `plan` says where it is known from, or why it is not. At `checkpoint_steps` (checkpoints,) stand
    `checkpoint_losses`, the metric to be forecast, and `features`: by name "source/feature", arrays (checkpoints,), or
    (checkpoints, length) for vectorised diagrams. NaN marks what was not measured, and a `tokens_per_step` that is not
    known. `final_step` is the step at which the run will end. `stated_warmup`: the steps of warm-up that the owner stated,
    for a run whose rates are not known. A loss that was logged and is no number is infinite; NaN is a loss that was not
    logged. `metric`: the words for the loss that is forecast. `reached`: the step that it has come to, where more is known
    than the log. `warmup_assumed`: no rate was logged and no warm-up stated, so none is taken. `notes`: what is to be said
    of what was read, a clause each.
    """

    model: str
    n_parameters: int
    tokens_per_step: float
    final_step: int
    steps: np.ndarray = field(default_factory=lambda: np.empty(0))
    losses: np.ndarray = field(default_factory=lambda: np.empty(0))
    gradient_norms: np.ndarray = field(default_factory=lambda: np.empty(0))
    learning_rates: np.ndarray = field(default_factory=lambda: np.empty(0))
    checkpoint_steps: np.ndarray = field(default_factory=lambda: np.empty(0))
    checkpoint_losses: np.ndarray = field(default_factory=lambda: np.empty(0))
    features: Mapping[str, np.ndarray] = field(default_factory=dict)
    family: str = ""
    seed: int = 0
    plan: str = ""
    stated_warmup: int = 0
    metric: str = "loss"
    reached: int = 0
    warmup_assumed: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("steps", "losses", "gradient_norms", "learning_rates", "checkpoint_steps", "checkpoint_losses"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        object.__setattr__(self, "features", {name: _frozen(value) for name, value in self.features.items()})
        if not len(self.gradient_norms):
            object.__setattr__(self, "gradient_norms", _frozen(np.full(len(self.steps), np.nan)))
        for name in ("losses", "gradient_norms"):
            if len(getattr(self, name)) != len(self.steps):
                raise ValueError(f"{name}: one for each of the {len(self.steps)} steps of {self.model}")
        rows = {"checkpoint_losses": self.checkpoint_losses, **self.features}
        for name, value in rows.items():
            if len(value) != len(self.checkpoint_steps):
                raise ValueError(
                    f"{name}: one for each of the {len(self.checkpoint_steps)} checkpoints of {self.model}"
                )
        for name in ("steps", "checkpoint_steps"):
            if np.any(np.diff(getattr(self, name)) <= 0):
                raise ValueError(f"{name}: strictly increasing in {self.model}")

    @classmethod
    def of(
        cls,
        facts: Facts,
        log: Mapping[str, ArrayLike],
        metrics: Mapping[str, Series],
        features: Mapping[str, Series] | None = None,
    ) -> Self:
        """The training of these columns and facts.

        log: columns step, loss, gradient_norm and learning_rate (rows,); all may be empty, and a step that was logged twice
        counts as it was logged last, since a training that was resumed repeats steps. metrics: by name; what is forecast is
        the validation loss, if its last value lies in the second half of what was logged, else the training loss.
        features: by name "source/feature"; vectors only at steps that something else was measured at. UserError: the
        logged rates contradict the schedule.
        """
        steps = np.asarray(log["step"], dtype=np.float64)
        at = last_of_each(steps)
        rows = {name: np.asarray(values, dtype=np.float64)[at] for name, values in log.items()}
        logged = rows.get("learning_rate", np.full(len(at), np.nan))
        rates, plan = rates_and_plan(facts, rows["step"], logged)
        metric, measured = newest_metric(metrics, rows["step"], rows["loss"])
        warmup_assumed = is_warmup_assumed(facts, rates, logged)
        series = {name: in_order(pair) for name, pair in (features or {}).items()}
        scalars = [at for at, values in series.values() if values.ndim == 1]
        grid = np.unique(np.concatenate([measured[0], *scalars]))
        return cls(
            model=facts.model,
            n_parameters=facts.n_parameters,
            tokens_per_step=facts.tokens_per_step,
            final_step=facts.final_step,
            steps=rows["step"],
            losses=rows["loss"],
            gradient_norms=rows.get("gradient_norm", np.empty(0)),
            learning_rates=rates,
            checkpoint_steps=grid,
            checkpoint_losses=on_grid(grid, *measured),
            features={name: on_grid(grid, *pair) for name, pair in series.items()},
            family=facts.family,
            seed=facts.seed,
            plan=plan,
            stated_warmup=int(facts.warmup_steps or 0),
            metric=metric_name(metric),
            reached=facts.reached,
            warmup_assumed=warmup_assumed,
            notes=notes_on(facts.repeated or len(steps) - len(at), metric, metrics.get(VALIDATION_LOSS)),
        )

    def unstarted(self, model: str | None = None, n_parameters: int | None = None) -> Self:
        """The same plan before its first step, of this model or of another size."""
        return type(self)(
            model=self.model if model is None else model,
            n_parameters=self.n_parameters if n_parameters is None else n_parameters,
            tokens_per_step=self.tokens_per_step,
            final_step=self.final_step,
            learning_rates=self.learning_rates,
            family=self.family,
            seed=self.seed,
            plan=self.plan,
        )

    def first(self, fraction: float) -> Self:
        """The training as it stood after `fraction` of `final_step`: no row of a later step is left."""
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction: above 0 and at most 1, got {fraction}")
        # the tolerance keeps 0.3 * 100 = 30.000000000000004 from being a matter of luck
        last = fraction * self.final_step + 1e-6
        seen, kept = self.steps <= last, self.checkpoint_steps <= last
        return replace(
            self,
            steps=self.steps[seen],
            losses=self.losses[seen],
            gradient_norms=self.gradient_norms[seen],
            checkpoint_steps=self.checkpoint_steps[kept],
            checkpoint_losses=self.checkpoint_losses[kept],
            features={name: value[kept] for name, value in self.features.items()},
            reached=min(self.reached, int(last)),
        )

    @property
    def last_step(self) -> int:
        """The last step of which anything is known; a row without a loss is no progress."""
        logged = self.steps[np.isfinite(self.losses)]
        return int(max(logged.max(initial=0), self.checkpoint_steps.max(initial=0), self.reached))

    def reaches(self, fraction: float) -> bool:
        """Whether the run has come to `fraction` of its end, or to its end."""
        return self.is_finished or self.last_step >= fraction * self.final_step * (1 - 1e-9)

    @property
    def plan_known(self) -> bool:
        """Whether the learning rate is known to the end."""
        return len(self.learning_rates) >= max(self.final_step, 1)

    @property
    def rates_known(self) -> bool:
        """Whether the learning rate is known as far as the run has come; a checkpoint may follow the last logged row."""
        return len(self.learning_rates) > 0.95 * self.last_step

    @property
    def plan_falls(self) -> bool:
        """Whether the rate is known to be lower at the end than now."""
        if not self.plan_known:
            return False
        now = min(self.last_step, len(self.learning_rates) - 1)
        return bool(self.learning_rates[-1] < 0.99 * self.learning_rates[now])

    def rates_to(self, step: int) -> np.ndarray:
        """(step + 1,) rates; the last one known goes on, and where none is known the rate is taken as constant."""
        rates = self.learning_rates if len(self.learning_rates) else np.ones(1)
        return np.concatenate([rates, np.full(max(step + 1 - len(rates), 0), rates[-1])])[: step + 1]

    def rate_at(self, step: int) -> float:
        """The learning rate of a step; NaN where none is known."""
        return float(self.rates_to(step)[step]) if len(self.learning_rates) else np.nan

    @property
    def peak_rate(self) -> float:
        """The highest learning rate; NaN where none is known."""
        return float(self.learning_rates.max()) if len(self.learning_rates) else np.nan

    @property
    def whole_plan(self) -> np.ndarray:
        """(final_step + 1,) the rate of every step; of a plan that is not known, a constant rate after the warm-up."""
        if self.plan_known:
            return self.rates_to(self.final_step)
        warmup = max(self.warmup_steps, 1)
        return np.minimum(np.arange(1, self.final_step + 2) / warmup, 1.0)

    def compute(self, steps: float) -> float:
        """Training compute of so many steps, FLOP; NaN where the tokens of a step are not known."""
        return float(flop(self.n_parameters, self.tokens_per_step * steps))

    @property
    def compute_left(self) -> float:
        """Compute from now to the planned end, FLOP."""
        return self.compute(max(self.final_step - self.last_step, 0))

    @property
    def has_begun(self) -> bool:
        """Whether any loss of it is known that a law can read."""
        return bool(len(self.loss_curve[0]))

    @property
    def warmup_steps(self) -> int:
        """The step at which the schedule first reaches its highest rate; without a schedule, what was stated."""
        return int(np.argmax(self.learning_rates)) if len(self.learning_rates) else self.stated_warmup

    @property
    def final_loss(self) -> float:
        """The target of every forecast: the metric where it was measured last, NaN of an unfinished run."""
        return self.last_loss if self.is_finished else np.nan

    @property
    def last_loss(self) -> float:
        """The loss that was measured last; of a log alone the median of its last rows; NaN where there is none."""
        measured = self.checkpoint_losses[np.isfinite(self.checkpoint_losses)]
        losses = measured if len(measured) else self.loss_curve[1]
        return float(losses[-1]) if len(losses) else np.nan

    @property
    def measured_until(self) -> int:
        """The step of `last_loss`; 0 where there is none."""
        measured = self.checkpoint_steps[np.isfinite(self.checkpoint_losses)]
        steps = measured if len(measured) else self.loss_curve[0]
        return int(steps[-1]) if len(steps) else 0

    @property
    def present_loss(self) -> float:
        """The level of the curve now: the median of the last three points that a law reads; NaN without a point."""
        losses = self.loss_curve[1]
        return float(np.median(losses[-3:])) if len(losses) else np.nan

    def loss_at(self, share: float) -> float:
        """The loss of a finished run at a share of its training, between two points by the logarithm of the step."""
        if share >= 1:
            return self.final_loss
        steps, losses = self.loss_curve
        return float(np.interp(np.log(max(share * self.final_step, 1.0)), np.log(steps), losses))

    @property
    def is_finished(self) -> bool:
        """Whether the last loss is that of the end; a log may stop up to one interval before it, at most 1% of the run."""
        measured = self.checkpoint_steps[np.isfinite(self.checkpoint_losses)]
        gap = float(np.median(np.diff(measured))) if len(measured) > 1 else 0.0
        return bool(len(measured) and measured[-1] >= self.final_step - min(gap, 0.01 * self.final_step))

    @property
    def is_over(self) -> bool:
        """Whether nothing of the run is to come, with or without a loss at its end."""
        return self.is_finished or self.last_step >= self.final_step

    @cached_property
    def loss_curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps and losses that every curve fit reads: the training log, smoothed and moved to the metric.

        Medians of the log in geometric bins from the end of the warm-up on, without spikes, moved by the median of
        (metric - binned log) over the last three checkpoints. Without a log of `MINIMUM_POINTS` rows: the
        metric at the checkpoints after the warm-up (after step 0, if too few).
        """
        steps, losses = without_false_start(*self.binned(self.losses))
        if len(steps) >= MINIMUM_POINTS:
            return steps, losses + self._metric_gap(steps, losses)
        usable = np.isfinite(self.checkpoint_losses) & (self.checkpoint_steps > 0)
        warm = usable & (self.checkpoint_steps >= self.warmup_steps)
        usable = warm if warm.sum() >= MINIMUM_POINTS else usable
        return without_false_start(self.checkpoint_steps[usable], self.checkpoint_losses[usable])

    @property
    def broken_steps(self) -> np.ndarray:
        """The steps at the end of the log whose loss is no number, or is missing: pandas writes a NaN as an empty cell."""
        finite = np.flatnonzero(np.isfinite(self.losses))
        after = np.arange(finite[-1] + 1 if len(finite) else 0, len(self.losses))
        empty = after[np.isnan(self.losses[after])]
        usual = int(np.diff(finite).max(initial=1))  # rows from one loss to the next
        # Rows without a loss may be a plan that goes on to its end.
        lost = len(finite) > 1 and len(empty) > usual and self.steps[empty[-1]] < 0.99 * self.final_step
        return self.steps[after if lost else after[~np.isnan(self.losses[after])]]

    @property
    def logged(self) -> np.ndarray:
        """The losses that were logged after the warm-up, spikes and all."""
        return self.losses[np.isfinite(self.losses) & (self.steps >= max(self.warmup_steps, 1))]

    @property
    def looks_smoothed(self) -> bool:
        """Whether the training log moves as the moving average of a tracker does, and not as losses of single batches."""
        is_log = self.metric == metric_name(TRAINING_LOSS)  # losses of a fixed text are even by themselves
        return is_log and is_moving_average(self.logged)

    def is_the_same_as(self, other: Self) -> bool:
        """Whether it is the other training itself: one size, and the same losses at every step that both have."""
        if self.n_parameters != other.n_parameters:
            return False
        pairs = [
            (mine[at], theirs[there])
            for mine_at, mine, theirs_at, theirs in (
                (self.steps, self.losses, other.steps, other.losses),
                (self.checkpoint_steps, self.checkpoint_losses, other.checkpoint_steps, other.checkpoint_losses),
            )
            for _, at, there in [np.intersect1d(mine_at, theirs_at, return_indices=True)]
        ]
        mine, theirs = (np.concatenate(values) for values in zip(*pairs, strict=True))
        both = np.isfinite(mine) & np.isfinite(theirs)
        return int(both.sum()) >= MINIMUM_POINTS and bool(np.all(mine[both] == theirs[both]))

    @property
    def spikes(self) -> float:
        """Share of the logged losses after the warm-up that are spikes."""
        return float(np.mean(is_spike(self.logged))) if len(self.logged) else 0.0

    @property
    def spikes_at_the_end(self) -> int:
        """Logged losses at the end that are spikes so far: whether the loss comes back is not known."""
        return int(np.argmin(is_spike(self.logged)[::-1])) if len(self.logged) else 0

    def binned(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Medians of steps and values of the log after the warm-up, in `LOG_BINS` geometric bins and more where the
        rate falls."""
        usable = np.isfinite(values) & (self.steps >= max(self.warmup_steps, 1))
        usable[usable] = ~(is_spike(values[usable]) | is_excursion(values[usable]))
        return bin_medians(self.steps[usable], values[usable], LOG_BINS, self.learning_rates)

    def _metric_gap(self, steps: np.ndarray, losses: np.ndarray) -> float:
        if self.metric == metric_name(TRAINING_LOSS):  # it is what the log holds, of single batches
            return 0.0
        usable = np.isfinite(self.checkpoint_losses) & (self.checkpoint_steps >= steps[0])
        if not usable.any():
            return 0.0
        at = self.checkpoint_steps[usable][-3:]
        return float(np.median(self.checkpoint_losses[usable][-3:] - np.interp(np.log(at), np.log(steps), losses)))

    def series(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Steps, values and metric at the checkpoints where both are finite; empty without such a feature."""
        values = self.features.get(name, np.full(len(self.checkpoint_steps), np.nan))
        losses = self.checkpoint_losses
        if not np.isfinite(losses).any() and len(self.loss_curve[0]):
            losses = np.interp(self.checkpoint_steps, *self.loss_curve)
        usable = np.isfinite(values) & np.isfinite(losses)
        return self.checkpoint_steps[usable], values[usable], losses[usable]


def flop(n_parameters: Any, tokens: Any) -> Any:
    """Training compute C = 6 N D (Kaplan et al. 2020, arXiv 2001.08361), in FLOP; of numbers or arrays."""
    return 6.0 * n_parameters * tokens


def _frozen(values: np.ndarray) -> np.ndarray:
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array
