"""Claims and published values of the four sources, for runs that repeat them (`reproduces` in a configuration)."""

from toposcale.analysis.analyses import RUN_TABLES, Analysis

ANALYSES = {
    "comparison": Analysis(
        "reproduction.comparison.comparison_tables",
        "Published values and those of this run",
        reads=("published", *RUN_TABLES, "correlations", "scaling", "transitions", "forecast_evaluation"),
        makes=("comparison",),
        settings=("training_settings", "corpus_settings", "seeds", "reproduces"),
    ),
    "claims": Analysis(
        "reproduction.claims.claims_tables",
        "Claims of the sources, and what this run shows",
        reads=(
            *("published", *RUN_TABLES, "correlations", "verdicts", "tested_features", "sensitivity"),
            *("transitions", "scaling", "early_stopping", "forecasts", "forecast_evaluation"),
        ),
        makes=("claims",),
        settings=("reproduces",),
    ),
}
"""Every analysis by name, as in `toposcale.analysis.ANALYSES`."""
