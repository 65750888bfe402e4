"""Refuse to mix results of two configurations in one folder.

Without its records, in .snakemake, Snakemake takes every file that is there for up to date. Then the configuration is
compared with the one that was stored with the results.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from config_reading import shown
from toposcale.io.errors import UserError, listed

RECORD = "config.yaml"
"""The file of a run that holds the configuration that its results were made with."""

# Keys that say how the work is done; they change no result.
_HOW = ("jobs", "threads", "device", "cache", "keep")


def mark(results: Path) -> Path:
    """Return the file that shows that Snakemake's records of a run exist: it lies beside them."""
    return Path(".snakemake", "toposcale", results.name)


def check(config: Mapping[str, Any], results: Path) -> None:
    """Raise `UserError` where Snakemake's records are lost and the results were made with other keys."""
    record = results / RECORD
    if not record.exists() or mark(results).exists():
        return
    try:
        recorded = yaml.safe_load(record.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(
            f"{record}: not readable, and Snakemake's records of the run (.snakemake) are gone; delete {results}"
        ) from error
    if recorded is None:
        return  # an empty record
    changed = [
        f"{key} (it was {'absent' if was is None else shown(was, 60)})" for key, was in _changes(recorded, config)
    ]
    if changed:
        raise UserError(
            f"{results} was made with other values of {listed(changed, 5)}, and Snakemake's records of it "
            f"(.snakemake) are gone: give the old values again, or another name as run, or delete {results}"
        )


def _changes(recorded: Any, present: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield keys whose values differ, with the recorded ones; of models also those that only one of the two has."""
    if not isinstance(recorded, dict) or not isinstance(present, dict):
        if recorded != present:
            yield path, recorded
        return
    of_models = path.split(".")[0] == "models"
    for key in dict.fromkeys([*recorded, *present]):
        if of_models or (key in recorded and key in present and key not in _HOW):
            yield from _changes(recorded.get(key), present.get(key), f"{path}.{key}".lstrip("."))
