"""Which models and checkpoints a configuration asks for, under which names, and what they cost."""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import sweep
from toposcale.checkpoints import FolderSource, missing_parts
from toposcale.io import model_kinds
from toposcale.io.files import parse_json
from toposcale.monitor.folder import Folder

STEP_DIGITS = 8
ALL = "all"
# What the models table says of a model, as far as it is known before anything is read.
_FACTS = ("d_model", "n_layers", "n_heads", "tokens_per_step", "n_parameters", "final_step", "schedule", "warmup_steps")
# A size in a repository's name: -70m, _1.4B.
_SIZE = re.compile(r"[-_.]?\b\d+(\.\d+)?[kmbt]\b", re.IGNORECASE)


@dataclass(frozen=True)
class Model:
    """One model of the run: its name, the entry of `models:` that it comes from, its seed and its checkpoints.

    gaps: why the checkpoints of other steps that are there are left out. not_runnable: why the checkpoints cannot read a
    text, so that only their weights can be measured; empty where they can. configuration: what the model shares with
    all others that differ from it by their seeds alone. training: how a model of kind gpt is trained: `training:`, then
    what its entry and the sweep say.
    """

    name: str
    entry: str
    seed: int
    settings: Mapping[str, Any]
    steps: tuple[int, ...]
    gaps: Mapping[int, str] = field(default_factory=dict)
    not_runnable: str = ""
    configuration: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def loss_curve(self) -> str | None:
        """The user's file with the losses of the training, where there is one."""
        return self.settings.get("path" if self.kind == model_kinds.TABLE else "trainer_state")

    @property
    def kind(self) -> model_kinds.ModelKind:
        """Where it comes from."""
        return model_kinds.MODEL_KINDS[self.settings["kind"]]

    @property
    def family(self) -> str:
        """Models of one family are sizes of one another: what is trained here, repositories but for a size."""
        default = _SIZE.sub("", self.settings["repo"]) if self.kind == model_kinds.HUB else self.kind.name
        return self.settings.get("family", default)

    @property
    def facts(self) -> dict[str, Any]:
        """What the configuration, the plan and a monitor say of it: a row of the models table, None for unknown."""
        facts = {"family": self.family, "entry": self.entry, "configuration": self.configuration, "seed": self.seed}
        facts |= {key: self.settings.get(key) for key in _FACTS}
        schedule = facts["schedule"]
        if self.kind == model_kinds.GPT:
            facts["tokens_per_step"] = self.training["batch_size"] * self.training["context"]
            facts["final_step"] = self.steps[-1]
            facts |= {key: self.training[key] for key in sweep.SIZES}
            facts["shape"] = schedule if isinstance(schedule, str) else schedule["shape"]
        # A plan tells its own warm-up, where there is one.
        if isinstance(schedule, Mapping) and "warmup_steps" in schedule:
            facts["warmup_steps"] = schedule["warmup_steps"]
        return {**facts, "last_checkpoint": max(self.steps, default=None)}

    def remaining_cost(self, step: int) -> float:
        """Work that is left from `step` to the end of training, in arbitrary units: the longest chain goes first."""
        width, layers = self.settings["d_model"], self.settings["n_layers"]
        return layers * (width + 64) * self.training["batch_size"] * (self.steps[-1] - step + 1)

    def previous_step(self, step: int) -> int | None:
        """The checkpoint before `step`; None before the first."""
        index = self.steps.index(step)
        return self.steps[index - 1] if index else None

    def every(self, nth: int) -> tuple[int, ...]:
        """The first and the last checkpoint and every nth between."""
        return tuple(dict.fromkeys([*self.steps[::nth], *self.steps[-1:]]))


def models(config: Mapping[str, Any]) -> dict[str, Model]:
    """Every model of a resolved configuration by name: the entries of `models:`, those trained here once a seed.

    An entry that is swept stands for the runs of the sweep, and is not a model itself.
    """
    by_name = {}
    for position, seed in enumerate(config["seeds"]):
        for entry, settings in config["models"].items():
            if entry in config["sweep"]["models"]:
                continue
            if settings["kind"] == model_kinds.GPT.name:
                # The first seed keeps the plain name: adding a seed retrains nothing.
                name = entry if position == 0 else f"{entry}.seed{seed}"
                by_name[name] = _trained(sweep.Run(name, entry, entry, seed, {}), config)
            elif position == 0:
                by_name[entry] = _from_elsewhere(entry, seed, settings)
    by_name |= {run.name: _trained(run, config) for run in sweep.runs(config["sweep"])}
    planned = {name: model for name, model in by_name.items() if model.kind == model_kinds.PLANNED}
    families = {model.family for name, model in by_name.items() if name not in planned}
    for name, model in planned.items():
        if "family" not in model.settings and len(families) == 1:
            by_name[name] = replace(model, settings={**model.settings, "family": min(families)})
    return by_name


