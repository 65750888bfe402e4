"""The tables and figures of a run: which it has, and what each table is made with."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

from fingerprint import fingerprint
from parts import Input, Inputs, Part, Wildcards, digest_of, files_of, parts_of
from paths import ROOT
from plan import Plan, training_settings
from toposcale import analysis, reproduction
from toposcale.figures import FIGURES
from toposcale.io import tables
from toposcale.io.errors import UserError


class Recipe(NamedTuple):
    """Rule that makes some tables of a run: its message, its script with the settings, and what it reads.

    makes: names of the tables. tables: names of those that it reads. inputs: what else it reads, by name; a file from
    elsewhere carries no digest. modules: those of the library that the script loads by name. csv: whether it writes the
    tables as CSV too.
    """

    makes: Sequence[str]
    script: str
    title: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, Input]
    tables: Sequence[str] = ()
    modules: Sequence[str] = ()
    csv: bool = False


class RunTables:
    """The tables of a run and what is made of them.

    gathered: tables that only gather the parts that producers make, with these. analyses: those that this run has. made:
    the tables that they make. files: where each table lies, or its files. figures: those whose tables and features this
    run has. recipes: what tables are made with, by the name of the rule or of the table.
    """

    def __init__(self, inputs: Inputs) -> None:
        plan, paths, config = inputs.plan, inputs.paths, inputs.plan.config
        self._inputs = inputs
        self.gathered = _gathered(inputs)
        needed = {"scores": config["forecasts"]["metrics"]}  # scores are forecast if asked for
        analyses = analysis.ANALYSES | (reproduction.ANALYSES if config["reproduces"] else {})
        self.analyses = {name: entry for name, entry in analyses.items() if needed.get(name, True)}
        self.made = [table for entry in self.analyses.values() for table in entry.makes]
        names = [*self.gathered, "vectors", "metrics", "models", "schedules", *self.made]
        self._logs = [inputs.model_log(name) for name in [*plan.trained, *plan.monitored, *plan.loss_curves]]
        self.recipes = self._recipes()
        self._digests: dict[str, str] = {}
        self.files: dict[str, str | list[str]] = {
            "published": str(ROOT / "src/toposcale/reproduction/published_values.csv"),
            "training": [log.file for log in self._logs],
            "all_features": paths.table("features"),
            **{table: paths.table(table) for table in names},
        }
        sources = {"metrics", *plan.sources}  # every run has metrics
        self.figures = {
            name: figure
            for name, figure in FIGURES.items()
            if set(figure.tables) <= set(self.files) and figure.source in sources
        }

    def _recipes(self) -> dict[str, Recipe]:
        """Return what each table is made with."""
        inputs, plan, paths = self._inputs, self._inputs.plan, self._inputs.paths
        config, all_settings = plan.config, analysis_settings(plan)
        leave_out = config["hub"]["duplicates"] == "leave_out"
        with_weights = [name for name in plan.with_weights if name not in plan.published]
        with_log = [*plan.loss_curves, *plan.monitored]
        recipes = {
            **{
                table: Recipe([table], "gather.py", f"Gathering {table}", {"table": table}, {"parts": parts})
                for table, parts in self.gathered.items()
            },
            "vectors": Recipe(
                ["vectors"],
                "vectors.py",
                "Persistence images and landscapes of the weights",
                {},
                {"parts": inputs.parts("weights", paths.diagrams)},
            ),
            "metrics": Recipe(
                ["metrics"],
                "metrics_table.py",
                "Gathering the metrics of every checkpoint",
                {
                    "models": list(plan.models),
                    "checkpoints": {name: plan.models[name].steps for name in plan.trained},
                    "saved_losses": [row for model in plan.models.values() for row in model.saved_losses],
                    "harness": [config["metrics"]["harness"]],
                    "tasks": config["metrics"]["tasks"],
                    "evaluated": {
                        name: {key: model.settings[key] for key in ("repo", "revisions") if key in model.settings}
                        for name, model in plan.models.items()
                        if config["metrics"]["harness"]
                    },
                },
                {
                    "parts": inputs.metrics,
                    "training": [inputs.model_log(name) for name in plan.trained],
                    "tables": config["metrics"]["tables"],
                    "harness": inputs.harness,
                    "left_out": inputs.manifests if leave_out else [],
                },
            ),
            "models": Recipe(
                ["models", "schedules"],
                "models_table.py",
                "Listing the models and their plans",
                {
                    "models": {name: model.facts for name, model in plan.models.items()},
                    "with_weights": with_weights,
                    "with_curve": list(plan.loss_curves),
                    "with_log": with_log,
                },
                {
                    # Their size is the model's.
                    "checkpoints": [inputs.checkpoint(name, plan.models[name].steps[-1]) for name in with_weights],
                    "sizes": inputs.manifests,
                    "curves": list(plan.loss_curves.values()),
                    "logs": [inputs.model_log(name) for name in with_log],
                    "schedule_files": list(plan.schedule_files.values()),
                },
            ),
            "warnings": Recipe(
                ["warnings"],
                "warnings_table.py",
                "What to know before trusting a number",
                {
                    "missing": {name: dict(model.missing) for name, model in plan.models.items() if model.missing},
                    "leave_out": leave_out,
                },
                {"manifests": inputs.manifests, "corpus": [paths.corpus] if plan.reads_text else []},
                tables=["features", "metrics"],
                csv=True,
            ),
        }
        for name, entry in self.analyses.items():
            recipes[name] = Recipe(
                entry.makes,
                "analyse.py",
                entry.title,
                {"analysis": name, "settings": {key: all_settings[key] for key in entry.settings}},
                {"training": self._logs} if "training" in entry.reads else {},
                tables=entry.reads,
                modules=[entry.module],
                csv=True,
            )
        return recipes

    def inputs(self, name: str) -> dict[str, str | list[str]]:
        """Return the input, by name, of the rule that makes some tables."""
        recipe = self.recipes[name]
        return {table: self.files[table] for table in recipe.tables} | {
            name: files_of(read) for name, read in recipe.inputs.items()
        }

    def outputs(self, name: str) -> dict[str, str]:
        """Return the output, by name, of the rule that makes some tables."""
        recipe, paths = self.recipes[name], self._inputs.paths
        csv = {f"{table}_csv": f"{paths.tables}/{table}.csv" for table in recipe.makes if recipe.csv}
        return {table: paths.table(table) for table in recipe.makes} | csv

    def params(self, name: str) -> dict[str, Callable[[Wildcards], Any]]:
        """Return the params functions, by name, of the rule that makes some tables; see `Inputs.params`."""
        recipe = self.recipes[name]
        settings = {**recipe.settings, "script": recipe.script}
        expected = {"digest": lambda _: self._digest(name), "inputs": lambda _: self._made_of(recipe)}
        return {key: lambda _, value=value: value for key, value in settings.items()} | expected

    def expected(self, names: Iterable[str]) -> dict[str, str]:
        """Return the digest that each of some tables of the run must carry, by file."""
        makers = {table: name for name, recipe in self.recipes.items() for table in recipe.makes}
        makers["all_features"] = "features"
        return {
            self._inputs.paths.table(makers[table] if table == "all_features" else table): self._digest(makers[table])
            for table in names
            if table in makers
        }

    @property
    def with_digest(self) -> list[str]:
        """Tables that carry a digest: all that the run makes."""
        return [table for recipe in self.recipes.values() for table in recipe.makes]

    def stale(self) -> list[str]:
        """Return the tables that are there and carry another digest; one that is not readable is left to its readers."""
        stale = []
        present = [table for table in self.with_digest if os.path.exists(self._inputs.paths.table(table))]
        for file, digest in self.expected(present).items():
            with suppress(UserError):
                stale += [file] if tables.read_metadata(file).get("digest") != digest else []
        return stale

    def _made_of(self, recipe: Recipe) -> dict[str, str]:
        return self._inputs.expected(parts_of(recipe.inputs)) | self.expected(recipe.tables)

    def _digest(self, name: str) -> str:
        """Return the digest of what tables are made with."""
        if name not in self._digests:
            recipe = self.recipes[name]
            code = fingerprint(recipe.script, *recipe.modules)
            inputs = [*self._inputs.digests_of_models(parts_of(recipe.inputs)), *self.expected(recipe.tables).values()]
            self._digests[name] = digest_of(recipe.settings, code, inputs)
        return self._digests[name]


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

    def of_path(pattern: str) -> list[Part]:
        return inputs.parts_of_models("path", pattern, plan.with_path)

    gathered = {
        "features": [
            *chain.from_iterable(inputs.parts(source, paths.features) for source in sources),
            *inputs.parts_of_models("distances", paths.distances, plan.moving),
            *inputs.parts_of_models("trajectory", paths.trajectory_features, plan.with_trajectory),
        ],
        "diagrams": [*inputs.parts("embeddings", paths.diagrams), *inputs.parts("landscape", paths.diagrams)],
        "surfaces": inputs.parts("landscape", paths.surfaces),
        "densities": inputs.parts("landscape", paths.densities),
        "profiles": inputs.parts("landscape", paths.profiles) + of_path(paths.path_profiles),
        "path_surfaces": of_path(paths.path_surfaces),
        "trajectories": of_path(paths.trajectories),
    }
    return {table: parts for table, parts in gathered.items() if parts or table == "features"}
