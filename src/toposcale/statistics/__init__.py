"""Correlations, tests for series with trend and memory, multiple testing and scaling laws: arrays in, arrays out.

docs/statistics.md says what each test can and cannot show.
"""

from importlib import import_module
from typing import Any

_MODULES = {
    **{"between_runs": "freedman_lane", "permute_pairs": "run_permutation", "residual_test": "prewhitening"},
    **{"benjamini_hochberg": "multiple_testing", "holm": "multiple_testing", "testable_segment": "prewhitening"},
    "spearman": "coefficients",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # When it is asked for: no rule of the workflow depends on a test that it does not make.
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
