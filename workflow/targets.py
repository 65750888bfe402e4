"""What a run makes: its tables and figures, and the input, params and resource functions of the jobs that make them.

A rule that takes seconds or needs the network is a `localrule`: it runs where Snakemake runs, not on a node of a cluster.
"""

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from glob import escape, glob
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fingerprint import code_of
from paths import ROOT, each
from plan import ALL, Plan, span_of, step_of, training_settings
from toposcale import analysis, reproduction
from toposcale.analysis import lm_eval
from toposcale.checkpoints import Sizes, model_kinds
from toposcale.figures import FIGURES
from toposcale.io import tables
from toposcale.io.errors import UserError
from toposcale.io.files import read_noted
from toposcale.monitor.folder import Folder

SCRIPTS = {
    "training": "train.py",
    "weights": "weight_features.py",
    "embeddings": "embeddings.py",
    "landscape": "loss_landscape.py",
    "gradients": "loss_landscape.py",
    "path": "training_path.py",
    "trajectory": "trajectory.py",
    "distances": "diagram_distances.py",
    "divergences": "divergences.py",
}
"""The script that makes the parts of a kind."""


class Wildcards(Protocol):
    """The wildcards of a job: those that its rule has of these."""

    model: str
    span: str
    source: str

    def get(self, name: str, default: str) -> str:
        """Return a wildcard, or a default where the rule does not have it."""


@dataclass
class Job:
    """The wildcards of a job that makes a part of a table."""

    model: str
    span: str = ALL
    source: str = ""

    def get(self, name: str, default: str) -> str:
        """Return a wildcard, as those of Snakemake do."""
        return str(getattr(self, name, default))


