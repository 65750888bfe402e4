"""Functions of loss curves that count the parameters of the weights that a Trainer left with its log."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from toposcale.forecasting.decision import advise as _advise
from toposcale.forecasting.decision import check_command as _check_command
from toposcale.forecasting.decision import compare_runs as _compare_runs

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def count_parameters(checkpoint: Path) -> tuple[int, int]:
    """Return the `ParameterCount` of a checkpoint."""
    from toposcale.checkpoints import Checkpoint  # slow to import, and few logs come with weights

    return Checkpoint(checkpoint).count


def _with_weights(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return a function of loss curves that counts the parameters of the weights with the log."""

    @wraps(function)
    def with_parameter_count(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        kwargs.setdefault("count_parameters", count_parameters)
        return function(*args, **kwargs)

    return with_parameter_count


advise = _with_weights(_advise.advise)
compare_runs = _with_weights(_compare_runs.compare_runs)
check_curve = _with_weights(_check_command.check_curve)
