"""The cut of the work of a rule into jobs: one checkpoint, several or all checkpoints of a model."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

STEP_DIGITS = 8
ALL = "all"


@dataclass(frozen=True)
class Producer:
    """The work of a rule that trains or measures, cut into jobs that write one file of each kind.

    The part of a model's checkpoints that a job does stands in the names of its files as {checkpoints}: `all` of them, or
    so many from one on (`step-00000100`).

    steps: the checkpoints, by model.
    whole: the models of which one job does all checkpoints.
    batches: how many consecutive checkpoints of other models a job does, one if left out.
    monitor_folders: by model, with files of one checkpoint under the names that a run gives them.
    run: the folder of the run, with which patterns begin.
    """

    steps: Mapping[str, tuple[int, ...]]
    whole: Set[str] = frozenset()
    batches: Mapping[str, int] = field(default_factory=dict)
    monitor_folders: Mapping[str, str] = field(default_factory=dict)
    run: str = ""

    def steps_of(self, model: str, checkpoints: str) -> list[int]:
        """Return the checkpoints that a job does."""
        steps = self.steps[model]
        if checkpoints == ALL:
            return list(steps)
        first = steps.index(step_of(checkpoints))
        return list(steps[first : first + self.batches.get(model, 1)])

    def jobs(self, models: Iterable[str] | None = None) -> list[tuple[str, str]]:
        """Return the model and the checkpoints of all jobs, or of those on some models."""
        return [
            (model, checkpoints)
            for model in (self.steps if models is None else models)
            for checkpoints in (
                [ALL] if model in self.whole else map(checkpoint_name, self.steps[model][:: self.batches.get(model, 1)])
            )
        ]

    def file(self, pattern: str, model: str, checkpoints: str, **wildcards: str) -> str:
        """Return the file of a pattern with {model} and {checkpoints}."""
        name = pattern.removeprefix(self.run).format(model=model, checkpoints=checkpoints, **wildcards)
        return self.monitor_folders.get(model, self.run) + name

    @property
    def job_title(self) -> str:
        """Pattern of the checkpoints that a job does, for its message."""
        several = any(batch > 1 for batch in self.batches.values())
        return "from {wildcards.checkpoints} on" if several else "{wildcards.checkpoints}"

    def files(self, pattern: str, models: Iterable[str] | None = None, **wildcards: str) -> list[str]:
        """Return the files of all jobs, or of those on some models."""
        return [self.file(pattern, *job, **wildcards) for job in self.jobs(models)]


class TrainingRule(NamedTuple):
    """Names of the checkpoints that a job of a rule leaves, and the models that it trains."""

    outputs: tuple[str, ...]
    models: list[str]


def training_rules(work: Producer) -> dict[str, TrainingRule]:
    """Return the rules that train, by name: train, train_2 ...

    A checkpoint a job, one rule serves all. A model a job, Snakemake wants a list of the checkpoints that the job makes, so
    models with different checkpoints have rules of their own.
    """
    any_checkpoint = ("{checkpoints}",)
    models: dict[tuple[str, ...], list[str]] = {} if work.whole else {any_checkpoint: []}
    for model, steps in work.steps.items():
        models.setdefault(tuple(map(checkpoint_name, steps)) if work.whole else any_checkpoint, []).append(model)
    rules = enumerate(sorted(models.items()), 1)
    return {f"train_{number}" if number > 1 else "train": TrainingRule(*rule) for number, rule in rules}


def checkpoint_name(step: int) -> str:
    """Return the name of one checkpoint; padded, so that names sort as numbers do."""
    return f"step-{step:0{STEP_DIGITS}d}"


def step_of(name: str) -> int:
    """Return the step of the checkpoint of a name, or of the first that a job does."""
    return int(name.removeprefix("step-"))
