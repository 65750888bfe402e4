"""A finished training run that somebody published, with what is known of it beyond its curve."""

from dataclasses import dataclass, replace

import numpy as np

from toposcale.forecasting.runs.facts import is_usual_aspect_ratio
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule, ScheduleProvenance
from toposcale.forecasting.runs.schedules import Schedule
from toposcale.forecasting.runs.training_run import TrainingRun

NEXT_TOKEN = "next token"
MAX_EPOCHS = 4
"""Runs of another objective, or of more epochs, are not pretraining as the prior of the joint law means it."""

CONSTANT = "constant"
"""Shape of a schedule whose rate stays at the peak."""

GIVEN = "given"
"""Shape of a tabulated schedule."""

ROUNDED = 1.005
"""A run counts as long enough where it ends within half a per cent of a length."""


@dataclass(frozen=True)
class PublishedRun(TrainingRun):
    """A finished training run of a source.

    Parameters
    ----------
    source : str
        Publication or repository that the run is from: runs of one source share authors, code and conventions.
    size : str
        Name of the size, WIDTHxDEPTH where it is known.
    shape : str
        Shape of the learning-rate schedule.
    stated_warmup : int
        Steps of warm-up that the source states.
    decay_start : float
        Step at which the decay of a wsd schedule begins; NaN for other shapes.
    objective : str
        Objective of the training.
    split : str
        "seen" where a choice of the joint law was made with the run in view, else "unseen"; "" where that is not recorded.

    Examples
    --------
    >>> from toposcale.datasets import load_published_runs
    >>> run = load_published_runs("multi-power-law")[0]
    >>> run.source, run.shape, run.is_finished, run.first(0.2).source
    ('multi-power-law', 'constant', True, 'multi-power-law')
    """

    source: str = ""
    size: str = ""
    shape: str = ""
    stated_warmup: int = 0
    decay_start: float = np.nan
    objective: str = NEXT_TOKEN
    split: str = ""

    @property
    def tokens(self) -> float:
        """Tokens that the whole run reads."""
        return float(self.cost.tokens(self.final_step))

    @property
    def kind(self) -> str:
        """Objective, and whether the text is repeated often, where either is unusual; else ""."""
        if self.objective != NEXT_TOKEN:
            return self.objective
        is_repeated = self.tokens / self.facts.unique_tokens > MAX_EPOCHS * ROUNDED
        return f"over {MAX_EPOCHS} epochs" if is_repeated else ""

    @property
    def judged_as(self) -> str:
        """Source, with the kind of training where that is unusual: results of each are apart."""
        return f"{self.source}, {self.kind}" if self.kind else self.source

    @property
    def tags(self) -> frozenset[str]:
        """Tags by which a run can be chosen: split, shape of the schedule, optimizer, and kind of training."""
        return frozenset({self.split, self.shape, self.facts.optimizer, self.kind or "pretraining"} - {""})

    @property
    def is_usual(self) -> bool:
        """Return whether the model, where its shape is known, has that of a usual transformer."""
        return is_usual_aspect_ratio(self.facts.aspect_ratio)

    def loss_at(self, step: float) -> float:
        """Return the loss at a step, between two rows by the logarithm of the step."""
        return float(np.interp(np.log(step), np.log(self.steps), self.losses))

    def cut(self, step: float) -> TrainingRun:
        """Return the run of `step` steps that a run at a constant rate is up to there."""
        length = max(round(step), 1)
        warmup = min(self.stated_warmup, length - 1)
        rates = Schedule(CONSTANT, 1.0, length, warmup).rates()
        schedule = LearningRateSchedule(length, rates, ScheduleProvenance.GIVEN)
        return replace(self, **self.rows_until(step), schedule=schedule)
