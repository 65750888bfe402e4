"""Data sets: training runs that others published, with their schedules and ends, on which forecasts are judged."""

from toposcale.datasets.published_runs import PublishedRuns, Source, load_published_runs
from toposcale.forecasting.runs.published_run import PublishedRun

__all__ = ["PublishedRun", "PublishedRuns", "Source", "load_published_runs"]
