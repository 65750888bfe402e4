"""The decisions of docs/decisions.md: the regret of each policy where the loss of every alternative is known."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from threadpoolctl import threadpool_limits

PUBLISHED_RUNS = Path(__file__).parent / "published_runs"
"""The published training runs, with their sources, and what was computed from them."""

OWN_TABLES = Path(__file__).parent / "tables"
"""The small tables of the decisions that were taken here, and what was computed from them."""


def single_threaded(processes: int) -> ProcessPoolExecutor:
    """Return a pool of processes with one BLAS thread each: with more of them they compete for the cores."""
    return ProcessPoolExecutor(processes, initializer=threadpool_limits, initargs=(1,))
