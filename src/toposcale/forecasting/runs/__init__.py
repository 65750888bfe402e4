"""Training runs: the run, its learning-rate schedule, its metadata, outliers and smoothing."""
