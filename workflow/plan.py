"""The plan of a run: its models and checkpoints, under which names, and the work on them."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import sweep
from inspections import Inspections
from paths import STEP_DIGITS, Paths, Producer
from toposcale.checkpoints import FolderSource, Inspection, inspect, model_kinds, saved_numbers
from toposcale.forecasting.amounts import number_of
from toposcale.forecasting.runs.learning_rate_schedule import longest_warmup
from toposcale.forecasting.runs.metrics import metric_name
from toposcale.io.errors import UserError, listed
from toposcale.io.files import parse_json, read_text
from toposcale.monitor.folder import Folder

# Columns of the models table that may be known before anything is read.
_FACTS = (
    *("d_model", "n_layers", "n_heads", "n_parameters", "tokens_per_step", "unique_tokens"),
    *("optimizer", "weight_decay", "weight_average"),
    *("final_step", "schedule", "warmup_steps", "warmup_at_most", "log_notes"),
)
# Architectures of transformers and tasks of PEFT whose loss is in nats per token.
_LANGUAGE_MODEL = re.compile(r"ForCausalLM|LMHead|CAUSAL_LM")
JOB_SECONDS = 30
"""CPU time of a job that does several checkpoints."""
MAX_A_JOB = 500
"""Most checkpoints of a job, however small they are."""


class Seconds(NamedTuple):
    """CPU time of a checkpoint, roughly and rather too much, with the default settings."""

    per_matrix: float
    per_million_weights: float


# Weights: 0.03 s for 9 matrices of 2,720 weights, 0.11 s for 255,200, 2.4 s for 8.4 million. Embeddings of 200 texts.
SECONDS = {"weights": Seconds(0.005, 0.5), "embeddings": Seconds(0.05, 4.0)}
"""By section of the configuration."""

# A number of parameters in a repository's name: -70m, _1.4B.
_SIZE = re.compile(r"[-_.]?\b\d+(\.\d+)?[kmbt]\b", re.IGNORECASE)


@dataclass(frozen=True)
class Model:
    """One model of the run: its name, the entry of `models:` that it comes from, its seed and its checkpoints.

    missing: why checkpoints of other steps are left out, by step.
    unread_states: why states of a Trainer later than the one that is read are not, by step.
    without_step: names of weights in its folder that have no step.
    numbers: what the checkpoints hold besides their weights, by step.
    not_runnable: why the checkpoints cannot read a text, so that only their weights can be measured; empty where they can.
    frozen: digests of tensors that are the same at every checkpoint.
    configuration: shared by replicates, which differ only by their seeds.
    training: of kind gpt: `training:`, then what its entry and the sweep say.
    """

    name: str
    entry: str
    seed: int
    settings: Mapping[str, Any]
    steps: tuple[int, ...]
    missing: Mapping[int, str] = field(default_factory=dict)
    unread_states: Mapping[int, str] = field(default_factory=dict)
    without_step: tuple[str, ...] = ()
    numbers: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    not_runnable: str = ""
    frozen: tuple[str, ...] = ()
    configuration: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def loss_curve(self) -> str | None:
        """File of the user with the losses of the training, or None."""
        curve = self.settings.get("path" if self.kind == model_kinds.TABLE else "losses")
        return curve or self.settings.get("trainer_state")

    @property
    def losses_pattern(self) -> str | None:
        """Pattern of the lines of that file, if it is a text log that needs one."""
        return self.settings.get("losses_pattern")

    @property
    def saved_losses(self) -> list[dict[str, Any]]:
        """Rows of the metrics table for the losses that the checkpoints hold; none where there is a file of losses."""
        return [
            {"model": self.name, "step": step, "metric": metric, "value": numbers[metric]}
            for metric in saved_numbers.LOSSES
            for step, numbers in self.numbers.items()
            if metric in numbers and not self.loss_curve
        ]

    @property
    def kind(self) -> model_kinds.ModelKind:
        """Kind of the model: where it comes from."""
        return model_kinds.MODEL_KINDS[self.settings["kind"]]

    @property
    def family(self) -> str:
        """Family: models that differ only in the number of parameters, also in the names of their repositories."""
        default = _SIZE.sub("", self.settings["repo"]) if self.kind == model_kinds.HUB else self.kind.name
        return self.settings.get("family", default)

    @property
    def n_parameters_by_name(self) -> int:
        """Number of parameters that the name of a repository states, such as -70m; 0 if it states none."""
        size = _SIZE.search(self.settings["repo"])
        return int(number_of(size[0].lstrip("-_."))) if size else 0

    @property
    def facts(self) -> dict[str, Any]:
        """Row of the models table, from the configuration and a monitor; None for unknown."""
        facts: dict[str, Any] = {key: getattr(self, key) for key in ("family", "entry", "configuration", "seed")}
        facts |= {key: self.settings.get(key) for key in _FACTS}
        schedule = facts["schedule"]
        if self.kind == model_kinds.GPT:
            facts["tokens_per_step"] = self.training["batch_size"] * self.training["context"]
            facts["final_step"] = self.steps[-1]
            facts |= {key: self.training[key] for key in sweep.SIZES}
            facts["shape"] = schedule if isinstance(schedule, str) else schedule["shape"]
        # A schedule states its own warm-up, where there is one.
        if isinstance(schedule, Mapping) and "warmup_steps" in schedule:
            facts["warmup_steps"] = schedule["warmup_steps"]
        reason = "not of the pattern" if "pattern" in self.settings else "no step in the name"
        left_out = [f"{listed(self.without_step, 5)}: {reason}"] if self.without_step else []
        facts["in_nats"] = self.settings.get("is_language_model", True) or "tokens_per_step" in self.settings
        left_out += [f"embeddings: {self.not_runnable}"] if self.not_runnable and facts["in_nats"] else []
        facts["left_out"] = "\n".join(left_out) or None
        return {**facts, "last_checkpoint": max(self.steps, default=None)}

    def remaining_cost(self, step: int) -> float:
        """Return the work from `step` to the end of training, in arbitrary units: the longest chain goes first."""
        width, layers = self.settings["d_model"], self.settings["n_layers"]
        return layers * (width + 64) * self.training["batch_size"] * (self.steps[-1] - step + 1)

    def previous_step(self, step: int) -> int | None:
        """Return the checkpoint before `step`; None before the first."""
        index = self.steps.index(step)
        return self.steps[index - 1] if index else None

    def every_nth(self, nth: int) -> tuple[int, ...]:
        """Return the first and the last checkpoint and every nth between."""
        return tuple(dict.fromkeys([*self.steps[::nth], *self.steps[-1:]]))


def models(config: Mapping[str, Any], inspected: Callable[[Path], Inspection] = inspect) -> dict[str, Model]:
    """Return every model of a resolved configuration by name: the entries of `models:`, those trained here once a seed.

    An entry that is swept stands for the runs of the sweep, and is not a model itself. `inspected` returns the
    inspection of a checkpoint in a folder.
    """
    by_name = {run.name: _trained(run, config) for run in sweep.runs(config)}
    for name, settings in config["models"].items():
        if settings["kind"] != model_kinds.GPT.name:
            by_name[name] = _external_model(name, config["seeds"][0], settings, inspected)
    planned = {name: model for name, model in by_name.items() if model.kind == model_kinds.PLANNED}
    families = {model.family for name, model in by_name.items() if name not in planned}
    for name, model in planned.items():
        if "family" not in model.settings and len(families) == 1:
            by_name[name] = replace(model, settings={**model.settings, "family": min(families)})
    return by_name


def _trained(run: sweep.Run, config: Mapping[str, Any]) -> Model:
    """Return a model that is trained here."""
    schedule = run.training.get("schedule", sweep.trained_schedule({}, run.training))
    settings = {**config["models"][run.entry], "schedule": schedule}
    steps = checkpoint_steps(run.training)
    return Model(run.name, run.entry, run.seed, settings, steps, configuration=run.configuration, training=run.training)


def _folder(settings: Mapping[str, Any], inspected: Callable[[Path], Inspection]) -> FolderSource:
    """Return the source of the checkpoints of an entry of `models:` of kind folder."""
    steps = tuple(sorted(settings.get("steps", ())))
    return FolderSource(Path(settings["path"]), settings.get("pattern", ""), steps, inspected)


def _external_model(
    name: str, seed: int, settings: Mapping[str, Any], inspected: Callable[[Path], Inspection]
) -> Model:
    """Return a model from elsewhere with its checkpoints, ascending: those asked for, or all that are there."""
    steps = tuple(sorted(settings.get("steps", ())))
    seed, configuration = settings.get("seed", seed), settings.get("configuration", name)
    model = Model(name, name, seed, settings, steps, configuration=configuration)
    if model.kind == model_kinds.MONITOR:
        folder = Folder(Path(settings["path"]), name)
        return replace(model, steps=tuple(folder.steps()), settings={**folder.facts(), **settings})
    if model.kind == model_kinds.FOLDER:
        source = _folder(settings, inspected)
        steps, missing = source.usable_steps()
        if steps[-1] >= 10**STEP_DIGITS:
            raise UserError(
                f"models.{name}: a checkpoint is of step {steps[-1]:,} ({source.path}), but steps have up to {STEP_DIGITS} "
                "digits; if the names count tokens, rename the checkpoints to steps"
            )
        if (end := settings.get("final_step")) and steps[-1] > end:
            raise UserError(
                f"models.{name}.final_step holds {end:,}, but a checkpoint is of step {steps[-1]:,} ({source.path})"
            )
        paths = {step: str(source.checkpoint(step)) for step in steps}
        inspections = [source.inspection(step) for step in steps]
        last = inspections[-1]
        numbers = {step: inspection.numbers for step, inspection in zip(steps, inspections, strict=True)}
        state = source.last_trainer_state()
        facts = {"checkpoints": paths, "trainer_state": state.path, **_architecture(paths[steps[-1]], name)}
        unread = [line for inspection in inspections for line in inspection.unread]
        facts |= _facts_inside(numbers, unread, source.counts_epochs)
        if source.steps_inside:
            facts["log_notes"] = "\n".join(filter(None, [facts["log_notes"], "the steps: as saved in the checkpoints"]))
        digests = [set(inspection.digests) for inspection in inspections]
        return replace(
            model,
            settings={**facts, **settings},
            steps=steps,
            missing=missing,
            unread_states={} if settings.get("losses") else state.unread,
            without_step=tuple(source.without_step),
            numbers=numbers,
            not_runnable=last.not_runnable_with_tokenizer if "tokenizer" in settings else last.not_runnable,
            frozen=tuple(sorted(set.intersection(*digests))) if len(digests) > 1 else (),
        )
    return model


def _facts_inside(
    numbers: Mapping[int, Mapping[str, float]], unread: Sequence[str], counts_epochs: bool
) -> dict[str, Any]:
    """Return the facts of the training of a model that the numbers in its checkpoints state.

    unread: why states of the schedule cannot be read.
    """
    notes = [f"{listed(unread, 1)}, so nothing is known of the warm-up from there"] if unread else []
    if losses := [name for name in saved_numbers.LOSSES if any(name in inside for inside in numbers.values())]:
        notes.append(f"{' and '.join(map(metric_name, losses))}: as saved in the checkpoints")
    inner_steps = [inside[saved_numbers.STEP] for inside in numbers.values() if saved_numbers.STEP in inside]
    counts_differ = len(inner_steps) == len(numbers) and inner_steps != list(numbers)
    are_epochs = counts_epochs or all(inside.get(saved_numbers.EPOCH) == step for step, inside in numbers.items())
    if counts_differ or are_epochs:
        inner = f"; inside they count steps {inner_steps[0]:,.0f} to {inner_steps[-1]:,.0f}" if counts_differ else ""
        notes.append(
            f"the numbers in the names of the checkpoints{', which are epochs,' * are_epochs} stand for steps{inner}"
        )
    rates = [inside.get(saved_numbers.LEARNING_RATE, math.nan) for inside in numbers.values()]
    peaks = [inside[saved_numbers.PEAK_RATE] for inside in numbers.values() if saved_numbers.PEAK_RATE in inside]
    longest = longest_warmup([*numbers], rates, max(peaks, default=math.nan))
    return {"log_notes": "\n".join(notes) or None, "warmup_at_most": longest}


def _architecture(checkpoint: str, name: str) -> dict[str, Any]:
    """Return the family of a folder, `name` without a config.json, and whether that is of a causal language model."""
    content: dict[str, Any] = {}
    for file in ("adapter_config.json", "config.json"):
        with suppress(OSError, ValueError, TypeError):
            content |= parse_json(read_text(Path(checkpoint) / file))
    architecture = f"{content.get('architectures')} {content.get('task_type')}"
    return {
        "family": str(content.get("model_type", name)),
        "is_language_model": bool(_LANGUAGE_MODEL.search(architecture)),
    }


def checkpoint_steps(training: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the steps with a checkpoint: 0, every `checkpoint_every`, and the last."""
    last = training["steps"]
    return (*range(0, last, training["checkpoint_every"]), last)


