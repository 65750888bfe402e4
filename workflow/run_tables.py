"""The tables and figures of a run, and what its analyses read and make."""

from itertools import chain
from typing import Any

from digests import Digests, Job
from parts import Inputs
from paths import LIBRARY, files_of_models
from plan import training_settings
from toposcale import analysis, reproduction
from toposcale.figures import FIGURES

ANALYSES = analysis.ANALYSES | reproduction.ANALYSES


class RunTables:
    """The tables of a run.

    parts: the parts of each table that only gathers what producers make.
    analyses: those of this run.
    tables: the files of the tables, by name.
    files: inputs of analyses and figures, by name.
    figures: those whose tables and features this run has.
    with_csv: tables that are written as CSV too.
    """

    def __init__(self, inputs: Inputs) -> None:
        plan, config = inputs.plan, inputs.plan.config
        self._inputs, self._table = inputs, inputs.paths.table
        self.parts = _parts_of_tables(inputs)
        required_settings = {"scores": config["forecasts"]["metrics"]}  # scores are forecast if asked for
        analyses = analysis.ANALYSES | (reproduction.ANALYSES if config["reproduces"] else {})
        self.analyses = {name: entry for name, entry in analyses.items() if required_settings.get(name, True)}
        made_by_analyses = [table for entry in self.analyses.values() for table in entry.makes]
        names = [*self.parts, "vectors", "metrics", "models", "schedules", "warnings", *made_by_analyses]
        self.tables = {name: self._table(name) for name in names}
        self.with_csv = ["warnings", *made_by_analyses]
        self.files: dict[str, str | list[str]] = {
            "published": str(LIBRARY / "toposcale/reproduction/published_values.csv"),
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

    def read_by(self, name: str) -> dict[str, str | list[str]]:
        """Return the input of an analysis, by name."""
        return {table: self.files.get(table, self._table(table)) for table in ANALYSES[name].reads}

    def made_by(self, name: str) -> dict[str, str]:
        """Return the output of an analysis, by name: its tables, as CSV too."""
        tables = ANALYSES[name].makes
        csv = {f"{table}_csv": self._inputs.paths.csv(table) for table in tables}
        return {table: self._table(table) for table in tables} | csv

    @property
    def jobs(self) -> dict[str, list[Job]]:
        """The jobs of the rule that gathers tables."""
        return {"gathered_table": [Job("gathered_table", table=table) for table in self.parts]}

    @property
    def read_by_figures(self) -> dict[str, str | list[str]]:
        """The input of the figures, by name."""
        return {table: self.files[table] for figure in self.figures.values() for table in figure.tables}

    def params(self, name: str, digests: Digests) -> dict[str, Any]:
        """Return the params of the rule of an analysis: what it is made with, its name and its settings."""
        made_with = digests.params(name, "analyse.py", ANALYSES[name].module)
        return {**made_with, "analysis": name, "settings": self.settings(name)}

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


def _parts_of_tables(inputs: Inputs) -> dict[str, list[str]]:
    """Return the parts that each table gathers; every run has a features table, the others where there are parts."""
    plan, paths, parts = inputs.plan, inputs.paths, inputs.parts

    def of_path(pattern: str) -> list[str]:
        return files_of_models(pattern, plan.with_path)

    parts_of_tables = {
        "features": [
            *chain.from_iterable(parts(source, paths.features) for source in plan.sources),
            *files_of_models(paths.distances, plan.moving),
            *files_of_models(paths.trajectory_features, plan.with_trajectory),
        ],
        "diagrams": [*parts("embeddings", paths.diagrams), *parts("landscape", paths.diagrams)],
        "surfaces": parts("landscape", paths.surfaces),
        "densities": parts("landscape", paths.densities),
        "profiles": parts("landscape", paths.profiles) + of_path(paths.path_profiles),
        "path_surfaces": of_path(paths.path_surfaces),
        "trajectories": of_path(paths.trajectories),
    }
    return {table: parts for table, parts in parts_of_tables.items() if parts or table == "features"}
