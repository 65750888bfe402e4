"""Registry of analyses: the tables that each reads and makes. Nothing here knows where a file lies."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class Analysis(NamedTuple):
    """One analysis.

    function: "module.function" of this package; takes the tables of `reads` and the values of `settings` as keyword
    arguments, and returns data frames by the names of `makes` (by default its own name); one that it omits is empty.
    """

    function: str
    title: str
    reads: tuple[str, ...]
    settings: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()


_MEASURED = ("features", "metrics")
_RUN = (*_MEASURED, "models")
_VERDICTS = ("verdicts", "pooled_correlations", "tested_features", "sensitivity")

ANALYSES = {
    "correlations": Analysis(
        "verdicts.verdict_tables",
        "Correlations of every feature with every metric, and the verdicts",
        reads=_RUN,
        makes=(*_VERDICTS, "correlations", "power"),
        settings=("seed", "resamples", "tasks"),
    ),
    "scaling": Analysis(
        "scaling.scaling_tables", "Power laws in model size", reads=_RUN, settings=("seed", "resamples")
    ),
    "transitions": Analysis(
        "transitions.transition_tables",
        "Transitions and change points",
        reads=_MEASURED,
        makes=("transitions", "change_points"),
    ),
    "early_stopping": Analysis(
        "early_stopping.early_stopping_tables",
        "Early stopping by features and by loss",
        reads=_MEASURED,
        makes=("early_stopping", "early_stopping_summary"),
    ),
    "forecasts": Analysis(
        "forecasts.forecast_tables",
        "Forecasts of the final loss",
        reads=(*_RUN, "training", "vectors", "schedules"),
        makes=("forecasts", "forecast_evaluation"),
        settings=("fractions", "seed", "resamples"),
    ),
    "scores": Analysis(
        "scores.score_tables",
        "Forecasts of the scores of tasks",
        reads=("metrics", "models", "training", "schedules"),
        makes=("score_forecasts", "score_evaluation"),
        settings=("fractions", "score_metrics", "loss_metric"),
    ),
    "decisions": Analysis(
        "decisions.decision_tables",
        "Finish, extend, or stop and start another size",
        reads=(*_RUN, "training", "schedules"),
        makes=("advice", "candidates", "decisions", "decision_evaluation"),
        settings=("fractions", "decision", "seed", "resamples"),
    ),
    "comparison": Analysis(
        "comparison.comparison_tables",
        "Published values beside those of this run",
        reads=("published", *_RUN, "correlations", "scaling", "transitions", "forecast_evaluation"),
        settings=("training_settings", "corpus_settings", "seeds"),
    ),
    "claims": Analysis(
        "claims.claims_tables",
        "Claims of the sources, and what this run shows",
        reads=(
            *("published", *_RUN, "correlations", "verdicts", "tested_features", "sensitivity"),
            *("transitions", "scaling", "early_stopping", "forecasts", "forecast_evaluation"),
        ),
    ),
    "summary": Analysis(
        "summary.summary_tables",
        "The questions of the project, answered in a sentence each",
        reads=("metrics", *_VERDICTS, "forecast_evaluation", "decision_evaluation", "advice"),
        settings=("tasks",),
    ),
}
ANALYSES = {name: analysis._replace(makes=analysis.makes or (name,)) for name, analysis in ANALYSES.items()}
"""Every analysis by name, in the order of the work."""


def load(name: str) -> Callable[..., dict[str, Any]]:
    """Return the function of an analysis; KeyError for a name that is not in `ANALYSES`."""
    module, function = ANALYSES[name].function.split(".")
    return getattr(import_module(f"{__package__}.{module}"), function)