class Plan:
    """Work that a resolved configuration asks for: the models by name, lists of their names, and the work of each producer.

    runnable: models that can read a text.
    loss_curves: the user's files with the losses of a training, by model; of some models there is nothing but this file.
    schedule_files: schedules that the user wrote into a file, by model.
    embedded, landscaped: the checkpoints, by model, whose embeddings are computed and whose loss landscape is.
    diverging: the checkpoints whose embeddings are compared with those of the checkpoint before.
    with_path: models whose training trajectory is studied in its plane, which needs every checkpoint at once.
    reads_text: whether any job reads the corpus.
    work: the work of each producer.
    sources: the models of each source of features.
    compared: those whose diagrams are compared between checkpoints, by source.
    moving: all of these.
    settings: what the features of a source depend on, besides the code.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.paths = Paths.of(config["run"])
        self.inspections = Inspections()
        self.models = models(config, self.inspections.of)
        self.trained = self.names_of_kinds(model_kinds.GPT)
        self.published = self.names_of_kinds(model_kinds.HUB)
        self.monitored = self.names_of_kinds(model_kinds.MONITOR)
        self.with_features = [name for name, model in self.models.items() if model.kind.has_features]
        self.with_weights = [name for name, model in self.models.items() if model.kind.has_weights]
        self.runnable = [name for name in self.with_weights if not self.models[name].not_runnable]
        self.loss_curves = {name: model.loss_curve for name, model in self.models.items() if model.loss_curve}
        schedules = {name: model.settings.get("schedule") for name, model in self.models.items()}
        self.schedule_files = {name: schedule for name, schedule in schedules.items() if isinstance(schedule, str)}
        embeds = [name for name in self.runnable if self.models[name].settings.get("embeddings", True)]
        self.embedded = self._checkpoints_of(config["embeddings"], embeds)
        self.landscaped = self._checkpoints_of(config["landscape"], self.runnable)
        self.diverging = self.embedded if config["embeddings"]["divergence"] else {}
        self.with_trajectory = self.trained if config["trajectory"]["enabled"] else []
        self.with_path = self.trained if self.landscaped else []
        self.reads_text = bool(self.trained or self.embedded or self.landscaped)
        self.settings = {
            "weights": _without(config["weights"], "jobs", "distances", "threads"),
            "embeddings": _without(config["embeddings"], "enabled", "every", "jobs", "threads", "divergence"),
            "landscape": _without(config["landscape"], "enabled", "every", "jobs", "path_resolution"),
        }
        self.work = self._work()
        self.sources = {
            source: list(work.steps) for source, work in self.work.items() if source != "training" and work.steps
        }
        without = set() if config["weights"]["distances"] else {"weights"}
        self.compared = {source: models for source, models in self.sources.items() if source not in without}
        self.moving = list(dict.fromkeys(chain(*self.compared.values())))

    def check_folders(self) -> None:
        """Raise `UserError` for two trainings in one folder, or losses of other steps."""
        for name in self.names_of_kinds(model_kinds.FOLDER):
            _folder(self.config["models"][name], self.inspections.of).check_one_training()
            if self.models[name].settings.get("losses"):
                _refuse_other_steps(self.models[name])

    def names_of_kinds(self, *kinds: model_kinds.ModelKind) -> list[str]:
        """Return the names of the models of some kinds."""
        return [name for name, model in self.models.items() if model.kind in kinds]

    @staticmethod
    def wildcard_regex(names: Iterable[str]) -> str:
        """Return a wildcard constraint that matches these names; without names it matches nothing.

        Replicates share a pattern: Snakemake compiles the whole for every output of a rule.
        """
        patterns = (re.sub(r"(?<=\.)seed\d+$", r"seed\\d+", re.escape(name)) for name in names)
        return "|".join(dict.fromkeys(patterns)) or "$."

    def _checkpoints_of(self, section: Mapping[str, Any], names: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return the checkpoints that a section asks for, by model."""
        return {name: self.models[name].every_nth(section["every"]) for name in names if section["enabled"]}

    def _work(self) -> dict[str, Producer]:
        """Return the work of each producer, cut into jobs."""
        gradients = self.landscaped if self.config["landscape"]["gradients"] else {}
        steps_of_sources: dict[str, tuple[str, Mapping[str, tuple[int, ...]]]] = {
            "training": ("training", {name: self.models[name].steps for name in self.trained}),
            "weights": ("weights", {name: self.models[name].steps for name in self.with_features}),
            "embeddings": ("embeddings", self.embedded),
            "landscape": ("landscape", self.landscaped),
            "gradients": ("landscape", gradients),
        }
        monitor_folders = {name: self.models[name].settings["path"] for name in self.monitored}
        trained_or_local = {*self.trained, *self.names_of_kinds(model_kinds.FOLDER)}
        return {
            source: Producer(
                steps,
                whole=trained_or_local if self.config[section]["jobs"] == "model" else set(),
                batches=self._batches(section) if self.config[section]["jobs"] == "auto" else {},
                monitor_folders=monitor_folders,
                run=self.paths.run,
            )
            for source, (section, steps) in steps_of_sources.items()
        }

    def _batches(self, section: str) -> dict[str, int]:
        """Return the number of checkpoints per job, by model: for a folder, as many as fit into `JOB_SECONDS`."""
        seconds, draws = SECONDS[section], self.config[section].get("null_draws", 0)
        batches = {}
        for name in self.names_of_kinds(model_kinds.FOLDER):
            last = self.models[name].settings["checkpoints"][self.models[name].steps[-1]]
            sizes = self.inspections.of(Path(last)).sizes
            seconds_each = (
                seconds.per_matrix * sizes.n_matrices + seconds.per_million_weights * sizes.n_parameters / 1e6
            )
            batches[name] = max(1, int(JOB_SECONDS / max(seconds_each * (1 + 2 * draws), JOB_SECONDS / MAX_A_JOB)))
        return batches


def _refuse_other_steps(model: "Model") -> None:
    """Raise `UserError` where the losses of a model are all of steps before or after its checkpoints."""
    from toposcale.forecasting.logs import loss_curves  # takes half a second, and few runs need it

    losses, checkpoints = model.settings["losses"], model.steps
    steps = loss_curves.read(losses, pattern=model.losses_pattern).columns["step"]
    if checkpoints[-1] < steps[0] or checkpoints[0] > steps[-1]:
        raise UserError(
            f"config key models.{model.name}.losses: {losses} has steps {steps[0]:,.0f} to {steps[-1]:,.0f}, but the "
            f"checkpoints are of steps {checkpoints[0]:,} to {checkpoints[-1]:,} by their names; give both the same"
        )


def training_settings(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that shape a trained model, without those on how the work is done and logged."""
    return _without(training, "jobs", "device", "sketch")


def _without(section: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return a section of the configuration without some keys, which do not change its results."""
    return {key: value for key, value in section.items() if key not in keys}
