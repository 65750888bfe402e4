"""The decisions of docs/decisions.md: what each policy gives up where the loss of every alternative is known."""

from pathlib import Path

PUBLISHED_RUNS = Path(__file__).parent / "published_runs"
"""The published training runs, with their sources, and what was computed from them."""

OWN_TABLES = Path(__file__).parent / "tables"
"""The small tables of the decisions that were taken here, and what was computed from them."""
