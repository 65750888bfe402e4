"""Paths: patterns of the files of a run, with wildcards, and the cut of its work into jobs that write them."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

STEP_DIGITS = 8
ALL = "all"
"""Value of {checkpoints} in the names of files of all checkpoints of a model."""

ROOT = Path(__file__).resolve().parent.parent
"""The folder of the project, or of the workflow in an installed toposcale."""

LIBRARY = ROOT / "src" if (ROOT / "src").is_dir() else ROOT.parents[1]
"""The folder of the package toposcale, which has the workflow inside where it is installed."""


@dataclass(frozen=True)
class Paths:
    """Path patterns of a run, with its folder in front; `Producer` says what {checkpoints} stands for."""

    run: str

    logs: str = "logs"
    tables: str = "tables"
    figures: str = "figures"
    record: str = "config.yaml"
    progress: str = "progress.json"
    report: str = "report.html"
    changes: str = "changes.patch"
    explorer: str = "explorer.html"
    tokens: str = "corpus/tokens.safetensors"
    corpus: str = "corpus/corpus.json"

    # What the user states in files, as tables of the run.
    schedule: str = "schedules/{model}.parquet"
    user_metrics: str = "metrics/tables.parquet"

    # Training: one file for each checkpoint, whatever one job trains. A job that trains a whole model writes the whole log.
    checkpoint: str = "checkpoints/{model}/{checkpoints}.safetensors"
    optimiser: str = "optimisers/{model}/{checkpoints}.safetensors"
    sketch: str = "sketches/{model}/{checkpoints}.safetensors"
    training_log: str = "training/{model}/{checkpoints}.parquet"
    model_log: str = "training/{model}.parquet"
    training_metrics: str = "metrics/training/{model}/{checkpoints}.parquet"
    curve_metrics: str = "metrics/curves/{model}.parquet"

    # Published checkpoints: what the repository has, the files of a checkpoint, and what was noted when they were fetched.
    revisions: str = "checkpoints/{model}/revisions.json"
    fetched: str = "checkpoints/{model}/{checkpoints}"
    manifest: str = "checkpoints/{model}/{checkpoints}.json"

    # Measurements.
    features: str = "features/{source}/{model}/{checkpoints}.parquet"
    diagrams: str = "diagrams/{source}/{model}/{checkpoints}.parquet"
    distances: str = "distances/{model}.parquet"
    trajectory_features: str = "features/trajectory/{model}.parquet"
    clouds: str = "clouds/{model}/{checkpoints}.safetensors"
    embedding_metrics: str = "metrics/embeddings/{model}/{checkpoints}.parquet"
    surfaces: str = "landscape/surfaces/{model}/{checkpoints}.parquet"
    densities: str = "landscape/densities/{model}/{checkpoints}.parquet"
    profiles: str = "landscape/profiles/{model}/{checkpoints}.parquet"
    path_surfaces: str = "landscape/path_surfaces/{model}.parquet"
    path_profiles: str = "landscape/path_profiles/{model}.parquet"
    trajectories: str = "landscape/trajectories/{model}.parquet"

    @classmethod
    def of(cls, name: str) -> "Paths":
        """Return the patterns of the run of a name, relative to the working directory."""
        run = f"results/{name}"
        return cls(run, **{entry.name: f"{run}/{entry.default}" for entry in fields(cls) if entry.name != "run"})

    def table(self, name: str) -> str:
        """Return the Parquet file of a table."""
        return f"{self.tables}/{name}.parquet"

    def csv(self, name: str) -> str:
        """Return the CSV file of a table."""
        return f"{self.tables}/{name}.csv"


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


def jobs_of_models(models: Iterable[str]) -> list[tuple[str, str]]:
    """Return the model and the checkpoints of jobs that do all checkpoints of a model."""
    return [(model, ALL) for model in models]


def files_of_models(pattern: str, models: Iterable[str]) -> list[str]:
    """Return the file of each model."""
    return [pattern.format(model=model) for model in models]


def page_files(page: str) -> list[str]:
    """Return the files of a page other than its code: a template, style sheets and scripts."""
    folder = LIBRARY / "toposcale" / "pages"
    return [str(path) for name in ("base", page) for path in sorted(folder.glob(f"{name}.*")) if path.suffix != ".py"]
