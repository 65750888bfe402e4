"""Correlations, surrogates, scaling laws, transitions and verdicts on the features and metrics tables.

Array functions (numpy only): `correlation`, `resampling`, `surrogates`, `partial`, `multiple_testing`,
`pooling`, `scaling`, `transitions`, `early_stopping`. Functions from tables to tables (pandas): `series`,
`correlation_tables`, `pooled_tables`, `verdicts`, `ranking`, `scaling_tables`, `transition_tables`,
`early_stopping_tables`.
"""
