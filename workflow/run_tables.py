"""The tables and figures of a run, and their recipes."""

from itertools import chain
from typing import Any

from parts import Inputs
from paths import ROOT, page_files
from plan import Plan, training_settings
from recipes import Input, Job, Part, Recipe
from toposcale import analysis, reproduction
from toposcale.figures import FIGURES


class RunTables:
    """The tables of a run and what is made of them.

    parts_of_tables: the parts of each table that only gathers what producers make. analyses, tables: those of this run.
    files: inputs of analyses and figures, by name. figures: those whose tables and features this run has. recipes: of the
    tables. other_recipes: of the figures, the explorer and tables as CSV.
    """

    def __init__(self, inputs: Inputs) -> None:
        plan, paths, config = inputs.plan, inputs.paths, inputs.plan.config
        self._inputs = inputs
        self.parts_of_tables = _parts_of_tables(inputs)
        required_settings = {"scores": config["forecasts"]["metrics"]}  # scores are forecast if asked for
        analyses = analysis.ANALYSES | (reproduction.ANALYSES if config["reproduces"] else {})
        self.analyses = {name: entry for name, entry in analyses.items() if required_settings.get(name, True)}
        makers = {
            table: f"{table}_table" for table in [*self.parts_of_tables, "vectors", "metrics", "models", "warnings"]
        }
        makers["schedules"] = "models_table"
        makers |= {table: name for name, entry in self.analyses.items() for table in entry.makes}
        self.tables = {table: Part(paths.table(table), maker, Job()) for table, maker in makers.items()}
        self.files: dict[str, Input] = {
            "published": str(ROOT / "src/toposcale/reproduction/published_values.csv"),
            "training": [inputs.model_log(name) for name in [*plan.trained, *plan.monitored, *plan.loss_curves]],
            "all_features": self.tables["features"],
            **self.tables,
        }
        sources = {"metrics", *plan.sources}  # every run has metrics
        self.figures = {
            name: figure
            for name, figure in FIGURES.items()
            if set(figure.tables) <= set(self.files) and figure.source in sources
        }
        recipes = self._producer_recipes() | self._analysis_recipes()
        self.recipes = {name: recipe._replace(outputs=self._outputs(name)) for name, recipe in recipes.items()}
        self.other_recipes = self._other_recipes()

    def _producer_recipes(self) -> dict[str, Recipe]:
        """Return the recipes of the tables of what producers measure."""
        inputs, plan, paths = self._inputs, self._inputs.plan, self._inputs.paths
        config = plan.config
        with_weights = [name for name in plan.with_weights if name not in plan.published]
        with_log = [*plan.loss_curves, *plan.monitored]
        return {
            **{
                f"{table}_table": Recipe("gather.py", {"table": table}, {"parts": parts}, f"Gathering {table}")
                for table, parts in self.parts_of_tables.items()
            },
            "vectors_table": Recipe(
                "vectors.py",
                {},
                {"parts": inputs.parts("weights", paths.diagrams)},
                "Persistence images and landscapes of the weights",
            ),
            "metrics_table": Recipe(
                "metrics_table.py",
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
                    "harness": inputs.harness,
                    "manifests": inputs.manifests,
                },
                "Gathering the metrics of every checkpoint",
            ),
            "models_table": Recipe(
                "models_table.py",
                {
                    "models": {name: model.facts for name, model in plan.models.items()},
                    "with_weights": with_weights,
                    "with_curve": list(plan.loss_curves),
                    "with_log": with_log,
                    "with_schedule": list(plan.schedule_files),
                },
                {
                    # Their size is the model's.
                    "checkpoints": [inputs.checkpoint(name, plan.models[name].steps[-1]) for name in with_weights],
                    "sizes": inputs.manifests,
                    "curves": list(plan.loss_curves.values()),
                    "logs": [inputs.model_log(name) for name in with_log],
                    "schedules": inputs.schedules(plan.schedule_files),
                },
                "Listing the models and their learning-rate schedules",
            ),
            "warnings_table": Recipe(
                "warnings_table.py",
                {
                    "missing": {name: dict(model.missing) for name, model in plan.models.items() if model.missing},
                    "unread_states": {
                        name: dict(model.unread_states) for name, model in plan.models.items() if model.unread_states
                    },
                },
                {
                    "manifests": inputs.manifests,
                    "corpus": [paths.corpus] if plan.reads_text else [],
                    "features": self.files["features"],
                    "metrics": self.files["metrics"],
                },
                "What to know before trusting a number",
            ),
        }

    def _analysis_recipes(self) -> dict[str, Recipe]:
        """Return the recipes of the tables of the analyses."""
        settings = analysis_settings(self._inputs.plan)
        return {
            name: Recipe(
                "analyse.py",
                {"analysis": name, "settings": {key: settings[key] for key in entry.settings}},
                {table: self.files[table] for table in entry.reads},
                entry.title,
                modules=[entry.module],
            )
            for name, entry in self.analyses.items()
        }

    def _other_recipes(self) -> dict[str, Recipe]:
        """Return the recipes of the figures, the explorer and tables as CSV."""
        inputs, config = self._inputs, self._inputs.plan.config
        figures = self.figures.values()
        return {
            "figures": Recipe(
                "figures.py",
                {"figures": list(self.figures), "tasks": config["metrics"]["tasks"]},
                {table: self.files[table] for figure in figures for table in figure.tables},
                modules=[f"toposcale.figures.{figure.module}" for figure in figures],
            ),
            "explorer": Recipe(
                "explorer.py",
                {"run": config["run"]},
                {
                    **{table: self.files[table] for table in ("features", "metrics", "models")},
                    "diagrams": [
                        *inputs.parts("weights", inputs.paths.diagrams),
                        *(part for table, part in self.tables.items() if table == "diagrams"),
                    ],
                    "surfaces": self.files.get("surfaces", []),
                    "page": page_files("explorer"),
                },
                "Writing the explorer",
                {"page": inputs.paths.explorer},
            ),
            "table_csv": Recipe(
                "table_csv.py",
                {},
                {"table": lambda job: self.tables[job.table]},
                "{output}",
                {"csv": inputs.paths.table("{table}").removesuffix("parquet") + "csv"},
            ),
        }

    def _outputs(self, maker: str) -> dict[str, str]:
        """Return the output, by name, of a rule: its tables, those of analyses and the warnings as CSV too."""
        tables = {table: part for table, part in self.tables.items() if part.recipe == maker}
        with_csv = tables if maker in self.analyses or "warnings" in tables else {}
        return {**tables, **{f"{table}_csv": part.removesuffix("parquet") + "csv" for table, part in with_csv.items()}}


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


def _parts_of_tables(inputs: Inputs) -> dict[str, list[str]]:
    """Return the parts that each table gathers; every run has a features table, the others where there are parts."""
    plan, paths, sources = inputs.plan, inputs.paths, inputs.plan.sources

    def of_path(pattern: str) -> list[str]:
        return inputs.parts_of_models("path", pattern, plan.with_path)

    parts_of_tables = {
        "features": [
            *chain.from_iterable(inputs.parts(source, paths.features) for source in sources),
            *inputs.parts_of_models("diagram_distances", paths.distances, plan.moving),
            *inputs.parts_of_models("trajectory", paths.trajectory_features, plan.with_trajectory),
        ],
        "diagrams": [*inputs.parts("embeddings", paths.diagrams), *inputs.parts("landscape", paths.diagrams)],
        "surfaces": inputs.parts("landscape", paths.surfaces),
        "densities": inputs.parts("landscape", paths.densities),
        "profiles": inputs.parts("landscape", paths.profiles) + of_path(paths.path_profiles),
        "path_surfaces": of_path(paths.path_surfaces),
        "trajectories": of_path(paths.trajectories),
    }
    return {table: parts for table, parts in parts_of_tables.items() if parts or table == "features"}
