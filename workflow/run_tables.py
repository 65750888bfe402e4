"""The tables of a run: what each is gathered from, which analyses make the others, and which figures are drawn of them."""

from itertools import chain
from typing import Any

from inputs import Inputs, Part
from paths import ROOT, each
from plan import Plan, training_settings
from toposcale.analysis import ANALYSES
from toposcale.figures import FIGURES


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
        self.analyses = {name: analysis for name, analysis in ANALYSES.items() if needed.get(name, True)}
        self.made = [table for analysis in self.analyses.values() for table in analysis.makes]
        names = [*self.gathered, "vectors", "metrics", "models", "schedules", *self.made]
        self.files: dict[str, str | list[str]] = {
            "published": str(ROOT / "workflow/published_values.csv"),
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
