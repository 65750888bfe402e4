"""Training runs: the run, its learning-rate schedule, its facts, outliers and smoothing."""
