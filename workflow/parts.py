"""Inputs and outputs of the jobs of a run, part by part: the input, params and resource functions of its rules.

A rule that takes seconds or needs the network is a `localrule`: it runs where Snakemake runs, not on a node of a cluster.
"""

import errno
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fingerprint import fingerprint
from paths import each
from plan import ALL, Plan, checkpoint_name, step_of, training_settings
from toposcale.analysis import lm_eval
from toposcale.checkpoints import Sizes, model_kinds
from toposcale.io.errors import UserError
from toposcale.io.files import read_noted
from toposcale.monitor.folder import Folder
from toposcale.training import corpus

SCRIPTS = {
    "corpus": "corpus.py",
    "training": "train.py",
    "log": "gather.py",
    "curve": "loss_table.py",
    "weights": "weight_features.py",
    "embeddings": "embeddings.py",
    "landscape": "loss_landscape.py",
    "path": "training_path.py",
    "trajectory": "trajectory.py",
    "distances": "diagram_distances.py",
}
"""The script that makes the parts of a kind."""


class Wildcards(Protocol):
    """The wildcards of a job: those that its rule has of these."""

    model: str
    checkpoints: str

    def get(self, name: str, default: str) -> str:
        """Return a wildcard, or a default where the rule does not have it."""


@dataclass
class Job:
    """The wildcards of a job that makes a part of a table."""

    model: str
    checkpoints: str = ALL
    source: str = ""

    def get(self, name: str, default: str) -> str:
        """Return a wildcard, as those of Snakemake do."""
        return str(getattr(self, name, default))


class Part(NamedTuple):
    """A file that a table gathers, its kind (of `SCRIPTS`), and the job that makes it."""

    file: str
    kind: str
    job: Job


Input = Part | str | Sequence[Part | str]
"""Files that a job reads under one name: one, or a list; those that carry a digest are parts."""


def files_of(read: Input) -> str | list[str]:
    """Return the paths of what a job reads under one name: one file is a path for its script, and a list is a list."""
    if isinstance(read, Part | str):
        return read.file if isinstance(read, Part) else read
    return [str(files_of(file)) for file in read]


def parts_of(inputs: Mapping[str, Input]) -> list[Part]:
    """Return what of the inputs of a job, by name, carries a digest."""
    files = [file for read in inputs.values() for file in ([read] if isinstance(read, Part | str) else read)]
    return [file for file in files if isinstance(file, Part)]


