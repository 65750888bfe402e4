"""Forecasts and advice from loss curves; topology, spectra and norms of the weights of checkpoints.

Functions
---------
describe(checkpoint), features_of(checkpoint)
    The weight matrices of a checkpoint, one row each; every feature in long form.
compare(before, after), changes_of(before, after)
    Changes between two checkpoints, one row per matrix; the change of every feature in long form.
plot_matrices(table, path)
    A picture of what `describe` or `compare` returned.
advise(curve)
    Forecast of the final loss, and whether to continue a training run or to train a larger model.
advise_run(folder)
    The advice on each training of a run of the workflow.
compare_runs(a, b, ...)
    Which of several training runs is better, from their loss curves.
check_curve(curve, name)
    How `advise` reads a loss curve, in lines.
test_metric(table, metric)
    Whether a metric of a training tells more of the loss than the step, the covariates and the loss itself.

Subpackages
-----------
homology, landscape, statistics
    Persistent homology, loss landscapes, and tests for series that drift: arrays in, arrays out.
forecasting
    Training runs, laws of the loss, and decisions.
monitor
    Measures a training while it goes on.
"""

from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.3.0"
_FROM_CURVES = ("advise", "check_curve", "compare_runs")
_DESCRIPTIONS = ("changes_of", "compare", "describe", "features_of")
__all__ = ["NoForecast", "UserError", "advise_run", "plot_matrices", "test_metric", *_DESCRIPTIONS, *_FROM_CURVES]

_MODULES = {
    **dict.fromkeys(_DESCRIPTIONS, "features.description"),
    "advise": "forecasting.decision.advise",
    "check_curve": "forecasting.decision.check_command",
    "compare_runs": "forecasting.decision.compare_runs",
    **dict.fromkeys(("NoForecast", "UserError"), "io.errors"),
    "advise_run": "analysis.run_folder",
    "plot_matrices": "figures.matrices",
    "test_metric": "analysis.metric_test",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # By name and when it is asked for: no rule of the workflow depends on what it does not use.
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return _counting_parameters(value) if name in _FROM_CURVES else value


@cache
def _counting_parameters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of loss curves that counts the parameters of the weights that a Trainer left with its log."""

    @wraps(function)
    def with_parameter_count(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{"count_parameters": _count_parameters} | kwargs)

    return with_parameter_count


def _count_parameters(checkpoint: Path) -> tuple[int, int]:
    """Return the `ParameterCount` of a checkpoint."""
    count: tuple[int, int] = import_module(f"{__name__}.checkpoints").Checkpoint(checkpoint).count
    return count


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