class Part(NamedTuple):
    """A file that a table gathers, its kind (of `SCRIPTS`), and the job that makes it."""

    file: str
    kind: str
    job: Job


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

    @property
    def user_files(self) -> list[str]:
        """Files and folders of the user that jobs read."""
        plan = self.plan
        folders = [plan.models[name].settings["checkpoints"].values() for name in plan.named(model_kinds.FOLDER)]
        files = [*self.corpus.values(), self.harness, plan.config["metrics"]["tables"], *folders]
        return [*chain.from_iterable(files), *plan.loss_curves.values(), *plan.schedule_files.values()]

    @property
    def manifests(self) -> list[str]:
        """What was noted of the published checkpoints when they were fetched."""
        return self.plan.work["weights"].files(self.paths.manifest, self.plan.published)

    @property
    def compared_with_ripser(self) -> list[str]:
        """Weights and diagrams of the last checkpoint of one model, trained here if any is; none where no weights stay."""
        plan = self.plan
        kept = plan.named(model_kinds.HUB) if self.keeps else []
        staying = plan.named(model_kinds.GPT) + plan.named(model_kinds.FOLDER) + kept
        if not staying or "topology" not in plan.config["weights"]["features"]:
            return []
        model, work = staying[0], plan.work["weights"]
        step = plan.models[model].steps[-1]
        span = ALL if model in work.whole else span_of(step)
        return [self.weights(model, step), work.file(self.paths.diagrams, model, span, source="weights")]

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
        return pattern.format(model=model, span=span_of(step))

    def steps(self, source: str = "") -> Callable[[Wildcards], list[int]]:
        """Return a params function: the checkpoints that a job on a source, or on that of the wildcard, does."""
        return lambda wildcards: self.plan.work[source or wildcards.source].steps_of(
            wildcards.model, wildcards.get("span", ALL)
        )

    def checkpoints(self, source: str) -> Callable[[Wildcards], list[str]]:
        """Return an input function: the weights of the checkpoints that a job on a source does."""
        steps = self.steps(source)
        return lambda wildcards: [self.weights(wildcards.model, step) for step in steps(wildcards)]

    def fetched(self, source: str) -> Callable[[Wildcards], list[str]]:
        """Return an input function: the folders of the published checkpoints among them."""
        steps = self.steps(source)
        return lambda wildcards: [
            self.paths.fetched.format(model=wildcards.model, span=span_of(step))
            for step in (steps(wildcards) if wildcards.model in self.plan.published else ())
        ]

    def group(self, wildcards: Wildcards) -> str | None:
        """Return the group of the job that fetches a checkpoint, if it does not stay, and of those that measure it."""
        return "checkpoint" if wildcards.model in self.plan.published and not self.keeps else None

    def previous(self, pattern: str) -> Callable[[Wildcards], str | list[str]]:
        """Return an input function: the file of the checkpoint before; nothing for a model's first one."""

        # One file is a path for its script, and a list of one is a list.
        def files(wildcards: Wildcards) -> str | list[str]:
            step = self.plan.models[wildcards.model].previous_step(step_of(wildcards.span))
            return [] if step is None else pattern.format(model=wildcards.model, span=span_of(step))

        return files

    def params(self, kind: str) -> dict[str, Callable[[Wildcards], Any]]:
        """Return the params functions, by name, of the rule that makes the parts of a kind.

        All but `code` stand in the metadata of a part as its settings: see `made_with`.
        """
        plan, config = self.plan, self.plan.config
        section = "landscape" if kind == "gradients" else kind
        measured = {
            "settings": lambda _: plan.settings[section],
            "steps": self.steps(kind),
            "origin": self.origin(kind),
            "allow_missing": self.is_from_elsewhere,
        }
        on_text = measured | {"tokenizer": self.tokenizer, "corpus": lambda _: config["corpus"]}
        of_path = ("batch_size", "max_tokens", "repeats", "resolution", "path_resolution", "device")
        of_training = {"steps": self.steps("training"), "origin": self.origin("training")}
        by_kind: dict[str, dict[str, Callable[[Wildcards], Any]]] = {
            "training": {
                "architecture": self.settings("d_model", "n_layers", "n_heads"),
                "seed": lambda wildcards: plan.models[wildcards.model].seed,
                "training": lambda wildcards: training_settings(plan.models[wildcards.model].training),
                "corpus": lambda _: config["corpus"],
                "sketch": lambda _: config["training"]["sketch"] if plan.with_trajectory else {},
                "device": lambda _: config["training"]["device"],
                "steps": self.steps("training"),
            },
            "weights": measured,
            "embeddings": on_text,
            "landscape": on_text,
            "path": {
                "settings": lambda _: {key: config["landscape"][key] for key in of_path},
                "profiled": self.steps("landscape"),
                **of_training,
            },
            "trajectory": {"window": lambda _: config["trajectory"]["window"], **of_training},
            "distances": {
                "steps": self.steps(),
                "diagrams": lambda wildcards: self.made_with(wildcards.source, Job(wildcards.model)),
            },
            "divergences": {
                "steps": self.steps("embeddings"),
                "repeats": lambda _: config["embeddings"]["repeats"],
                "clouds": lambda wildcards: self.made_with("embeddings", Job(wildcards.model)),
            },
        }
        return {**by_kind[section], "code": code_of(SCRIPTS[kind])}

    def made_with(self, kind: str, job: Wildcards, left_out: Iterable[str] = ()) -> str:
        """Return the digest of the settings and the code that a part must carry (`tables.made_with`)."""
        params = {name: value(job) for name, value in self.params(kind).items() if name not in left_out}
        return tables.digest_of(tables.settings_of(params), params["code"])

    def digests(self, parts: Iterable[Part]) -> Callable[[Wildcards], list[str]]:
        """Return a params function: what each part must be made with; "" for those of a live monitor.

        With it a table is made again when what its parts are made with changes, whatever the times of the files say.
        """
        return lambda _: [
            "" if part.job.model in self.plan.monitored else self.made_with(part.kind, part.job) for part in parts
        ]

    def parts(self, kind: str, pattern: str, models: Iterable[str] | None = None) -> list[Part]:
        """Return the parts of a kind that the jobs of a producer make; `pattern` may hold {source}, which is the kind."""
        work = self.plan.work[kind]
        files = zip(work.files(pattern, models, source=kind), work.jobs(models), strict=True)
        return [Part(file, kind, Job(*job, source=kind)) for file, job in files]

    def parts_of_models(self, kind: str, pattern: str, models: Iterable[str], source: str = "") -> list[Part]:
        """Return the parts of a kind of which there is one a model."""
        return [Part(pattern.format(model=model, source=source), kind, Job(model, ALL, source)) for model in models]

    def origin(self, kind: str) -> Callable[[Wildcards], str]:
        """Return a params function: what distinguishes the checkpoints of a job from others of the same names.

        How they are trained; where they are published; of the user's own, their sizes and samples of their content.
        """
        plan, files = self.plan, self.checkpoints(kind)
        duplicates = {"duplicates": plan.config["hub"]["duplicates"]}

        def of(wildcards: Wildcards) -> str:
            model = plan.models[wildcards.model]
            if model.kind == model_kinds.FOLDER:
                return " ".join(plan.inspections.of(Path(file)).sample for file in files(wildcards))
            if model.kind == model_kinds.HUB:
                return tables.settings_of({key: model.settings[key] for key in ("repo", "revisions")} | duplicates)
            return self.made_with("training", wildcards, left_out=("steps", "sketch", "device"))

        return of

    def settings(self, *keys: str) -> Callable[[Wildcards], dict[str, Any]]:
        """Return a params function: those of some keys that the entry of `models:` behind a model has."""

        def present(wildcards: Wildcards) -> dict[str, Any]:
            entry = self.plan.models[wildcards.model].settings
            return {key: entry[key] for key in keys if key in entry}

        return present

    def tokenizer(self, wildcards: Wildcards) -> list[str]:
        """Return the user's folder with the tokenizer, in a list, since Snakemake looks for wildcards in a text."""
        folder = self.plan.models[wildcards.model].settings.get("tokenizer")
        return [folder] if folder else []

    def is_from_elsewhere(self, wildcards: Wildcards) -> bool:
        """Return whether the checkpoints of a model come from elsewhere: a damaged one cannot be made again."""
        return wildcards.model not in self.plan.trained

    def monitored(self, kind: str, models: Iterable[str]) -> list[str]:
        """Return the files of one kind that live monitors have written so far."""
        folders = [Folder(Path(self.plan.models[model].settings["path"]), model) for model in models]
        return [str(path) for folder in folders for path in folder.files(kind).values()]

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
        model, span = self.plan.models[wildcards.model], wildcards.span
        if model.kind == model_kinds.FOLDER:
            # They are of one shape, so that the last one has the sizes of all.
            return self.plan.inspections.of(Path(self.weights(model.name, model.steps[-1]))).sizes
        if model.kind != model_kinds.HUB:
            return Sizes(0, 0, 0)
        manifest = self.paths.manifest.format(model=model.name, span=span)
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