def _trained(run: sweep.Run, config: Mapping[str, Any]) -> Model:
    """A model that is trained here."""
    training = sweep.training_of(config, run)
    plan = training.get("schedule", sweep.trained_schedule({}, training))
    settings = {**config["models"][run.entry], "schedule": plan}
    steps = checkpoint_steps(training)
    return Model(run.name, run.entry, run.seed, settings, steps, configuration=run.configuration, training=training)


def _from_elsewhere(name: str, seed: int, settings: Mapping[str, Any]) -> Model:
    """A model that is not trained here, with its checkpoints, ascending: those asked for, or all that are there."""
    asked = tuple(sorted(settings.get("steps", ())))
    seed, configuration = settings.get("seed", seed), settings.get("configuration", name)
    model = Model(name, name, seed, settings, asked, configuration=configuration)
    if model.kind == model_kinds.MONITOR:
        folder = Folder(Path(settings["path"]), name)
        return replace(model, steps=tuple(folder.steps()), settings={**folder.facts(), **settings})
    if model.kind == model_kinds.FOLDER:
        source = FolderSource(Path(settings["path"]), settings.get("pattern", ""), asked)
        source.check_one_training()
        steps, gaps = source.usable_steps()
        paths = {step: str(source.checkpoint(step)) for step in steps}
        last = paths[steps[-1]]
        facts = {"family": _architecture(last), "checkpoints": paths, "trainer_state": source.trainer_state()}
        not_runnable = missing_parts(last, tokenizer="tokenizer" not in settings)
        return replace(model, settings={**facts, **settings}, steps=steps, gaps=gaps, not_runnable=not_runnable)
    return model


def _architecture(checkpoint: str) -> str:
    """The architecture that a checkpoint's config.json names: what is known of a folder's family."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(parse_json((Path(checkpoint) / "config.json").read_text(encoding="utf-8"))["model_type"])
    return "folder"


def checkpoint_steps(training: Mapping[str, Any]) -> tuple[int, ...]:
    """Steps with a checkpoint: 0, every `checkpoint_every`, and the last."""
    last = training["steps"]
    return (*range(0, last, training["checkpoint_every"]), last)


@dataclass(frozen=True)
class Producer:
    """What a rule measures or trains: which checkpoints of which models, cut into jobs that write one file of each kind.

    The part of a model's checkpoints that a job does is its span, which stands in the names of its files: one checkpoint
    (`step-00000100`), or `all` of them. steps: the checkpoints, by model. whole: the models of which one job does all
    checkpoints. elsewhere: the folders of live monitors, by model, with files of one checkpoint under the names that a run
    gives them. run: the folder of the run, with which patterns begin.
    """

    steps: Mapping[str, tuple[int, ...]]
    whole: Set[str] = frozenset()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    run: str = ""

    def steps_of(self, model: str, span: str) -> list[int]:
        """The checkpoints that a job does."""
        return list(self.steps[model]) if span == ALL else [step_of(span)]

    def file(self, pattern: str, model: str, step: int, **wildcards: str) -> str:
        """The file of a pattern with {model} and {span} that holds a checkpoint."""
        span = ALL if model in self.whole else span_of(step)
        name = pattern.removeprefix(self.run).format(model=model, span=span, **wildcards)
        return self.elsewhere.get(model, self.run) + name

    def files(self, pattern: str, models: Iterable[str] | None = None, **wildcards: str) -> list[str]:
        """The files of all jobs, or of those on some models."""
        return [
            self.file(pattern, model, step, **wildcards)
            for model in (self.steps if models is None else models)
            for step in (self.steps[model][:1] if model in self.whole else self.steps[model])
        ]


def trainings(work: Producer) -> Iterator[tuple[str, list[str], list[str]]]:
    """For each rule that trains: the span of its jobs, the spans of the checkpoints that a job leaves, and the models.

    A checkpoint a job, one rule serves all. A model a job, Snakemake wants a list of the checkpoints that the job makes, so
    models with different checkpoints have rules of their own.
    """
    if not work.whole:
        yield "{span}", ["{span}"], list(work.steps)
        return
    for steps in sorted(set(work.steps.values())):
        alike = [model for model, checkpoints in work.steps.items() if checkpoints == steps]
        yield ALL, list(map(span_of, steps)), alike


def span_of(step: int) -> str:
    """The span of one checkpoint; padded, so that names sort as numbers do."""
    return f"step-{step:0{STEP_DIGITS}d}"


def step_of(span: str) -> int:
    """The checkpoint of a span that is not `all`."""
    return int(span.removeprefix("step-"))
