"""Which models and checkpoints a configuration asks for, under which names, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import sweep
from toposcale.io.files import parse_json

STEP_DIGITS = 8
# A size in a repository's name: -70m, _1.4B.
_SIZE = re.compile(r"[-_.]?\b\d+(\.\d+)?[kmbt]\b", re.IGNORECASE)


@dataclass(frozen=True)
class Model:
    """One model of the run: its name, the entry of `models:` that it comes from, its seed and its checkpoints."""

    name: str
    entry: str
    seed: int
    settings: Mapping[str, Any]
    steps: tuple[int, ...]
    gaps: Mapping[int, str] = field(default_factory=dict)
    """Why the checkpoints of other steps that are there are left out."""

    not_runnable: str = ""
    """Why the checkpoints cannot read a text, so that only their weights can be measured; empty where they can."""

    cell: str = ""
    """What the model shares with all others that differ from it by their seeds alone."""

    training: Mapping[str, Any] = field(default_factory=dict)
    """How it is trained, of a model that is trained here: `training:`, then what its entry and the sweep say."""

    @property
    def loss_curve(self) -> str | None:
        """The user's file with the losses of the training, where there is one."""
        return self.settings["path"] if self.kind == "table" else self.settings.get("trainer_state")

    @property
    def kind(self) -> str:
        """gpt (trained here), hub, folder, monitor (measured while trained elsewhere), or table (a loss curve only)."""
        return self.settings["kind"]

    @property
    def family(self) -> str:
        """Models of one family are sizes of one another: what is trained here, repositories but for a size."""
        default = _SIZE.sub("", self.settings["repo"]) if self.kind == "hub" else self.kind
        return self.settings.get("family", default)

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

    An entry that is swept stands for the runs of the sweep, and is no model itself.
    """
    found = {}
    for position, seed in enumerate(config["seeds"]):
        for entry, given in config["models"].items():
            if entry in config["sweep"]["models"]:
                continue
            if given["kind"] != "gpt":
                if not position:
                    found[entry] = _measured(entry, seed, given)
                continue
            # The first seed keeps the plain name: adding a seed retrains nothing.
            name = entry if position == 0 else f"{entry}.seed{seed}"
            found[name] = _trained(sweep.Run(name, entry, entry, seed, {}), config)
    found |= {run.name: _trained(run, config) for run in sweep.runs(config["sweep"])}
    families = {model.family for model in found.values() if model.kind != "planned"}
    for name, model in found.items():
        if model.kind == "planned" and "family" not in model.settings and len(families) == 1:
            found[name] = replace(model, settings={**model.settings, "family": min(families)})
    return found


def _trained(run: sweep.Run, config: Mapping[str, Any]) -> Model:
    """A model that is trained here."""
    training = sweep.training_of(config, run)
    plan = training.get("schedule", sweep.trained_schedule({}, training))
    settings = {**config["models"][run.entry], "schedule": plan}
    steps = checkpoint_steps(training)
    return Model(run.name, run.entry, run.seed, settings, steps, cell=run.cell, training=training)


def _measured(name: str, seed: int, given: Mapping[str, Any]) -> Model:
    """A model from elsewhere with its checkpoints, ascending: those that are asked for, or all that are there."""
    settings, gaps, not_runnable = given, {}, ""
    match given["kind"]:
        case "table" | "planned":
            steps = ()
        case "monitor":
            from toposcale.monitor.folder import Folder

            folder = Folder(Path(given["path"]), name)
            steps, settings = tuple(folder.steps()), {**folder.facts(), **given}
        case "folder":
            from toposcale.checkpoints import FolderSource, missing_parts

            source = FolderSource(
                Path(given["path"]), given.get("pattern", ""), tuple(given.get("steps", ()))
            )
            source.check_one_training()
            steps, gaps = source.usable_steps()
            found = {step: str(source.checkpoint(step)) for step in steps}
            settings = {**given, "checkpoints": found, "trainer_state": source.trainer_state()}
            settings.setdefault("family", _architecture(found[steps[-1]]))
            not_runnable = missing_parts(found[steps[-1]], tokenizer="tokenizer" not in given)
        case _:
            steps = tuple(sorted(given["steps"]))
    seed, cell = given.get("seed", seed), given.get("cell", name)
    return Model(name, name, seed, settings, steps, gaps, not_runnable, cell=cell)


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
class Cut:
    """How the work of a producer on some models is cut into jobs: one a checkpoint, or one for all `steps` of a model."""

    models: tuple[str, ...]
    steps: tuple[int, ...] | None = None
    suffix: str = ""

    @property
    def is_by_model(self) -> bool:
        """Whether one job does all checkpoints of a model."""
        return self.steps is not None

    def files(self, pattern: str) -> str | list[str]:
        """What one job reads or makes of a pattern with {step}: the pattern itself, or a file for each step."""
        if self.steps is None:
            return pattern
        return [pattern.replace("{step}", step_name(step)) for step in self.steps]

    def steps_of(self, wildcards: Any) -> list[int]:
        """The steps that a job does."""
        return [int(wildcards.step)] if self.steps is None else list(self.steps)

    def name(self, pattern: str) -> str:
        """A job's log: a pattern with {model} and what tells its jobs apart."""
        return pattern + ("" if self.is_by_model else "/step-{step}")

    @property
    def where(self) -> str:
        """What a job is about, for its message."""
        return "{wildcards.model}" + ("" if self.is_by_model else " at step {wildcards.step}")


def cuts(jobs: str, steps: Mapping[str, tuple[int, ...]], trained: Collection[str]) -> list[Cut]:
    """The cuts of a producer: `jobs` is checkpoint or model, `steps` its checkpoints by model.

    `model` holds for the models that are trained here, a cut for each distinct list of steps; the others always have a
    job a checkpoint, since what they cost is not known.
    """
    by_model = {name: own for name, own in steps.items() if jobs == "model" and name in trained}
    lists = sorted(set(by_model.values()))
    found = [
        Cut(tuple(name for name in by_model if by_model[name] == own), own, f"_by_model{number or ''}")
        for number, own in enumerate(lists)
    ]
    rest = tuple(name for name in steps if name not in by_model)
    if rest:
        found.insert(0, Cut(rest))
    return [replace(found[0], suffix="")] if len(found) == 1 else found


def step_name(step: int) -> str:
    """A step as it stands in file names: padded, so that names sort as numbers do."""
    return f"{step:0{STEP_DIGITS}d}"
