"""The registry of analyses: what each reads and makes. Nothing here knows where a file lies."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd


class Analysis(NamedTuple):
    """One analysis.

    function: "module.function" in this package. It takes the tables of `reads` and the numbers of `settings` as keyword
    arguments, and returns data frames by the names of `makes`; one that it leaves out is empty.
    """

    function: str
    title: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    settings: tuple[str, ...] = ()


def _analysis(function: str, title: str, reads: str, makes: str, settings: str = "") -> Analysis:
    return Analysis(function, title, tuple(reads.split()), tuple(makes.split()), tuple(settings.split()))


ANALYSES = {
    "correlations": _analysis(
        "verdicts.verdict_tables",
        "Correlations of every feature with every metric, and the verdicts",
        "features metrics models",
        "correlations pooled_correlations over_seeds verdicts tested_features sensitivity power",
        "seed resamples tasks",
    ),
    "ranking": _analysis(
        "ranking.ranking_tables",
        "Topology against spectra, norms and curvature",
        "features metrics",
        "ranking",
        "seed resamples",
    ),
    "scaling": _analysis(
        "scaling.scaling_tables",
        "Power laws in model size",
        "features metrics models",
        "scaling",
        "seed resamples",
    ),
    "transitions": _analysis(
        "transitions.transition_tables",
        "Transitions and change points",
        "features metrics",
        "transitions change_points",
    ),
    "early_stopping": _analysis(
        "early_stopping.early_stopping_tables",
        "Early stopping by features and by loss",
        "features metrics",
        "early_stopping early_stopping_summary",
    ),
    "forecasts": _analysis(
        "forecasts.forecast_tables",
        "Forecasts of the final loss",
        "features metrics models training vectors schedules",
        "forecasts forecast_evaluation",
        "fractions seed resamples",
    ),
    "scores": _analysis(
        "scores.score_tables",
        "Forecasts of the scores of tasks",
        "metrics models training schedules",
        "score_forecasts score_evaluation",
        "fractions score_metrics loss_metric",
    ),
    "decisions": _analysis(
        "decisions.decision_tables",
        "Finish, extend, or stop and start another size",
        "features metrics models training schedules",
        "candidates decisions decision_evaluation",
        "fractions decision seed resamples",
    ),
    "comparison": _analysis(
        "comparison.comparison_tables",
        "Published values beside those of this run",
        "published features metrics models correlations scaling transitions forecast_evaluation",
        "comparison",
        "training_settings corpus_settings seeds",
    ),
    "summary": _analysis(
        "summary.summary_tables",
        "The questions of the project, answered in a sentence each",
        "metrics verdicts pooled_correlations tested_features sensitivity forecast_evaluation decision_evaluation "
        "candidates",
        "summary",
        "tasks",
    ),
    "graph_dependence": _analysis(
        "graph_dependence.graph_dependence_tables",
        "How much the features of the landscape depend on the choice of graph",
        "all_features",
        "graph_dependence",
        "planes graphs",
    ),
    "landscape_information": _analysis(
        "landscape_information.landscape_information_tables",
        "Which features of the landscape tell checkpoints apart",
        "all_features",
        "landscape_information",
        "repeats",
    ),
}
"""Every analysis by name, in the order of the work."""


def load(name: str) -> Callable[..., dict[str, pd.DataFrame]]:
    """The function of an analysis; KeyError for a name that is not in `ANALYSES`."""
    module, function = ANALYSES[name].function.split(".")
    loaded: Callable[..., dict[str, pd.DataFrame]] = getattr(
        import_module(f"{__package__}.{module}"), function
    )
    return loaded
