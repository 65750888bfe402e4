"""What a forecaster may read of a run: an immutable history, cut at any share of the training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from toposcale.features.names import TRAINING_LOSS, metric_name
from toposcale.features.registry import TOPOLOGY, group_of
from toposcale.forecasting.multi_power_law import bin_medians

MINIMUM_POINTS = 5
"""Losses that a law with three parameters needs: two degrees of freedom for its interval."""

LOG_BINS = 40
"""Geometric bins of a training log; a bin is worth the median of its rows."""


@dataclass(frozen=True)
class History:
    """One training run, or its beginning: arrays that cannot be written to.

    The training log has one row a step: `steps`, `losses`, `gradient_norms` (log_rows,). `learning_rates`
    (scheduled_steps,) are those of every step from 0 on, to the end where the plan is known (`plan_known`), for it is known
    before the run starts; `plan` says where it is known from, or why it is not. At
    `checkpoint_steps` (checkpoints,) stand `checkpoint_losses`, the metric to be forecast, and `features`: by
    name "source/feature", arrays (checkpoints,), or (checkpoints, length) for vectorised diagrams. NaN marks
    what was not measured, and a `tokens_per_step` that is not known. `final_step` is the step at which the run will end.
    `stated_warmup`: the steps of warm-up that the owner stated, for a run whose rates are not known. A loss that was logged
    and is no number is infinite; NaN is a loss that was not logged.
    `metric`: the words for the loss that is forecast.
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

    def __post_init__(self) -> None:
        for name in (
            "steps",
            "losses",
            "gradient_norms",
            "learning_rates",
            "checkpoint_steps",
            "checkpoint_losses",
        ):
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

    def first(self, fraction: float) -> History:
        """The history as it stood after `fraction` of `final_step`: no row of a later step is left."""
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
        )

    @property
    def last_step(self) -> int:
        """The last step of which anything is known; a row without a loss is no progress."""
        logged = self.steps[np.isfinite(self.losses)]
        return int(max(logged.max(initial=0), self.checkpoint_steps.max(initial=0)))

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
        known = self.learning_rates if len(self.learning_rates) else np.ones(1)
        return np.concatenate([known, np.full(max(step + 1 - len(known), 0), known[-1])])[: step + 1]

    @property
    def warmup_steps(self) -> int:
        """The step at which the schedule first reaches its highest rate; without a schedule, what was stated."""
        return int(np.argmax(self.learning_rates)) if len(self.learning_rates) else self.stated_warmup

    @property
    def final_loss(self) -> float:
        """The target of every forecast: the metric where it was measured last, NaN of an unfinished run."""
        known = self.checkpoint_losses[np.isfinite(self.checkpoint_losses)]
        return float(known[-1]) if self.is_finished else np.nan

    def loss_at(self, share: float) -> float:
        """The loss of a finished run at a share of its training, between two points by the logarithm of the step."""
        if share >= 1:
            return self.final_loss
        steps, losses = self.loss_curve
        return float(np.interp(np.log(max(share * self.final_step, 1.0)), np.log(steps), losses))

    @property
    def is_finished(self) -> bool:
        """Whether the last loss is that of the end; a log may stop up to one interval before it, at most 1% of the run."""
        known = self.checkpoint_steps[np.isfinite(self.checkpoint_losses)]
        gap = float(np.median(np.diff(known))) if len(known) > 1 else 0.0
        return bool(len(known) and known[-1] >= self.final_step - min(gap, 0.01 * self.final_step))

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
        steps, losses = _without_false_start(*self.binned(self.losses))
        if len(steps) >= MINIMUM_POINTS:
            return steps, losses + self._metric_gap(steps, losses)
        usable = np.isfinite(self.checkpoint_losses) & (self.checkpoint_steps > 0)
        warm = usable & (self.checkpoint_steps >= self.warmup_steps)
        usable = warm if warm.sum() >= MINIMUM_POINTS else usable
        return _without_false_start(self.checkpoint_steps[usable], self.checkpoint_losses[usable])

    @property
    def broken_rows(self) -> int:
        """Rows at the end of the log whose loss is no number, or is missing: pandas writes a NaN as an empty cell."""
        return len(self._broken)

    @property
    def broken_since(self) -> int:
        """The step of the first of these rows."""
        return int(self.steps[self._broken[0]])

    @property
    def _broken(self) -> np.ndarray:
        finite = np.flatnonzero(np.isfinite(self.losses))
        after = np.arange(finite[-1] + 1 if len(finite) else 0, len(self.losses))
        empty = after[np.isnan(self.losses[after])]
        usual = int(np.diff(finite).max(initial=1))  # rows from one loss to the next
        # Rows without a loss may be a plan that goes on to its end.
        lost = len(finite) > 1 and len(empty) > usual and self.steps[empty[-1]] < 0.99 * self.final_step
        return after if lost else after[~np.isnan(self.losses[after])]

    @property
    def logged(self) -> np.ndarray:
        """The losses that were logged after the warm-up, spikes and all."""
        return self.losses[np.isfinite(self.losses) & (self.steps >= max(self.warmup_steps, 1))]

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
        usable[usable] = ~is_spike(values[usable])
        return bin_medians(self.steps[usable], values[usable], LOG_BINS, self.learning_rates)

    def _metric_gap(self, steps: np.ndarray, losses: np.ndarray) -> float:
        if self.metric == metric_name(TRAINING_LOSS):  # it is what the log holds, of single batches
            return 0.0
        usable = np.isfinite(self.checkpoint_losses) & (self.checkpoint_steps >= steps[0])
        if not usable.any():
            return 0.0
        at = self.checkpoint_steps[usable][-3:]
        return float(
            np.median(self.checkpoint_losses[usable][-3:] - np.interp(np.log(at), np.log(steps), losses))
        )

    def series(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Steps, values and metric at the checkpoints where both are finite; empty without such a feature."""
        values = self.features.get(name, np.full(len(self.checkpoint_steps), np.nan))
        losses = self.checkpoint_losses
        if not np.isfinite(losses).any() and len(self.loss_curve[0]):
            losses = np.interp(self.checkpoint_steps, *self.loss_curve)
        usable = np.isfinite(values) & np.isfinite(losses)
        return self.checkpoint_steps[usable], values[usable], losses[usable]


SPIKE = 0.03
"""A loss is a spike where it lies this share, and six times the noise, above its neighbours on both sides."""


def is_spike(losses: np.ndarray) -> np.ndarray:
    """(rows,) whether a loss is above the medians of the 9 rows before and of the 9 after it, by more than noise."""
    n, width = len(losses), 9
    if n < width:
        return np.zeros(n, dtype=bool)
    logs = np.log(np.maximum(losses, 1e-12))
    running = np.median(np.lib.stride_tricks.sliding_window_view(logs, width), axis=1)  # of rows i .. i + 8
    missing = np.full(width, -np.inf)
    before = np.concatenate([missing, running])[:n]
    after = np.concatenate([running[1:], missing])[:n]
    noise = 1.4826 * float(np.median(np.abs(logs[width // 2 : n - width // 2] - running)))
    # The first rows fall steeply, and nothing stands before them.
    return np.asarray((logs > np.maximum(before, after) + max(SPIKE, 6 * noise)) & np.isfinite(before))


def _without_false_start(steps: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points without the first, where it lies far below all others: a row of something else, such as the end."""
    if len(losses) > 2 and losses[0] < (1 - SPIKE) * losses[1] and np.all(np.diff(losses[1:4]) < 0):
        return steps[1:], losses[1:]
    return steps, losses


def is_topological(name: str) -> bool:
    """Whether the feature "source/feature" describes a shape."""
    return group_of(name.rpartition("/")[2]) == TOPOLOGY


def _frozen(values: np.ndarray) -> np.ndarray:
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array