class RunTables:
    """The tables of a run and what is made of them.

    gathered: tables that only gather the parts
    that producers make, with these. analyses: those that this run has. made: the tables that they make. files: where each
    table lies, or its files. figures: those whose tables and features this run has.
    """

    def __init__(self, inputs: Inputs) -> None:
        plan, paths, config = inputs.plan, inputs.paths, inputs.plan.config
        self.gathered = _gathered(inputs)
        needed = {"scores": config["forecasts"]["metrics"]}  # scores are forecast if asked for
        analyses = analysis.ANALYSES | (reproduction.ANALYSES if config["reproduces"] else {})
        self.analyses = {name: entry for name, entry in analyses.items() if needed.get(name, True)}
        self.made = [table for entry in self.analyses.values() for table in entry.makes]
        names = [*self.gathered, "vectors", "metrics", "models", "schedules", *self.made]
        self.files: dict[str, str | list[str]] = {
            "published": str(ROOT / "src/toposcale/reproduction/published_values.csv"),
            "training": each(paths.model_log, [*plan.trained, *plan.monitored, *plan.loss_curves]),
            "all_features": paths.table("features"),
            **{table: paths.table(table) for table in names},
        }
        sources = {"metrics", *plan.sources}  # every run has metrics
        self.figures = {
            name: figure
            for name, figure in FIGURES.items()
            if set(figure.tables) <= set(self.files) and figure.source in sources
        }

    @property
    def subjects(self) -> dict[str, list[str]]:
        """Names of the figures of each subject."""
        subjects = dict.fromkeys(figure.subject for figure in self.figures.values())
        return {
            subject: [name for name, figure in self.figures.items() if figure.subject == subject]
            for subject in subjects
        }


def analysis_settings(plan: Plan) -> dict[str, Any]:
    """Return the settings of the analyses, by the name of their argument."""
    config = plan.config
    return {
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


def _gathered(inputs: Inputs) -> dict[str, list[Part]]:
    """Return the parts that each table gathers; every run has a features table, the others where there are parts."""
    plan, paths, sources = inputs.plan, inputs.paths, inputs.plan.sources
    moving = {
        source: models
        for source, models in sources.items()
        if source != "weights" or plan.config["weights"]["distances"]
    }

    def of_path(pattern: str) -> list[Part]:
        return inputs.parts_of_models("path", pattern, plan.with_path)

    gathered = {
        "features": [
            *chain.from_iterable(inputs.parts(source, paths.features) for source in sources),
            *chain.from_iterable(
                inputs.parts_of_models("distances", paths.distances, models, source)
                for source, models in moving.items()
            ),
            *inputs.parts_of_models("trajectory", paths.trajectory_features, plan.with_trajectory),
            *inputs.parts_of_models("divergences", paths.divergences, plan.diverging),
        ],
        "diagrams": [*inputs.parts("embeddings", paths.diagrams), *inputs.parts("landscape", paths.diagrams)],
        "surfaces": inputs.parts("landscape", paths.surfaces),
        "densities": inputs.parts("landscape", paths.densities),
        "profiles": inputs.parts("landscape", paths.profiles) + of_path(paths.path_profiles),
        "path_surfaces": of_path(paths.path_surfaces),
        "trajectories": of_path(paths.trajectories),
    }
    return {table: parts for table, parts in gathered.items() if parts or table == "features"}


def on_attempt(amount: int) -> Callable[[Wildcards, int], int]:
    """Return a resource: an amount at the first attempt, as much again at every further one (`retries` of a profile)."""
    return lambda wildcards, attempt: amount * attempt


def _corpus_files(key: str, patterns: Iterable[str]) -> list[str]:
    """Return the user's files behind corpus.train or corpus.validation, in the order of the list, each glob sorted."""
    files = []
    for pattern in patterns:
        matched = sorted(path for path in glob(pattern, recursive=True) if Path(path).is_file())
        if not matched and Path(pattern).is_file():
            matched = [pattern]  # a name with brackets or stars in it
        if not matched:
            raise UserError(f"config key corpus.{key}: no file matches {pattern!r}")
        files += matched
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
