"""Inputs and outputs of the jobs of a run: the input, params and resource functions of its rules, and its tables.

A rule that takes seconds or needs the network is a `localrule`: it runs where Snakemake runs, not on a node of a cluster.
"""

import errno
from collections.abc import Callable, Collection, Iterable
from glob import escape
from itertools import chain
from pathlib import Path
from typing import Any

from digests import Digests, Job
from paths import ALL, LIBRARY, checkpoint_name, files_of_models, step_of, training_rules
from plan import Plan, training_settings
from toposcale import analysis, reproduction
from toposcale.analysis import lm_eval
from toposcale.checkpoints import Sizes, model_kinds
from toposcale.figures import FIGURES
from toposcale.io.errors import UserError
from toposcale.io.files import read_noted
from toposcale.monitor.folder import KINDS, Folder
from toposcale.training import corpus

ANALYSES = analysis.ANALYSES | reproduction.ANALYSES

Input = str | list[str]
"""Files that a job reads under one name: one, or a list."""


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
        self.training_rules = training_rules(plan.work["training"])
        self.contents = self._contents()
        weights_stay = [name for name in plan.with_weights if name not in plan.published]
        self.with_own_weights, self.with_own_log = weights_stay, [*plan.loss_curves, *plan.monitored]

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
    def features(self) -> list[str]:
        """Features of the checkpoints of all sources, distances between them, and features of the trajectories."""
        plan = self.plan
        return [
            *chain.from_iterable(self.parts(source, self.paths.features) for source in plan.sources),
            *files_of_models(self.paths.distances, plan.moving),
            *files_of_models(self.paths.trajectory_features, plan.with_trajectory),
        ]

    @property
    def metrics(self) -> list[str]:
        """Metrics of the checkpoints: measured here, of loss curves, and as far as live monitors have come."""
        return [
            *self.parts("training", self.paths.training_metrics),
            *self.parts("embeddings", self.paths.embedding_metrics),
            *files_of_models(self.paths.curve_metrics, self.plan.loss_curves),
            *self.monitored("metrics/monitor", self.plan.monitored),
            *([self.paths.user_metrics] if self.plan.config["metrics"]["tables"] else []),
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

    def checkpoints(self, source: str) -> Callable[[Job], list[str]]:
        """Return an input function: the weights of the checkpoints that a job on a source does."""
        return lambda job: [self.weights(job.model, step) for step in self.steps(source)(job)]

    def fetched(self, source: str) -> Callable[[Job], list[str]]:
        """Return an input function: the folders of the published checkpoints that a job on a source does."""

        def folders(job: Job) -> list[str]:
            names = map(checkpoint_name, self.steps(source)(job) if job.model in self.plan.published else ())
            return [self.paths.fetched.format(model=job.model, checkpoints=name) for name in names]

        return folders

    def previous(self, pattern: str) -> Callable[[Job], Input]:
        """Return an input function: the file of the checkpoint from which a training goes on; [] for the first, or all."""

        def file(job: Job) -> Input:
            name = job.get("checkpoints", ALL)
            step = None if name == ALL else self.plan.models[job.model].previous_step(step_of(name))
            return [] if step is None else pattern.format(model=job.model, checkpoints=checkpoint_name(step))

        return file

    def of_model(self, kind: str, pattern: str, models: Collection[str]) -> Callable[[Job], list[str]]:
        """Return an input function: the parts of a kind of the job's model, if it is one of `models`."""
        return lambda job: self.parts(kind, pattern, [job.model] if job.model in models else [])

    def compared_steps(self, job: Job) -> dict[str, list[int]]:
        """Return the checkpoints of a model whose diagrams are compared, by source."""
        return {source: self.steps(source)(job) for source, models in self.plan.compared.items() if job.model in models}

    def moved_weights(self, job: Job) -> list[str]:
        """Return the checkpoints of a model whose weights are compared; published ones may be removed by then."""
        stay = job.model in self.with_own_weights and job.model in self.plan.compared.get("weights", ())
        return self.checkpoints("weights")(job) if stay else []

    def allow_missing(self, job: Job) -> bool:
        """Return whether a checkpoint may be left out: one that is trained here, and damaged, can be made again."""
        return job.model not in self.plan.trained

    def evaluated(self, job: Job) -> dict[str, dict[str, Any]]:
        """Return where each model is published, if results of lm-evaluation-harness are read."""
        models = self.plan.models.items() if self.plan.config["metrics"]["harness"] else ()
        keys = ("repo", "revisions")
        return {name: {key: model.settings[key] for key in keys if key in model.settings} for name, model in models}

    def parts(self, kind: str, pattern: str, models: Iterable[str] | None = None) -> list[str]:
        """Return the files of a kind that the jobs of a producer or a monitor make; {source} in `pattern` is the kind."""
        return self.plan.work[kind].files(pattern, models, source=kind)

    def settings(self, *keys: str) -> Callable[[Job], dict[str, Any]]:
        """Return a params function: the settings of these keys in the entry of `models:` of a job's model."""
        models = self.plan.models
        return lambda job: {key: value for key, value in models[job.model].settings.items() if key in keys}

    def tokenizer(self, job: Job) -> dict[str, str]:
        """Return the hash of the user's tokenizer by its folder; {} where the checkpoint or the corpus has one."""
        folder = self.plan.models[job.model].settings.get("tokenizer")
        return {folder: self.contents[folder]} if folder else {}

    def monitored(self, kind: str, models: Iterable[str]) -> list[str]:
        """Return the files of one kind that live monitors have written so far."""
        folders = [Folder(Path(self.plan.models[model].settings["path"]), model) for model in models]
        return [str(path) for folder in folders for path in folder.files(kind).values()]

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
                    "pattern": model.losses_pattern,
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


class RunTables:
    """The tables and figures of a run, and what its analyses read and make.

    gathered: tables that only gather what producers make; every run has features, the others where something makes them.
    analyses: those of this run.
    tables: the files of the tables, by name.
    files: inputs of analyses and figures, by name.
    figures: those whose tables and features this run has.
    with_csv: tables that are written as CSV too.
    """

    def __init__(self, inputs: Inputs) -> None:
        plan, config = inputs.plan, inputs.plan.config
        self._inputs, self._table = inputs, inputs.paths.table
        gathered = {
            "features": True,
            "diagrams": plan.embedded or plan.landscaped,
            **dict.fromkeys(("surfaces", "densities", "profiles"), plan.landscaped),
            **dict.fromkeys(("path_surfaces", "trajectories"), plan.with_path),
        }
        self.gathered = [table for table, makers in gathered.items() if makers]
        required_settings = {"scores": config["forecasts"]["metrics"]}  # scores are forecast if asked for
        analyses = analysis.ANALYSES | (reproduction.ANALYSES if config["reproduces"] else {})
        self.analyses = {name: entry for name, entry in analyses.items() if required_settings.get(name, True)}
        made_by_analyses = [table for entry in self.analyses.values() for table in entry.makes]
        names = [*self.gathered, "vectors", "metrics", "models", "schedules", "warnings", *made_by_analyses]
        self.tables = {name: self._table(name) for name in names}
        self.with_csv = ["warnings", *made_by_analyses]
        self.files: dict[str, str | list[str]] = {
            "published": str(LIBRARY / "toposcale/reproduction/published_values.csv"),
            "training": files_of_models(inputs.paths.model_log, [*plan.trained, *plan.monitored, *plan.loss_curves]),
            "all_features": self.tables["features"],
            **self.tables,
        }
        sources = {"metrics", *plan.sources}  # every run has metrics
        self.figures = {
            name: figure
            for name, figure in FIGURES.items()
            if set(figure.tables) <= set(self.files) and figure.source in sources
        }

    def read_by(self, name: str) -> dict[str, str | list[str]]:
        """Return the input of an analysis, by name."""
        return {table: self.files.get(table, self._table(table)) for table in ANALYSES[name].reads}

    def made_by(self, name: str) -> dict[str, str]:
        """Return the output of an analysis, by name: its tables, as CSV too."""
        tables = ANALYSES[name].makes
        csv = {f"{table}_csv": self._inputs.paths.csv(table) for table in tables}
        return {table: self._table(table) for table in tables} | csv

    @property
    def read_by_figures(self) -> dict[str, str | list[str]]:
        """The input of the figures, by name."""
        return {table: self.files[table] for figure in self.figures.values() for table in figure.tables}

    def params(self, name: str, digests: Digests) -> dict[str, Any]:
        """Return the params of the rule of an analysis: what it is made with, its name and its settings."""
        params = digests.params(name, "analyse.py", ANALYSES[name].module)
        return {**params, "analysis": name, "settings": self.settings(name)}

    def settings(self, name: str) -> dict[str, Any]:
        """Return the settings of an analysis, by the name of their argument."""
        config = self._inputs.plan.config
        settings = {
            **config["statistics"],
            "tasks": config["metrics"]["tasks"],
            "fractions": config["forecasts"]["fractions"],
            "score_metrics": config["forecasts"]["metrics"],
            "loss_metric": config["forecasts"]["loss"],
            "decision": {key: config["decision"][key] for key in ("remaining", "multiples")},
            "training_settings": training_settings(config["training"]),
            "corpus_settings": {key: config["corpus"][key] for key in ("source", "train", "validation", "tokenizer")},
            "seeds": config["seeds"],
            "reproduces": config["reproduces"],
        }
        return {key: settings[key] for key in ANALYSES[name].settings}


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
