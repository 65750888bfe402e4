"""Correlations, tests for series with trend and memory, multiple testing and scaling laws: arrays in, arrays out.

docs/statistics.md says what each test can and cannot show.
"""

from toposcale.io.lazy_names import lazy_names

_MODULES = {
    **{"between_runs": "freedman_lane", "residual_test": "prewhitening"},
    **{"benjamini_hochberg": "multiple_testing", "holm": "multiple_testing", "testable_segment": "prewhitening"},
    "spearman": "coefficients",
}
__all__ = list(_MODULES)
# When it is asked for: no rule of the workflow depends on a test that it does not make.
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
