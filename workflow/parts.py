"""Inputs and outputs of the jobs of a run, part by part: the input, params and resource functions of its rules.

A rule that takes seconds or needs the network is a `localrule`: it runs where Snakemake runs, not on a node of a cluster.
"""

import errno
from collections.abc import Callable, Collection, Iterable
from functools import partial
from glob import escape
from itertools import chain
from pathlib import Path
from typing import Any

from paths import files_of_models
from plan import Plan, training_settings
from producers import ALL, checkpoint_name, step_of
from recipes import Input, Job, Part, Recipe
from toposcale.analysis import lm_eval
from toposcale.checkpoints import Sizes, model_kinds
from toposcale.io.errors import UserError
from toposcale.io.job_files import read_noted
from toposcale.monitor.folder import KINDS, Folder
from toposcale.training import corpus


class Inputs:
    """The functions of the rules of a run, and the files that its rules read from elsewhere.

    Raises `UserError` for a text or results of lm-evaluation-harness that are configured and not there.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.paths = plan.paths
        self.keeps = bool(plan.config["hub"]["keep"])
        self.corpus = {key: _corpus_files(key, plan.config["corpus"][key]) for key in ("train", "validation")}
        self.harness = _harness_files(plan.config["metrics"]["harness"])
        self.contents = self._contents()
        self.recipes = self._recipes()

    def _contents(self) -> dict[str, str]:
        """Return the hash of the content of every file that is not of the run, by its path."""
        plan, settings = self.plan, [model.settings for model in self.plan.models.values()]
        checkpoints = [Path(path) for entry in settings for path in entry.get("checkpoints", {}).values()]
        files = [
            *chain(*self.corpus.values()),
            *self.harness,
            *plan.config["metrics"]["tables"],
            *plan.schedule_files.values(),
            *plan.loss_curves.values(),
            *chain(*(self.monitored(kind, plan.monitored) for kind in KINDS)),
        ]
        return {
            **{str(path): plan.inspections.of(path).sample for path in checkpoints},
            **{file: plan.inspections.content(file) for file in files},
            **{name: plan.inspections.tokenizer(name) for entry in settings if (name := entry.get("tokenizer"))},
        }

    @property
    def made(self) -> list[str]:
        """Every file that a job makes and other jobs read, of which one that is missing is made again."""
        plan, paths = self.plan, self.paths
        trained = [self.weights(name, step) for name in plan.trained for step in plan.models[name].steps]
        of_checkpoints = {
            "training": [paths.training_metrics, *([paths.sketch] if plan.with_trajectory else [])],
            "embeddings": [paths.embedding_metrics, *([paths.clouds] if plan.diverging else [])],
            "landscape": [paths.surfaces, paths.densities, paths.profiles],
        }
        parts = [
            part for kind, patterns in of_checkpoints.items() for one in patterns for part in self.parts(kind, one)
        ]
        parts += [
            part
            for source in plan.sources
            for one in (paths.features, paths.diagrams)
            for part in self.parts(source, one)
        ]
        return trained + [part for part in parts if isinstance(part, Part)]

    @property
    def metrics(self) -> list[str]:
        """Metrics of the checkpoints: measured here, of loss curves, and as far as live monitors have come."""
        return [
            *self.parts("training", self.paths.training_metrics),
            *self.parts("embeddings", self.paths.embedding_metrics),
            *self.parts_of_models("loss_table", self.paths.curve_metrics, self.plan.loss_curves),
            *self.monitored("metrics/monitor", self.plan.monitored),
            *([Part(self.paths.user_metrics, "user_metrics", Job())] if self.plan.config["metrics"]["tables"] else []),
        ]

    @property
    def manifests(self) -> list[str]:
        """Notes on the published checkpoints, made when they were fetched."""
        return self.plan.work["weights"].files(self.paths.manifest, self.plan.published)

    @property
    def compared_with_ripser(self) -> list[str]:
        """Weights and diagrams of the last checkpoint of one model, trained here if any is; none where no weights stay."""
        plan = self.plan
        published = plan.names_of_kinds(model_kinds.HUB) if self.keeps else []
        models_with_weights = plan.names_of_kinds(model_kinds.GPT) + plan.names_of_kinds(model_kinds.FOLDER) + published
        if not models_with_weights or "topology" not in plan.config["weights"]["features"]:
            return []
        work, step = plan.work["weights"], plan.models[models_with_weights[0]].steps[-1]
        *_, (model, checkpoints) = work.jobs(models_with_weights[:1])
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
        others = {"landscape": ("surfaces", "densities", "profiles"), "embeddings": ("embedding_metrics", "clouds")}
        return rows | {name.removeprefix("embedding_"): getattr(self.paths, name) for name in others.get(kind, ())}

    def weights(self, model: str, step: int) -> str:
        """Return the source of the weights of a checkpoint: a file of the run, the user's file or folder, or a manifest."""
        if self.plan.models[model].kind == model_kinds.FOLDER:
            return self.plan.models[model].settings["checkpoints"][step]
        pattern = self.paths.manifest if model in self.plan.published else self.paths.checkpoint
        return pattern.format(model=model, checkpoints=checkpoint_name(step))

    def steps(self, source: str) -> Callable[[Job], list[int]]:
        """Return a params function: the checkpoints that a job on a source does."""
        return lambda job: self.plan.work[source].steps_of(job.model, job.get("checkpoints", ALL))

    def group(self, job: Job) -> str | None:
        """Return the group of the jobs that fetch and measure a checkpoint, if it is removed afterwards."""
        return "checkpoint" if job.model in self.plan.published and not self.keeps else None

    def _recipes(self) -> dict[str, Recipe]:
        """Return the recipe of each rule that trains or measures."""
        plan, config = self.plan, self.plan.config
        tokens = {"corpus": Part(self.paths.tokens, "corpus", Job())}
        of_path = ("batch_size", "max_tokens", "repeats", "resolution", "path_resolution", "device")
        return {
            "corpus": Recipe(
                "corpus.py",
                {key: config["corpus"][key] for key in ("source", "tokenizer", "vocab_size")}
                | {"context": config["training"]["context"], "texts": self.corpus},
                self.corpus,
                "Corpus: {params.source}, {params.tokenizer}",
                {"tokens": self.paths.tokens, "description": self.paths.corpus},
            ),
            "training": Recipe(
                "train.py",
                {
                    "architecture": self.settings("d_model", "n_layers", "n_heads"),
                    "seed": lambda job: plan.models[job.model].seed,
                    "training": lambda job: training_settings(plan.models[job.model].training),
                    "sketch": config["training"]["sketch"] if plan.with_trajectory else {},
                    "device": config["training"]["device"],
                    "steps": self.steps("training"),
                },
                {
                    **tokens,
                    "schedule": lambda job: self.schedules([job.model]),
                    "checkpoint": partial(self._previous_part, self.paths.checkpoint),
                    "optimiser": partial(self._previous_part, self.paths.optimiser),
                },
                of_model=True,
            ),
            "training_log": Recipe(
                "gather.py",
                {"table": "training"},
                {"parts": lambda job: self.logs(job.model)},
                "Training log of {wildcards.model}",
                {"log": self.paths.model_log},
                sorted({*plan.trained, *plan.monitored} - plan.work["training"].whole),
            ),
            "schedule_file": Recipe(
                "schedule_file.py",
                {},
                {"file": lambda job: plan.schedule_files[job.model]},
                "Learning-rate schedule of {wildcards.model}",
                {"schedule": self.paths.schedule},
                plan.schedule_files,
            ),
            "user_metrics": Recipe(
                "user_metrics.py",
                {"models": list(plan.models)},
                {"tables": config["metrics"]["tables"]},
                "Reading the tables of metrics.tables",
                {"metrics": self.paths.user_metrics},
            ),
            "loss_table": Recipe(
                "loss_table.py",
                {"steps": lambda job: list(plan.models[job.model].steps)},
                {"curve": lambda job: plan.loss_curves[job.model]},
                "Loss curve of {wildcards.model}",
                {"log": self.paths.model_log, "metrics": self.paths.curve_metrics},
                plan.loss_curves,
            ),
            "weights": Recipe(
                "weight_features.py",
                self._measurement_settings("weights") | {"frozen": lambda job: list(plan.models[job.model].frozen)},
                self._weights_for("weights"),
            ),
            **{
                kind: Recipe(
                    script,
                    self._measurement_settings(kind)
                    | {
                        "tokenizer": self.tokenizer,
                        "tokenizer_content": lambda job: [self.contents[folder] for folder in self.tokenizer(job)],
                    },
                    {**tokens, **self._weights_for(kind)},
                )
                for kind, script in (("embeddings", "embeddings.py"), ("landscape", "loss_landscape.py"))
            },
            "path": Recipe(
                "training_path.py",
                {
                    "settings": {key: config["landscape"][key] for key in of_path},
                    "profiled": self.steps("landscape"),
                    "steps": self.steps("training"),
                },
                {**tokens, **self._weights_for("training")},
            ),
            "trajectory": Recipe(
                "trajectory.py",
                {"window": config["trajectory"]["window"], "steps": self.steps("training")},
                {"sketches": self._parts_of_model("training", self.paths.sketch, plan.trained)},
                "Topology of the training trajectory of {wildcards.model}",
                {"features": self.paths.trajectory_features},
                plan.trained,
                is_local=False,
            ),
            "diagram_distances": Recipe(
                "diagram_distances.py",
                {
                    "steps": lambda job: {
                        source: self.steps(source)(job)
                        for source, models in plan.compared.items()
                        if job.model in models
                    },
                    "repeats": lambda job: config["embeddings"]["repeats"] if job.model in plan.diverging else 0,
                },
                {
                    source: self._parts_of_model(source, self.paths.diagrams, models)
                    for source, models in plan.compared.items()
                }
                | {"clouds": self._parts_of_model("embeddings", self.paths.clouds, plan.diverging)},
                "Distances between consecutive checkpoints of {wildcards.model}",
                {"features": self.paths.distances},
                plan.moving,
                is_local=False,
            ),
        }

    def _measurement_settings(self, kind: str) -> dict[str, Any]:
        """Return the settings of a rule that measures checkpoints."""
        return {
            "settings": self.plan.settings[kind],
            "steps": self.steps(kind),
            "origin": lambda job: self.origin(kind, job),
            # A checkpoint that is trained here, and damaged, can be made again.
            "allow_missing": lambda job: job.model not in self.plan.trained,
        }

    def _weights_for(self, source: str) -> dict[str, Callable[[Job], Input]]:
        """Return the weights of the checkpoints that a job on a source does, and the folders of published ones."""

        def fetched(job: Job) -> list[str]:
            names = map(checkpoint_name, self.steps(source)(job) if job.model in self.plan.published else ())
            return [self.paths.fetched.format(model=job.model, checkpoints=name) for name in names]

        return {
            "checkpoints": lambda job: [self.checkpoint(job.model, step) for step in self.steps(source)(job)],
            "fetched": fetched,
        }

    def checkpoint(self, model: str, step: int) -> str:
        """Return the source of the weights of a checkpoint, which carries a digest if it is trained here."""
        file = self.weights(model, step)
        return Part(file, "training", Job(model)) if model in self.plan.trained else file

    def _previous_part(self, pattern: str, job: Job) -> Input:
        """Return the part of the previous checkpoint, from which a training goes on; [] for the first one, or for all."""
        name = job.get("checkpoints", ALL)
        step = None if name == ALL else self.plan.models[job.model].previous_step(step_of(name))
        if step is None:
            return []
        return Part(pattern.format(model=job.model, checkpoints=checkpoint_name(step)), "training", Job(job.model))

    def _parts_of_model(self, kind: str, pattern: str, models: Collection[str]) -> Callable[[Job], Input]:
        """Return an input function: the parts of a kind of the job's model, if it is one of `models`."""
        return lambda job: self.parts(kind, pattern, [job.model] if job.model in models else [])

    def parts(self, kind: str, pattern: str, models: Iterable[str] | None = None) -> list[str]:
        """Return the parts of a kind that the jobs of a producer make, and files of live monitors, which carry no digest.

        `pattern` may hold {source}, which is the kind.
        """
        work = self.plan.work[kind]
        maker = "landscape" if kind == "gradients" else kind
        files = ((Job(*job), work.file(pattern, *job, source=kind)) for job in work.jobs(models))
        return [file if job.model in self.plan.monitored else Part(file, maker, job) for job, file in files]

    def parts_of_models(self, kind: str, pattern: str, models: Iterable[str]) -> list[str]:
        """Return the parts of a kind of which there is one a model."""
        return [Part(pattern.format(model=model), kind, Job(model)) for model in models]

    def schedules(self, models: Iterable[str]) -> list[str]:
        """Return the schedules of models that the user wrote into files, as tables of the run."""
        return self.parts_of_models(
            "schedule_file", self.paths.schedule, [name for name in models if name in self.plan.schedule_files]
        )

    def origin(self, kind: str, job: Job) -> Any:
        """Return the origin of checkpoints from elsewhere: the place of publication, or the content of the user's own."""
        model = self.plan.models[job.model]
        if model.kind == model_kinds.FOLDER:
            return " ".join(self.contents[self.weights(model.name, step)] for step in self.steps(kind)(job))
        if model.kind == model_kinds.HUB:
            return {key: model.settings[key] for key in ("repo", "revisions")}
        return ""

    def settings(self, *keys: str) -> Callable[[Job], dict[str, Any]]:
        """Return a params function: the settings of these keys in the entry of `models:` of a job's model."""
        models = self.plan.models
        return lambda job: {key: value for key, value in models[job.model].settings.items() if key in keys}

    def tokenizer(self, job: Job) -> list[str]:
        """Return the user's folder with the tokenizer, in a list, since Snakemake looks for wildcards in a text."""
        folder = self.plan.models[job.model].settings.get("tokenizer")
        return [folder] if folder else []

    def monitored(self, kind: str, models: Iterable[str]) -> list[str]:
        """Return the files of one kind that live monitors have written so far."""
        folders = [Folder(Path(self.plan.models[model].settings["path"]), model) for model in models]
        return [str(path) for folder in folders for path in folder.files(kind).values()]

    def model_log(self, model: str) -> str:
        """Return the whole training log of a model."""
        file = self.paths.model_log.format(model=model)
        if model in self.plan.monitored:
            return file
        producer = "training" if model in self.plan.work["training"].whole else "training_log"
        return Part(file, "loss_table" if model in self.plan.loss_curves else producer, Job(model))

    def logs(self, model: str) -> list[str]:
        """Return the parts of the training log of a model up to now."""
        if model in self.plan.monitored:
            return list(self.monitored("training", [model]))
        return self.parts("training", self.paths.training_log, models=[model])

    def progress(self) -> dict[str, Any]:
        """Return the input of the advice on a run under way: facts and files of each model, and the request."""
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
        """Return the files that show the progress of a model, by kind, existing or not; those of a monitor as globs."""
        published = [model] if model in self.plan.published else []

        def of(source: str, pattern: str) -> list[str]:
            work = self.plan.work[source]
            return work.files(pattern, [model] if model in work.steps else [], source=source)

        def monitored(kind: str) -> list[str]:
            if model not in self.plan.monitored:
                return []
            return [f"{escape(self.plan.models[model].settings['path'])}/{kind}/{model}/step-*.parquet"]

        whole_log = files_of_models(self.paths.model_log, self.plan.work["training"].whole & {model})
        metrics = of("training", self.paths.training_metrics) + of("embeddings", self.paths.embedding_metrics)
        steps = () if published else self.plan.models[model].steps
        return {
            "training": whole_log + of("training", self.paths.training_log) + monitored("training"),
            "metrics": metrics + monitored("metrics/monitor"),
            # The weights of a published model may be gone again; its size was noted when they were fetched.
            "weights": [self.weights(model, step) for step in steps],
            "sizes": of("weights", self.paths.manifest) if published else [],
        }

    def sizes(self, job: Job) -> Sizes:
        """Return the sizes of a checkpoint from elsewhere; zeros where they are tiny or not usable.

        Before it was fetched they follow from the name of its repository, if it is fetched in the same group of jobs.
        Otherwise FileNotFoundError is raised, and Snakemake asks again when it was fetched.
        """
        model, checkpoints = self.plan.models[job.model], job.checkpoints
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

    def by_size(self, base: int, per_weight: float = 0.0, per_matrix: float = 0.0) -> Callable[[Job, Any, int], int]:
        """Return a resource: `base` for a tiny checkpoint, more for each million weights or largest matrix's entries."""

        def resource(job: Job, input: Any, attempt: int) -> int:
            sizes = self.sizes(job)
            increase = per_weight * sizes.n_parameters + per_matrix * sizes.largest_matrix
            return int(base + increase / 1e6) * attempt

        return resource


def on_attempt(amount: int) -> Callable[[Job, int], int]:
    """Return a resource: an amount at the first attempt, as much again at every further one (`retries` of a profile)."""
    return lambda job, attempt: amount * attempt


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


def _harness_files(folder_or_glob: str) -> list[str]:
    """Return the results of lm-evaluation-harness that are there now: with new ones the metrics are gathered again."""
    files = [str(path) for path in lm_eval.result_files(folder_or_glob)] if folder_or_glob else []
    if folder_or_glob and not files:
        raise UserError(f"config key metrics.harness: {folder_or_glob}: no JSON file of lm-evaluation-harness is there")
    return files