class Inputs:
    """The functions of the rules of a run, and the files that its rules read from elsewhere.

    Raises `UserError` for a text or results of lm-evaluation-harness that are configured and not there.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.paths = plan.paths
        self.keeps = bool(plan.config["hub"]["keep"])
        self._digests: dict[tuple[str, ...], str] = {}
        self.corpus = {key: _corpus_files(key, plan.config["corpus"][key]) for key in ("train", "validation")}
        self.harness = _harness_files(plan.config["metrics"]["harness"])

    @property
    def metrics(self) -> list[Part]:
        """Metrics of the checkpoints: measured here, of loss curves, and as far as live monitors have come."""
        monitored = self.monitored("metrics/monitor", self.plan.monitored)
        return [
            *self.parts("training", self.paths.training_metrics),
            *self.parts("embeddings", self.paths.embedding_metrics),
            *self.parts_of_models("curve", self.paths.curve_metrics, self.plan.loss_curves),
            *(Part(file, "training", Job(self.plan.monitored[0])) for file in monitored),
        ]

    @property
    def manifests(self) -> list[str]:
        """Notes on the published checkpoints, made when they were fetched."""
        return self.plan.work["weights"].files(self.paths.manifest, self.plan.published)

    @property
    def compared_with_ripser(self) -> list[str]:
        """Weights and diagrams of the last checkpoint of one model, trained here if any is; none where no weights stay."""
        plan = self.plan
        published = plan.named(model_kinds.HUB) if self.keeps else []
        kept = plan.named(model_kinds.GPT) + plan.named(model_kinds.FOLDER) + published
        if not kept or "topology" not in plan.config["weights"]["features"]:
            return []
        work, step = plan.work["weights"], plan.models[kept[0]].steps[-1]
        *_, (model, checkpoints) = work.jobs(kept[:1])
        return [self.weights(model, step), work.file(self.paths.diagrams, model, checkpoints, source="weights")]

    def outputs(self, kind: str) -> dict[str, str]:
        """Return the output, by name, of the rule that makes a kind of measurement of checkpoints."""
        sources = ["landscape", "gradients"] if kind == "landscape" else [kind]
        rows = {
            f"{source}_{name}" if kind == "landscape" else name: getattr(self.paths, name).replace("{source}", source)
            for source in sources
            if source in self.plan.sources
            for name in ("features", "diagrams")
        }
        more = {"landscape": ("surfaces", "densities", "profiles"), "embeddings": ("embedding_metrics", "clouds")}
        return rows | {name.removeprefix("embedding_"): getattr(self.paths, name) for name in more.get(kind, ())}

    def weights(self, model: str, step: int) -> str:
        """Return the source of the weights of a checkpoint: our file, the user's file or folder, or what was fetched."""
        if self.plan.models[model].kind == model_kinds.FOLDER:
            return self.plan.models[model].settings["checkpoints"][step]
        pattern = self.paths.manifest if model in self.plan.published else self.paths.checkpoint
        return pattern.format(model=model, checkpoints=checkpoint_name(step))

    def steps(self, source: str) -> Callable[[Wildcards], list[int]]:
        """Return a params function: the checkpoints that a job on a source does."""
        return lambda wildcards: self.plan.work[source].steps_of(wildcards.model, wildcards.get("checkpoints", ALL))

    def group(self, wildcards: Wildcards) -> str | None:
        """Return the group of the job that fetches a checkpoint, if it does not stay, and of those that measure it."""
        return "checkpoint" if wildcards.model in self.plan.published and not self.keeps else None

    def settings_of(self, kind: str) -> dict[str, Callable[[Wildcards], Any]]:
        """Return the params functions, by name, of the settings of the rule that makes the parts of a kind."""
        plan, config = self.plan, self.plan.config
        measured = {
            "settings": lambda _: plan.settings[kind],
            "steps": self.steps(kind),
            "origin": lambda wildcards: self.origin(kind, wildcards),
            # A checkpoint that is trained here, and damaged, can be made again.
            "allow_missing": lambda wildcards: wildcards.model not in plan.trained,
        }
        on_text = measured | {"tokenizer": self.tokenizer}
        of_path = ("batch_size", "max_tokens", "repeats", "resolution", "path_resolution", "device")
        by_kind: dict[str, dict[str, Callable[[Wildcards], Any]]] = {
            "corpus": {
                "source": lambda _: config["corpus"]["source"],
                "tokenizer": lambda _: config["corpus"]["tokenizer"],
                "vocab_size": lambda _: config["corpus"]["vocab_size"],
                "context": lambda _: config["training"]["context"],
                "texts": lambda _: self.corpus,
            },
            "training": {
                "architecture": self.settings("d_model", "n_layers", "n_heads"),
                "seed": lambda wildcards: plan.models[wildcards.model].seed,
                "training": lambda wildcards: training_settings(plan.models[wildcards.model].training),
                "sketch": lambda _: config["training"]["sketch"] if plan.with_trajectory else {},
                "device": lambda _: config["training"]["device"],
                "steps": self.steps("training"),
            },
            "log": {"table": lambda _: "training"},
            "curve": {"steps": lambda wildcards: list(plan.models[wildcards.model].steps)},
            "weights": measured | {"frozen": lambda wildcards: list(plan.models[wildcards.model].frozen)},
            "embeddings": on_text,
            "landscape": on_text,
            "path": {
                "settings": lambda _: {key: config["landscape"][key] for key in of_path},
                "profiled": self.steps("landscape"),
                "steps": self.steps("training"),
            },
            "trajectory": {"window": lambda _: config["trajectory"]["window"], "steps": self.steps("training")},
            "distances": {
                "steps": lambda wildcards: {
                    source: self.steps(source)(wildcards) for source in plan.moving[wildcards.model]
                },
                "repeats": lambda wildcards: (
                    config["embeddings"]["repeats"] if wildcards.model in plan.diverging else 0
                ),
            },
        }
        return by_kind[kind]

    def params(self, kind: str) -> dict[str, Callable[[Wildcards], Any]]:
        """Return the params functions, by name, of the rule that makes the parts of a kind.

        digest: what its outputs carry. inputs: the digests that its inputs must carry, by file.
        """
        return {
            **self.settings_of(kind),
            "digest": lambda wildcards: self.digest(kind, wildcards),
            "inputs": lambda wildcards: self.expected(parts_of(self.read_by(kind, wildcards))),
        }

    def inputs(self, kind: str) -> Callable[[Wildcards], dict[str, str | list[str]]]:
        """Return the input function, for `unpack`, of the rule that makes the parts of a kind."""
        return lambda wildcards: {name: files_of(read) for name, read in self.read_by(kind, wildcards).items()}

    def read_by(self, kind: str, job: Wildcards) -> Mapping[str, Input]:
        """Return what a job reads, by name."""
        tokens = {"corpus": Part(self.paths.tokens, "corpus", Job(""))}
        match kind:
            case "corpus":
                return self.corpus
            case "training":
                return {**tokens, "schedule": self.plan.schedule_files.get(job.model, []), **self._state_before(job)}
            case "log":
                return {"parts": self.logs(job.model)}
            case "curve":
                return {"curve": self.plan.loss_curves[job.model]}
            case "weights":
                return self._checkpoints(kind, job)
            case "embeddings" | "landscape":
                return {**tokens, **self._checkpoints(kind, job)}
            case "path":
                return {**tokens, **self._checkpoints("training", job)}
            case "trajectory":
                return {"sketches": self.parts("training", self.paths.sketch, [job.model])}
            case "distances":
                sources = self.plan.moving[job.model]
                diagrams = {source: self.parts(source, self.paths.diagrams, [job.model]) for source in sources}
                embedded = [job.model] if job.model in self.plan.diverging else []
                return {**diagrams, "clouds": self.parts("embeddings", self.paths.clouds, embedded)}
        raise KeyError(kind)

    def _checkpoints(self, source: str, job: Wildcards) -> dict[str, Input]:
        """Return the weights of the checkpoints that a job on a source does, and the folders of published ones."""
        steps = self.steps(source)(job)
        read: dict[str, Input] = {"checkpoints": [self.checkpoint(job.model, step) for step in steps]}
        if job.model in self.plan.published:
            names = map(checkpoint_name, steps)
            read["fetched"] = [self.paths.fetched.format(model=job.model, checkpoints=name) for name in names]
        return read

    def checkpoint(self, model: str, step: int) -> Part | str:
        """Return the source of the weights of a checkpoint, which carries a digest if it is trained here."""
        file = self.weights(model, step)
        return Part(file, "training", Job(model)) if model in self.plan.trained else file

    def _state_before(self, job: Wildcards) -> dict[str, Input]:
        """Return the state of a training at the checkpoint before; nothing for the first one, or for a whole training."""
        name = job.get("checkpoints", ALL)
        step = None if name == ALL else self.plan.models[job.model].previous_step(step_of(name))
        if step is None:
            return {"checkpoint": [], "optimiser": []}
        where = {"model": job.model, "checkpoints": checkpoint_name(step)}
        checkpoint = Part(self.paths.checkpoint.format(**where), "training", Job(job.model))
        return {"checkpoint": checkpoint, "optimiser": self.paths.optimiser.format(**where)}

    def digest(self, kind: str, job: Wildcards) -> str:
        """Return the digest of what the outputs of a job are made with: settings, code, and what its inputs are made with.

        It does not depend on how the work on those inputs is cut into jobs.
        """
        if kind == "training":
            job = Job(job.model)
        key = (kind, *(job.get(name, "") for name in ("model", "checkpoints", "source")))
        if key not in self._digests:
            settings = {name: value(job) for name, value in self.settings_of(kind).items()}
            inputs = self.digests_of_models(parts_of(self.read_by(kind, job)))
            self._digests[key] = digest_of(settings, fingerprint(SCRIPTS[kind]), inputs)
        return self._digests[key]

    def digests_of_models(self, parts: Iterable[Part]) -> list[str]:
        """Return the digest of each kind of parts of each model, as if one job had done all of its checkpoints.

        A log that is gathered from parts of a training counts as the training's own; files of a live monitor carry none.
        """
        kinds = {"log": "training"}
        jobs = [(kinds.get(part.kind, part.kind), part.job.model, part.job.get("source", "")) for part in parts]
        return [
            self.digest(kind, Job(model, ALL, source))
            for kind, model, source in dict.fromkeys(jobs)
            if model not in self.plan.monitored
        ]

    def expected(self, parts: Iterable[Part]) -> dict[str, str]:
        """Return the digest that each part must carry, by file; files of a live monitor carry none."""
        return {
            part.file: self.digest(part.kind, part.job) for part in parts if part.job.model not in self.plan.monitored
        }

    def parts(self, kind: str, pattern: str, models: Iterable[str] | None = None) -> list[Part]:
        """Return the parts of a kind that the jobs of a producer make; `pattern` may hold {source}, which is the kind."""
        work = self.plan.work[kind]
        files = zip(work.files(pattern, models, source=kind), work.jobs(models), strict=True)
        maker = "landscape" if kind == "gradients" else kind
        return [Part(file, maker, Job(*job, source=kind)) for file, job in files]

    def parts_of_models(self, kind: str, pattern: str, models: Iterable[str]) -> list[Part]:
        """Return the parts of a kind of which there is one a model."""
        return [Part(pattern.format(model=model), kind, Job(model)) for model in models]

    def origin(self, kind: str, wildcards: Wildcards) -> Any:
        """Return what distinguishes checkpoints from elsewhere from others of the same names.

        Where they are published; of the user's own, their sizes and samples of their content.
        """
        model = self.plan.models[wildcards.model]
        if model.kind == model_kinds.FOLDER:
            files = [Path(self.weights(model.name, step)) for step in self.steps(kind)(wildcards)]
            return " ".join(self.plan.inspections.of(file).sample for file in files)
        if model.kind == model_kinds.HUB:
            keys = {key: model.settings[key] for key in ("repo", "revisions")}
            return keys | {"duplicates": self.plan.config["hub"]["duplicates"]}
        return ""

    def settings(self, *keys: str) -> Callable[[Wildcards], dict[str, Any]]:
        """Return a params function: those of some keys that the entry of `models:` behind a model has."""
        models = self.plan.models
        return lambda wildcards: {key: held for key, held in models[wildcards.model].settings.items() if key in keys}

    def tokenizer(self, wildcards: Wildcards) -> list[str]:
        """Return the user's folder with the tokenizer, in a list, since Snakemake looks for wildcards in a text."""
        folder = self.plan.models[wildcards.model].settings.get("tokenizer")
        return [folder] if folder else []

    def monitored(self, kind: str, models: Iterable[str]) -> list[str]:
        """Return the files of one kind that live monitors have written so far."""
        folders = [Folder(Path(self.plan.models[model].settings["path"]), model) for model in models]
        return [str(path) for folder in folders for path in folder.files(kind).values()]

    def model_log(self, model: str) -> Part:
        """Return the whole training log of a model."""
        whole = "training" if model in self.plan.work["training"].whole else "log"
        return Part(
            self.paths.model_log.format(model=model), "curve" if model in self.plan.loss_curves else whole, Job(model)
        )

    def logs(self, model: str) -> list[Part]:
        """Return the parts of the training log of a model, as far as it has come."""
        if model in self.plan.monitored:
            return [Part(file, "training", Job(model)) for file in self.monitored("training", [model])]
        return self.parts("training", self.paths.training_log, models=[model])

    def progress(self) -> dict[str, Any]:
        """Return what the advice on a run under way needs: facts and files of each model, and the question."""
        config, models = self.plan.config, self.plan.models
        return {
            "models": {
                name: {
                    "facts": model.facts,
                    "files": self.progress_files(name) if name in self.plan.with_features else {},
                    "curve": model.loss_curve,
                    "is_planned": model.kind == model_kinds.PLANNED,
                }
                for name, model in models.items()
            },
            "tables": config["metrics"]["tables"],
            "decision": config["decision"],
        }

    def progress_files(self, model: str) -> dict[str, list[str]]:
        """Return the files that show the progress of a model, by kind, there or not; globs of those of a monitor."""
        published = [model] if model in self.plan.published else []

        def of(source: str, pattern: str) -> list[str]:
            work = self.plan.work[source]
            return work.files(pattern, [model] if model in work.steps else [], source=source)

        def monitored(kind: str) -> list[str]:
            if model not in self.plan.monitored:
                return []
            return [f"{escape(self.plan.models[model].settings['path'])}/{kind}/{model}/step-*.parquet"]

        whole_log = each(self.paths.model_log, self.plan.work["training"].whole & {model})
        metrics = of("training", self.paths.training_metrics) + of("embeddings", self.paths.embedding_metrics)
        steps = () if published else self.plan.models[model].steps
        return {
            "training": whole_log + of("training", self.paths.training_log) + monitored("training"),
            "metrics": metrics + monitored("metrics/monitor"),
            # The weights of a published model may be gone again; its size was noted when they were fetched.
            "weights": [self.weights(model, step) for step in steps],
            "sizes": of("weights", self.paths.manifest) if published else [],
        }

    def sizes(self, wildcards: Wildcards) -> Sizes:
        """Return the sizes of a checkpoint from elsewhere; zeros where they are tiny or not usable.

        Before it was fetched they follow from the name of its repository, if it is fetched in the same group of jobs.
        Otherwise FileNotFoundError is raised, and Snakemake asks again when it was fetched.
        """
        model, checkpoints = self.plan.models[wildcards.model], wildcards.checkpoints
        if model.kind == model_kinds.FOLDER:
            # They are of one shape, so that the last one has the sizes of all.
            return self.plan.inspections.of(Path(self.weights(model.name, model.steps[-1]))).sizes
        if model.kind != model_kinds.HUB:
            return Sizes(0, 0, 0)
        manifest = self.paths.manifest.format(model=model.name, checkpoints=checkpoints)
        if not Path(manifest).exists():
            if self.keeps:
                raise FileNotFoundError(errno.ENOENT, "not fetched yet", manifest)
            # No matrix has more than half of the weights of a language model.
            return Sizes(model.n_parameters_by_name, model.n_parameters_by_name // 2, 0)
        facts = read_noted(manifest)
        return Sizes(*(facts.get(name) or 0 for name in Sizes._fields))

    def by_size(
        self, base: int, per_weight: float = 0.0, per_matrix: float = 0.0
    ) -> Callable[[Wildcards, Any, int], int]:
        """Return a resource: `base` for a tiny checkpoint, more for each million weights or largest matrix's entries."""

        def resource(wildcards: Wildcards, input: Any, attempt: int) -> int:
            sizes = self.sizes(wildcards)
            more = per_weight * sizes.n_parameters + per_matrix * sizes.largest_matrix
            return int(base + more / 1e6) * attempt

        return resource


def digest_of(settings: Mapping[str, Any], code: str, inputs: Iterable[str]) -> str:
    """Return the digest of the settings of a job, the fingerprint of its code and the digests of its inputs."""
    content = json.dumps([settings, code, *inputs], sort_keys=True, default=dict)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def on_attempt(amount: int) -> Callable[[Wildcards, int], int]:
    """Return a resource: an amount at the first attempt, as much again at every further one (`retries` of a profile)."""
    return lambda wildcards, attempt: amount * attempt


def _corpus_files(key: str, patterns: Iterable[str]) -> list[str]:
    """Return the user's files behind corpus.train or corpus.validation, in the order of the list, each glob sorted."""
    try:
        files = [str(path) for pattern in patterns for path in corpus.matches(pattern, key)]
    except UserError as error:
        raise UserError(f"config key {error}") from None
    if braced := [path for path in files if set(path) & set("{}")]:
        raise UserError(
            f"config key corpus.{key}: {braced[0]!r} has a brace in its name, which Snakemake takes for a wildcard"
        )
    return files


def _harness_files(where: str) -> list[str]:
    """Return the results of lm-evaluation-harness that are there now: with new ones the metrics are gathered again."""
    files = [str(path) for path in lm_eval.result_files(where)] if where else []
    if where and not files:
        raise UserError(f"config key metrics.harness: {where}: no JSON file of lm-evaluation-harness is there")
    return files
