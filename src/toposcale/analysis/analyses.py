"""Registry of analyses: the tables that each reads and makes. Nothing here knows where a file lies."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class Analysis(NamedTuple):
    """An analysis: a function of tables that returns data frames by name."""

    function: str  # "package.module.function" of toposcale
    title: str
    reads: tuple[str, ...]  # tables that it takes, as keyword arguments
    settings: tuple[str, ...] = ()  # further keyword arguments
    makes: tuple[str, ...] = ()  # tables that it returns, by default of its own name; one that it omits is empty

    @property
    def module(self) -> str:
        """The full name of the module of the function."""
        return "toposcale." + self.function.rpartition(".")[0]

    def load(self) -> Callable[..., dict[str, Any]]:
        """Return the function."""
        return getattr(import_module(self.module), self.function.rpartition(".")[2])


_MEASURED = ("features", "metrics")
RUN_TABLES = (*_MEASURED, "models")
_VERDICTS = ("verdicts", "pooled_correlations", "tested_features", "sensitivity")

ANALYSES = {
    "correlations": Analysis(
        "analysis.verdicts.verdict_tables",
        "Correlations of every feature with every metric, and the verdicts",
        reads=RUN_TABLES,
        makes=(*_VERDICTS, "correlations", "power"),
        settings=("seed", "resamples", "tasks"),
    ),
    "scaling": Analysis("analysis.scaling.scaling_tables", "Power laws in model size", reads=RUN_TABLES),
    "transitions": Analysis(
        "analysis.transitions.transition_tables", "The step of the largest change of every series", reads=_MEASURED
    ),
    "early_stopping": Analysis(
        "analysis.early_stopping.early_stopping_tables",
        "Early stopping by features and by loss",
        reads=_MEASURED,
        makes=("early_stopping", "early_stopping_summary"),
    ),
    "forecasts": Analysis(
        "analysis.forecasts.forecast_tables",
        "Forecasts of the final loss",
        reads=(*RUN_TABLES, "training", "vectors", "schedules"),
        makes=("forecasts", "forecast_evaluation"),
        settings=("fractions", "seed", "resamples"),
    ),
    "scores": Analysis(
        "analysis.scores.score_tables",
        "Forecasts of the scores of tasks",
        reads=("metrics", "models", "training", "schedules"),
        makes=("score_forecasts", "score_evaluation"),
        settings=("fractions", "score_metrics", "loss_metric"),
    ),
    "decisions": Analysis(
        "analysis.decisions.decision_tables",
        "Finish, extend, or stop and start another size",
        reads=(*RUN_TABLES, "training", "schedules"),
        makes=("advice", "candidates", "decisions", "decision_evaluation"),
        settings=("fractions", "decision", "seed", "resamples"),
    ),
    "summary": Analysis(
        "analysis.summary.summary_tables",
        "The questions of the project, answered in a sentence each",
        reads=("metrics", *_VERDICTS, "forecast_evaluation", "decision_evaluation", "advice"),
        settings=("tasks",),
    ),
}
ANALYSES = {name: analysis._replace(makes=analysis.makes or (name,)) for name, analysis in ANALYSES.items()}
"""Every analysis by name, in the order of the work."""
